"""A template against `transformers`: the same conversations, token by token.

The peer is a tokenizer that `transformers` loads, with its own template (`against`), or with the
one that is checked: a model's Jinja text as it is, a template of plain data as the Jinja text that
says the same (template_jinja.py). Conversations that spell control tokens are not expected to
agree: there `transformers` makes real ones of them, and the number of those is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokenreel.config.paths import usable_path
from tokenreel.errors import ConfigError, InputError, MissingExtraError, TokenreelError
from tokenreel.text.chats.conversations import CONVERSATIONS, hostile
from tokenreel.text.chats.model_template import ModelTemplate
from tokenreel.text.chats.render import render
from tokenreel.text.chats.shapes import read_chat
from tokenreel.text.chats.template import Template
from tokenreel.text.chats.template_jinja import jinja_text
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer

WINDOW = 6  # tokens that are shown of either side, from two before the first that differs

SAME, DIFFERS, REFUSED, APART, LEFT_OUT = "same", "differs", "refused", "apart", "left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What became of one conversation; `ours` and `theirs` are tokens around the difference."""

    name: str
    outcome: str
    told: str
    ours: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return it, ready for JSON."""
        tokens = {"ours": list(self.ours), "theirs": list(self.theirs)} if self.ours else {}
        return {"conversation": self.name, "outcome": self.outcome, "told": self.told, **tokens}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A tokenizer of transformers, and the Jinja text that it renders; None is its own."""

    tokenizer: Any
    text: str | None
    args: Mapping[str, Any]

    def ids(self, record: Mapping[str, Any]) -> list[int]:
        """Return the ids of a record; whatever its template raises."""
        given = {} if self.text is None else {"chat_template": self.text}
        made = self.tokenizer.apply_chat_template(
            [dict(message) for message in record["messages"]],
            tools=record.get("tools"),
            tokenize=True,
            return_dict=True,
            **given,
            **self.args,
        )
        return list(made["input_ids"])


def load_peer(
    template: Template | ModelTemplate, tokenizer: object, *, against: str | None = None
) -> Peer:
    """Return the peer of a template: that of a folder, or of the tokenizer at this path.

    ConfigError where transformers cannot load it, MissingExtraError where there is none.
    """
    if against is not None:
        args = template.arguments if isinstance(template, ModelTemplate) else {}
        loaded = _loaded(against, {})
        if not loaded.chat_template:
            raise ConfigError(
                "no chat template here to compare with",
                where=against,
                expected="chat_template.jinja, or chat_template in tokenizer_config.json",
            )
        return Peer(tokenizer=loaded, text=None, args=args)
    if isinstance(template, ModelTemplate):
        loaded = _loaded(tokenizer, dict(template.special_tokens))
        text = dict(template.texts)
        return Peer(
            tokenizer=loaded,
            text=text.get("default", next(iter(text.values()))),
            args=template.arguments,
        )
    return Peer(tokenizer=_loaded(tokenizer, {}), text=jinja_text(template), args={})


def _loaded(spec: object, special_tokens: Mapping[str, str]) -> Any:
    path = usable_path(spec) if isinstance(spec, (str, Path)) else None
    file = path / "tokenizer.json" if path is not None and path.is_dir() else path
    if path is None or file is None or not (file.is_file() and file.suffix == ".json"):
        raise ConfigError("no tokenizer that transformers could load", actual=repr(str(spec)))
    try:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast
    except ImportError as error:
        raise MissingExtraError(
            "transformers", extra="hf", purpose="comparing a template with it"
        ) from error
    try:
        if path.is_dir() and (path / "tokenizer_config.json").is_file():
            return AutoTokenizer.from_pretrained(str(path), local_files_only=True)
        return PreTrainedTokenizerFast(tokenizer_file=str(file), **special_tokens)
    except Exception as error:  # of the tokenizers library, which raises Exception itself
        raise ConfigError(f"transformers cannot load it: {error}", where=path) from error


def compare(template: Template | ModelTemplate, tokenizer: Tokenizer, peer: Peer) -> list[Compared]:
    """Return what becomes of each conversation in both."""
    records = dict(CONVERSATIONS)
    if tokenizer.control_ids:
        records["hostile"] = hostile(tokenizer.control_ids)
    is_translated = isinstance(template, Template) and peer.text is not None
    return [
        _left_out(name)
        if is_translated and record.get("tools")
        else _compared(name, record, template, tokenizer, peer)
        for name, record in records.items()
    ]


def _left_out(name: str) -> Compared:
    return Compared(
        name=name, outcome=LEFT_OUT, told="templates of TOML write JSON in a form of their own"
    )


def _compared(
    name: str,
    record: Mapping[str, Any],
    template: Template | ModelTemplate,
    tokenizer: Tokenizer,
    peer: Peer,
) -> Compared:
    ours, our_error = _ours(record, template, tokenizer)
    theirs, their_error = _theirs(record, peer)
    if ours is None or theirs is None:
        both = ours is None and theirs is None
        told = "; ".join(
            f"{who}: {error}"
            for who, error in (("ours", our_error), ("theirs", their_error))
            if error
        )
        return Compared(name=name, outcome=REFUSED if both else DIFFERS, told=told)
    if name == "hostile":
        controls = list(tokenizer.control_ids.values())
        here, there = (int(np.isin(ids, controls).sum()) for ids in (ours, theirs))
        told = f"{here} control tokens, all of the template; transformers makes {there}"
        return Compared(name=name, outcome=APART, told=told)
    if ours == theirs:
        return Compared(name=name, outcome=SAME, told=f"{len(ours):,} tokens")
    return _difference(name, ours, theirs, tokenizer)


def _ours(
    record: Mapping[str, Any], template: Template | ModelTemplate, tokenizer: Tokenizer
) -> tuple[list[int] | None, str]:
    try:
        rendered = render([read_chat(record)], template, tokenizer=tokenizer, policy={})
    except InputError as error:
        return None, error.what
    return rendered.ids.tolist(), ""


def _theirs(record: Mapping[str, Any], peer: Peer) -> tuple[list[int] | None, str]:
    try:
        return peer.ids(record), ""
    except TokenreelError:
        raise
    except Exception as error:  # whatever a template raises, by transformers and jinja2
        return None, str(error)


def _difference(
    name: str, ours: Sequence[int], theirs: Sequence[int], tokenizer: Tokenizer
) -> Compared:
    shorter = min(len(ours), len(theirs))
    pairs = zip(ours, theirs, strict=False)
    place = next((n for n, (a, b) in enumerate(pairs) if a != b), shorter)
    start = max(0, place - 2)

    def shown(ids: Sequence[int]) -> tuple[str, ...]:
        return tuple(_token(token, tokenizer) for token in ids[start : start + WINDOW])

    told = f"from token {place + 1} on; {len(ours):,} tokens, transformers has {len(theirs):,}"
    return Compared(name=name, outcome=DIFFERS, told=told, ours=shown(ours), theirs=shown(theirs))


def _token(token: int, tokenizer: Tokenizer) -> str:
    try:
        return f"{token} {tokenizer.decode([token])!r}"
    except TokenreelError:  # a token of another tokenizer
        return str(token)
