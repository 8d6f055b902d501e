"""tiktoken encodings: a rank file, a named encoding whose file is at hand, or an `Encoding`.

A rank file holds ranks alone. The splitting pattern and the control tokens come from
the installed `tiktoken` when the file is one it publishes, under the published name
and with the published checksum; for any other `NAME.tiktoken` from a `NAME.json`
beside it: {"pat_str": "…", "special_tokens": {"<|endoftext|>": 50256}}. A named
encoding is looked for where tiktoken keeps its downloads (TIKTOKEN_CACHE_DIR); nothing
is ever downloaded.

An `Encoding` object is what its rank file and the JSON beside it would hold, and has their
fingerprint: that of the published file where ranks, pattern and control tokens are those.

The reference is tiktoken, told of no control tokens. It takes time in proportion to the
text (measured on a busy core, 16 million characters: source code 13 s, equal letters 7 s,
Chinese without a break 28 s). Its regular expressions have a stack that some ten million
blanks in a row exceed, which is an InputError; gigatoken has no such limit.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

from tokenreel.errors import (
    ConfigError,
    DamageError,
    FormatError,
    MissingExtraError,
    NoFileError,
    VocabularyError,
)
from tokenreel.text.tokenizers.bpe_engines import Gigatoken, TiktokenRanks, gigatoken_of_ranks
from tokenreel.text.tokenizers.end_of_text import DeclaredEnd
from tokenreel.text.tokenizers.engine import UnsuitableError
from tokenreel.text.tokenizers.specials import END_OF_TEXT
from tokenreel.text.tokenizers.tokenizer import Definition, fingerprint_of

Ranks = dict[bytes, int]
MAX_RANK = 2**32 - 2  # tiktoken counts with 32 bits, and the largest means none

# How Mistral's tekken files split text; gigatoken has it under the name of another model.
TEKKEN_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def define_rank_file(path: Path) -> Definition:
    """Define a tokenizer by a `.tiktoken` rank file."""
    data = path.read_bytes()
    sidecar = path.with_suffix(".json")
    if sidecar.is_file():
        settings, parts = _read_sidecar(sidecar), {"ranks": data, "json": sidecar.read_bytes()}
    elif path.stem in encoding_names():
        settings = _published(path.stem, lambda url, checksum: _checked(data, checksum, path))
        parts = {"ranks": data}
    else:
        raise ConfigError(
            "a rank file does not say how text is split, and its name is none that tiktoken knows",
            where=path,
            expected=", ".join(encoding_names()),
            remedy=f'put {{"pat_str": …, "special_tokens": …}} into {sidecar.name} beside it',
        )
    return _define(settings, parts, where=str(path), reopen=partial(define_rank_file, path))


def define_named(name: str) -> Definition:
    """Define a tokenizer by the name of an encoding whose rank file is at hand."""
    found: dict[Path, bytes] = {}

    def read(url: str, checksum: str) -> Ranks:
        path = _cache_folder() / hashlib.sha1(url.encode()).hexdigest()
        if not path.is_file():
            raise NoFileError(
                f"the rank file of the encoding {name!r} is not at hand, and nothing is downloaded",
                where=path,
                remedy=f"put {url} there, or save it as {name}.tiktoken and give that path",
            )
        found[path] = path.read_bytes()
        return _checked(found[path], checksum, path)

    settings = _published(name, read)
    path, data = found.popitem()
    return _define(settings, {"ranks": data}, where=str(path), reopen=partial(define_named, name))


def define_encoding(encoding: Any) -> Definition:
    """Define a tokenizer by a `tiktoken.Encoding`, whatever it was made from."""
    # tiktoken has no public names for these; its documentation extends encodings by them.
    return _define_ranks(
        rank_file(encoding._mergeable_ranks),
        pattern=encoding._pat_str,
        controls=dict(encoding._special_tokens),
        name=encoding.name,
    )


def _define_ranks(data: bytes, *, pattern: str, controls: dict[str, int], name: str) -> Definition:
    settings = {"pat_str": pattern, "special_tokens": controls}
    parts = {"ranks": data}
    if not _is_published(data, settings):
        parts["json"] = json.dumps(settings).encode()
    again = partial(_define_ranks, data, pattern=pattern, controls=controls, name=name)
    return _define(settings, parts, where=f"the tiktoken encoding {name}", reopen=again)


def encoding_names() -> list[str]:
    """Return the names of the published encodings that consist of one rank file."""
    return sorted(set(_copy_of_public_encodings().ENCODING_CONSTRUCTORS) - {"gpt2"})


def _define(
    settings: Mapping[str, Any],
    parts: Mapping[str, bytes],
    *,
    where: str,
    reopen: Callable[[], Definition],
) -> Definition:
    ranks: Ranks = settings.get("mergeable_ranks") or read_ranks(parts["ranks"], where)
    controls: dict[str, int] = dict(settings["special_tokens"])
    both = set(controls.values()) & set(ranks.values())
    if both:
        raise FormatError("a control token has the id of a rank", where=where, actual=min(both))
    encoding = make_encoding(settings["pat_str"], ranks, where)
    return Definition(
        where=where,
        fingerprint=fingerprint_of("tiktoken", parts),
        vocab_size=1 + max((*ranks.values(), *controls.values())),
        control_ids=controls,
        reference=TiktokenRanks(encoding),
        decode_text=partial(decode_ranks, encoding),
        reopen=reopen,
        candidates=(partial(gigatoken_of_pattern, settings["pat_str"], parts["ranks"]),),
        declared_end=(
            DeclaredEnd(token=END_OF_TEXT, source="tiktoken's eot_token")
            if END_OF_TEXT in controls
            else None
        ),
    )


def rank_file(ranks: Ranks) -> bytes:
    """Return the rank file of these ranks, as tiktoken itself writes one.

    >>> rank_file({b"b": 1, b"a": 0})
    b'YQ== 0\\nYg== 1\\n'
    """
    ordered = sorted(ranks.items(), key=lambda item: item[1])
    return b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in ordered)


def read_ranks(data: bytes, path: str | Path) -> Ranks:
    """Read the ranks of a rank file: on each line a token in base64 and its number.

    >>> read_ranks(b"YQ== 0\\nYg== 1\\n", Path("tiny.tiktoken"))
    {b'a': 0, b'b': 1}
    """
    ranks: Ranks = {}
    seen: set[int] = set()
    for number, line in enumerate(data.splitlines(), start=1):
        if not line:
            continue
        try:
            spelled, given = line.split()
            token, rank = base64.b64decode(spelled, validate=True), int(given)
            if not 0 <= rank <= MAX_RANK:
                raise ValueError(f"the rank {rank} is not between 0 and {MAX_RANK:,}")
        except ValueError as error:
            raise FormatError(
                f"not a line of a rank file: {error}",
                where=f"{path}:{number}",
                expected="a token in base64 and its rank",
            ) from None
        if token in ranks or rank in seen:  # tiktoken itself would panic, past every handler
            twice = "token" if token in ranks else "rank"
            raise FormatError(
                f"a {twice} stands in the rank file twice",
                where=f"{path}:{number}",
                actual=given.decode(errors="replace"),
            )
        ranks[token] = rank
        seen.add(rank)
    return ranks


def make_encoding(pattern: str, ranks: Ranks, where: str) -> Any:
    """Return an encoding without control tokens; the library's own checks as FormatErrors."""
    missing = next((byte for byte in range(256) if bytes((byte,)) not in ranks), None)
    if missing is not None:
        raise FormatError(f"the rank file has no token for the byte {missing}", where=where)
    if _matches_nothing(pattern):
        raise FormatError(
            "the splitting pattern matches the empty text, at which tiktoken would panic",
            where=where,
            actual=repr(pattern)[:80],
        )
    try:
        return _tiktoken().Encoding(
            Path(where).stem, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
        )
    except ValueError as error:
        raise FormatError(
            f"tiktoken does not take the splitting pattern: {error}", where=where
        ) from None


