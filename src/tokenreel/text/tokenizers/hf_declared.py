"""The end token that the files beside a `tokenizer.json` declare.

transformers makes a declared token special, wherever it is listed. Here as well, so that it
is an end that no text can write:

    among the added tokens, special or markup   it is a control token already
    in the vocabulary alone                     it becomes one, if it is markup or if nothing
                                                leads from text to it
    in added_tokens_decoder alone               the tokens listed there are added, if they get
                                                the ids that are listed
    anything else                               an error, once an end token is asked for

A word that text can write stays text: hidden, it would change the ids of ordinary documents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenreel.errors import FormatError
from tokenreel.text.tokenizers.end_of_text import DeclaredEnd
from tokenreel.text.tokenizers.hf_content import control_tokens, is_reached_from_text, unknown_id
from tokenreel.text.tokenizers.specials import is_enclosed

_CONFIG = "tokenizer_config.json"
_MAP = "special_tokens_map.json"
_GENERATION = "generation_config.json"
_REPAIR = "give the end a special token of its own among the added_tokens of {file}"

_BYTE = re.compile("<0x[0-9A-F]{2}>")

Parsed = dict[str, Any]


def with_declared_end(definition: Parsed, *, path: Path) -> tuple[Parsed, DeclaredEnd | None]:
    """Return the definition that the end token is a control token of, and the end token.

    It is the given definition, unless a token had to be added; None is for nothing declared.
    """
    folder, file = path.parent, path.name
    declared = _declared_token(folder)
    if declared is None:
        return _with_generation_end(definition, folder)
    token, source = declared
    taken = _with_control(definition, token, file=file)
    if isinstance(taken, _Flaw) and taken.is_missing:
        taken = _with_listed(definition, token, folder=folder) or taken
    return _declared(definition, taken, token, source=source, file=file)


def with_end_of_object(definition: Parsed, *, token: str) -> tuple[Parsed, DeclaredEnd]:
    """Return the same for the `eos_token` of a tokenizer that is in memory."""
    file = "the tokenizer's backend"
    taken = _with_control(definition, token, file=file)
    return _declared(definition, taken, token, source="the tokenizer's eos_token", file=file)


def read_settings(path: Path) -> Parsed:
    """Return what a JSON file of settings holds, nothing if there is no such file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise FormatError(f"no JSON: {error}", where=path) from None
    if not isinstance(content, dict):
        raise FormatError(
            "settings are no mapping",
            where=path,
            expected="a JSON object",
            actual=type(content).__name__,
        )
    return content


@dataclass(frozen=True, slots=True)
class _Flaw:
    why: str
    is_missing: bool = False


def _declared(
    definition: Parsed, taken: Parsed | _Flaw, token: str, *, source: str, file: str
) -> tuple[Parsed, DeclaredEnd]:
    if not isinstance(taken, _Flaw):
        return taken, DeclaredEnd(token=token, source=source)
    flaw = f"the end token is declared in {source}, but {taken.why}"
    return definition, DeclaredEnd(
        token=token, source=source, flaw=flaw, repair=_REPAIR.format(file=file)
    )


def _declared_token(folder: Path) -> tuple[str, str] | None:
    """Return the end token that is declared by its string, and the file that does.

    As in transformers, special_tokens_map.json wins over tokenizer_config.json unless that
    one lists its added tokens itself (added_tokens_decoder), as newer files do.
    """
    contents = {name: read_settings(folder / name) for name in (_CONFIG, _MAP)}
    order = contents if "added_tokens_decoder" in contents[_CONFIG] else reversed(contents)
    for name in order:
        given = contents[name].get("eos_token")
        token = given.get("content") if isinstance(given, dict) else given
        if given is not None and not isinstance(token, str):
            raise FormatError(
                "eos_token is no token", where=folder / name, expected="a string", actual=given
            )
        if token:
            return token, name
    return None


