"""A Hugging Face definition with its control tokens hidden, for encoding content.

In a `tokenizer.json` a control token can be reached from text in four ways: the list
of added tokens is matched before the model runs; a Unigram, WordLevel or WordPiece
model finds it in its own vocabulary; BPE merges may end in it; and with
`ignore_merges` BPE looks whole words up. So the control tokens keep their ids and get
another name, in the added tokens and in the vocabulary, and merges that make or use
them go. The new name is long and drawn by hash; a text that spells even that one
yields a control id, which the caller sees, and is encoded again under other names.

Special added tokens are control tokens, and so are others that look like markup; added
words and runs of blanks stay what they are: text. The model's token for the unknown is
neither: it is what the model says of characters it cannot write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from tokenreel.errors import FormatError
from tokenreel.text.tokenizers.specials import looks_like_structure


def control_tokens(definition: Mapping[str, Any]) -> dict[str, int]:
    """Return the control tokens of a parsed `tokenizer.json`, by their strings.

    >>> tool = {"id": 7, "content": "<tool>", "special": False}
    >>> control_tokens({"added_tokens": [tool], "model": {}})
    {'<tool>': 7}
    """
    unknown = unknown_id(definition["model"])
    return {
        token["content"]: token["id"]
        for token in definition.get("added_tokens") or ()
        if token["id"] != unknown
        and (token.get("special") or looks_like_structure(token["content"]))
    }


def control_strips(definition: Mapping[str, Any]) -> dict[str, tuple[bool, bool]]:
    """Return the control tokens that swallow blanks, with whether before and behind them.

    >>> end = {"id": 7, "content": "<|end|>", "special": True, "rstrip": True}
    >>> control_strips({"added_tokens": [end], "model": {}})
    {'<|end|>': (False, True)}
    """
    controls = control_tokens(definition)
    return {
        token["content"]: (bool(token.get("lstrip")), bool(token.get("rstrip")))
        for token in definition.get("added_tokens") or ()
        if token["content"] in controls and (token.get("lstrip") or token.get("rstrip"))
    }


def continued_definition(definition: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the definition that encodes text as if it followed something; None if it is the same.

    A pre-tokenizer of SentencePiece's kind may put a blank before the first text of an input,
    and before no other.
    """
    steps = definition.get("pre_tokenizer")
    changed = _without_first_blank(steps)
    return None if changed == steps else {**definition, "pre_tokenizer": changed}


def _without_first_blank(step: Any) -> Any:
    if not isinstance(step, Mapping):
        return step
    if "pretokenizers" in step:
        return {**step, "pretokenizers": [_without_first_blank(s) for s in step["pretokenizers"]]}
    is_first = step.get("type") == "Metaspace" and step.get("prepend_scheme") == "first"
    return {**step, "prepend_scheme": "never"} if is_first else step


def content_json(definition: Mapping[str, Any], *, salt: int = 0) -> str:
    """Return the `tokenizer.json` that encodes ordinary text, control tokens hidden.

    Truncation, padding, dropout and what a post-processor would add are off as well.
    """
    model = definition["model"]
    added = definition.get("added_tokens") or []
    controls = control_tokens(definition)
    hidden = {
        token["content"]: _hidden_name(token["content"], salt)
        for token in added
        if token["content"] in controls or token["id"] == unknown_id(model)
    }
    # Words that were added keep their ids only in the company of all the others, since the
    # library numbers added tokens in order.
    words = [token for token in added if token["content"] not in hidden]
    content = {
        **definition,
        "added_tokens": [_renamed(token, hidden) for token in added] if words else [],
        "truncation": None,
        "padding": None,
        "post_processor": None,
        "model": _hide_in_model(model, hidden, controls),
    }
    return orjson.dumps(content).decode()


def unknown_id(model: Mapping[str, Any]) -> int | None:
    """Return the id that the model gives to what it cannot write, if it has one."""
    if model.get("type") == "Unigram":
        return model.get("unk_id")
    name = model.get("unk_token")
    return None if name is None else model.get("vocab", {}).get(name)


def is_reached_from_text(model: Mapping[str, Any], token: str) -> bool:
    """Tell whether the model itself may encode text to this token of its vocabulary.

    >>> model = {"type": "BPE", "merges": ["a b"]}
    >>> is_reached_from_text(model, "ab"), is_reached_from_text(model, "abc")
    (True, False)
    """
    if model.get("type") != "BPE" or model.get("ignore_merges"):
        return True
    if len(token) == 1 or model.get("continuing_subword_prefix"):
        return True
    return any(token == _parts_and_whole(merge)[2] for merge in model.get("merges") or ())


def _hidden_name(text: str, salt: int) -> str:
    digest = hashlib.sha256(f"{salt} {text}".encode()).hexdigest()
    return f"<|hidden:{digest[:32]}|>"


def _renamed(token: Mapping[str, Any], hidden: Mapping[str, str]) -> dict[str, Any]:
    return {**token, "content": hidden.get(token["content"], token["content"])}


def _hide_in_model(
    model: Mapping[str, Any], hidden: Mapping[str, str], controls: Mapping[str, int]
) -> dict[str, Any]:
    changed = {**model}
    if "dropout" in model:
        changed["dropout"] = None
    if model.get("type") == "Unigram":
        changed["vocab"] = [[hidden.get(piece, piece), score] for piece, score in model["vocab"]]
        return changed
    vocab = model.get("vocab") or {}
    if model.get("type") == "BPE":
        _require_writable({piece for piece in controls if piece in vocab})
        changed["merges"] = [
            merge
            for merge in model.get("merges") or ()
            if hidden.keys().isdisjoint(_parts_and_whole(merge))
        ]
    changed["vocab"] = {hidden.get(piece, piece): number for piece, number in vocab.items()}
    if model.get("unk_token") in hidden:
        changed["unk_token"] = hidden[model["unk_token"]]
    return changed


def _parts_and_whole(merge: str | list[str]) -> tuple[str, str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right, left + right


def _require_writable(names: set[str]) -> None:
    single = sorted(name for name in names if len(name) == 1)
    if single:
        raise FormatError(
            f"the control token {single[0]!r} is also the model's only way to write that character",
            remedy="give the control token a name of its own",
        )