def _matches_nothing(pattern: str) -> bool:
    """Tell whether a pattern matches a text without letters; what is no pattern is left alone."""
    _tiktoken()
    regex = import_module("regex")  # which tiktoken depends on
    try:
        return regex.match(pattern, "") is not None
    except (regex.error, RecursionError, OverflowError):
        return False


def decode_ranks(encoding: Any, ids: list[int]) -> str:
    try:
        return encoding.decode(ids)
    except KeyError as error:
        raise VocabularyError(f"no token has this id: {error}") from None


def gigatoken_of_pattern(pattern: str, ranks: bytes) -> Gigatoken:
    """Load a rank file into gigatoken, by its name for the splitting pattern."""
    scheme = "nemotron" if pattern == TEKKEN_PATTERN else _published_scheme(pattern)
    # gigatoken reads rank files by their path alone, and the ranks may be in memory alone.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ranks.tiktoken"
        path.write_bytes(ranks)
        return gigatoken_of_ranks(path, scheme)


def _published_scheme(pattern: str) -> str:
    for name, scheme in (("r50k_base", "gpt2"), ("cl100k_base", "gpt4"), ("o200k_base", "o200k")):
        if pattern == _published(name, lambda url, checksum: {})["pat_str"]:
            return scheme
    raise UnsuitableError("gigatoken does not know the splitting pattern")