def _with_generation_end(definition: Parsed, folder: Path) -> tuple[Parsed, DeclaredEnd | None]:
    """Take the first of the declared ids that is one of a control token, or may become one."""
    ids = _generation_ids(folder / _GENERATION)
    if not ids:
        return definition, None
    names = {number: token for token, number in _vocabulary(definition).items()}
    for number in ids:
        taken = _with_control(definition, names[number], file="") if number in names else None
        if isinstance(taken, dict):
            return taken, DeclaredEnd(token=names[number], source=_GENERATION)
    return definition, DeclaredEnd(
        token=f"eos_token_id {', '.join(map(str, ids))}",
        source=_GENERATION,
        flaw=f"the end token is declared in {_GENERATION}, but no control token has that id",
        repair=f"correct eos_token_id, or declare eos_token in {_CONFIG}",
    )


def _generation_ids(path: Path) -> list[int]:
    given = read_settings(path).get("eos_token_id")
    ids = given if isinstance(given, list) else [] if given is None else [given]
    if any(type(number) is not int for number in ids):  # True is an int, and no id
        raise FormatError(
            "eos_token_id is no id",
            where=path,
            expected="an integer or a list of integers",
            actual=json.dumps(given),
        )
    return ids


def _with_control(definition: Parsed, token: str, *, file: str) -> Parsed | _Flaw:
    """Return the definition with this token of its vocabulary as a control token."""
    if token in control_tokens(definition):
        return definition
    number = _vocabulary(definition).get(token)
    if number is None:
        return _Flaw(f"not in {file}: the tokenizer has no such end token", is_missing=True)
    if number == unknown_id(definition["model"]):
        return _Flaw("it is the token for unknown characters, which text yields")
    if _text_writes(definition, token):
        return _Flaw("it is an ordinary token, which text can spell")
    return _extended(definition, [_entry(number, content=token, special=True)])


def _with_listed(definition: Parsed, token: str, *, folder: Path) -> Parsed | _Flaw | None:
    """Return the definition with the tokens that tokenizer_config.json alone lists."""
    listed = _listed(folder / _CONFIG)
    if token not in listed:
        return None
    known = _vocabulary(definition)
    missing = {text: entry for text, entry in listed.items() if text not in known}
    # The library numbers what it does not know from the end of the vocabulary on.
    first = 1 + max(known.values(), default=-1)
    ids = sorted(entry["id"] for entry in missing.values())
    if first != len(known) or ids != list(range(first, first + len(ids))):
        return _Flaw(
            f"its id {listed[token]['id']} in added_tokens_decoder is not the next after those of "
            "the vocabulary without a gap: the tokenizer has no such end token"
        )
    entries = sorted(missing.values(), key=lambda entry: entry["id"])
    return _extended(
        definition, [{**e, "special": e["special"] or e["content"] == token} for e in entries]
    )


def _listed(path: Path) -> dict[str, Parsed]:
    try:
        return {
            entry["content"]: _entry(int(number), **entry)
            for number, entry in read_settings(path).get("added_tokens_decoder", {}).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise FormatError(
            "added_tokens_decoder is no list of tokens",
            where=path,
            expected='{"7": {"content": "</s>", "special": true}}, for example',
        ) from None


def _entry(number: int, *, content: str, special: bool = False, **given: Any) -> Parsed:
    flags = {key: given.get(key, False) for key in ("single_word", "lstrip", "rstrip")}
    normalized = given.get("normalized", not special)
    return {"id": number, "content": content, **flags, "normalized": normalized, "special": special}


def _extended(definition: Parsed, entries: list[Parsed]) -> Parsed:
    names = {entry["content"] for entry in entries}
    added = [t for t in definition.get("added_tokens") or () if t["content"] not in names]
    return {**definition, "added_tokens": [*added, *entries]}


def _vocabulary(definition: Mapping[str, Any]) -> dict[str, int]:
    vocab = definition["model"].get("vocab") or {}
    if isinstance(vocab, list):  # Unigram: pieces and their scores, in order of the ids
        vocab = {piece: number for number, (piece, _) in enumerate(vocab)}
    added = {token["content"]: token["id"] for token in definition.get("added_tokens") or ()}
    return {**vocab, **added}


def _text_writes(definition: Mapping[str, Any], token: str) -> bool:
    """Tell whether ordinary text may become this token, which is no control token yet."""
    if any(token == added["content"] for added in definition.get("added_tokens") or ()):
        return True
    model = definition["model"]
    if model.get("byte_fallback") and _BYTE.fullmatch(token):
        return True
    return not is_enclosed(token) and is_reached_from_text(model, token)