def _is_published(data: bytes, settings: Mapping[str, Any]) -> bool:
    """Tell whether tiktoken publishes an encoding of these ranks, pattern and control tokens."""
    checksum = hashlib.sha256(data).hexdigest()
    for name in encoding_names():
        checksums: list[str] = []

        def note(url: str, expected: str, noted: list[str] = checksums) -> Ranks:
            noted.append(expected)
            return {}

        facts = _published(name, note)
        if checksums == [checksum] and all(facts[key] == settings[key] for key in settings):
            return True
    return False


def _published(name: str, read: Callable[[str, str], Ranks]) -> dict[str, Any]:
    """Return pattern, ranks and control tokens of an encoding, reading ranks by `read` only.

    tiktoken keeps these facts in functions that fetch the rank file themselves; so they
    are run in a copy of their module that has another fetcher.
    """
    module = _copy_of_public_encodings()
    module.load_tiktoken_bpe = lambda url, expected_hash: read(url, expected_hash)
    return module.ENCODING_CONSTRUCTORS[name]()


def _copy_of_public_encodings() -> Any:
    _tiktoken()
    spec = find_spec("tiktoken_ext.openai_public")
    if spec is None or spec.loader is None:
        raise MissingExtraError("tiktoken", extra="text", purpose="a named tiktoken encoding")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _checked(data: bytes, checksum: str, path: Path) -> Ranks:
    actual = hashlib.sha256(data).hexdigest()
    if actual != checksum:
        raise DamageError(
            "this is not the published rank file of that name",
            where=path,
            expected=checksum,
            actual=actual,
            remedy="fetch it again, or rename it and describe it in a JSON file beside it",
        )
    return read_ranks(data, path)


def _read_sidecar(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_bytes())
        pattern, specials = settings["pat_str"], settings["special_tokens"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"cannot be used: {error!r}", where=path, expected='"pat_str" and "special_tokens"'
        ) from None
    ids = specials.values() if isinstance(specials, dict) else [None]
    if not all(type(number) is int and 0 <= number <= MAX_RANK for number in ids):
        raise FormatError(
            "special_tokens must be ids by their strings",
            where=path,
            expected=f"0 to {MAX_RANK:,}",
            actual=repr(specials)[:80],
        )
    return {"pat_str": str(pattern), "special_tokens": specials}


def _cache_folder() -> Path:
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if os.environ.get(variable):
            return Path(os.environ[variable])
    return Path(tempfile.gettempdir()) / "data-gym-cache"


def _tiktoken() -> Any:
    try:
        import tiktoken
    except ImportError:
        raise MissingExtraError("tiktoken", extra="text", purpose="a tiktoken encoding") from None
    return tiktoken
