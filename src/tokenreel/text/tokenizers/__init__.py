"""Tokenizers: text to ids that no text can forge, and back.

`load_tokenizer` opens any kind; see tokenizer_protocol.py for what it returns and
tokenizer.py for what that promises.
"""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import TypeVar, overload

from tokenreel.config.paths import special_kind, usable_path
from tokenreel.errors import ConfigError, MissingExtraError, NoFileError
from tokenreel.text.tokenizers.adapted import adapt
from tokenreel.text.tokenizers.byte import byte_tokenizer, define_bytes
from tokenreel.text.tokenizers.end_of_text import EndToken, find_end, take_end
from tokenreel.text.tokenizers.objects import (
    ACCEPTED_FILES,
    ACCEPTED_OBJECTS,
    LibraryTokenizer,
    TokenizerSpec,
)
from tokenreel.text.tokenizers.specials import DEFAULT_SPECIALS, END_OF_TEXT, NGPT_SPECIALS
from tokenreel.text.tokenizers.tokenizer import ENGINES, Definition, ReferencedTokenizer
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded, LoadedTokenizer, Tokenizer

__all__ = [
    "END_OF_TEXT",
    "ENGINES",
    "NGPT_SPECIALS",
    "Encoded",
    "EndToken",
    "LoadedTokenizer",
    "Tokenizer",
    "TokenizerSpec",
    "adapt",
    "byte_tokenizer",
    "find_end",
    "load_tokenizer",
    "take_end",
]


# Mistral writes the version of its chat format after the ending: tokenizer.model.v3, .model.v7m1.
_VERSIONED_MODEL = re.compile(r"\.model\.v\d+(m\d+)?$")
_Own = TypeVar("_Own", bound=Tokenizer)


@overload
def load_tokenizer(
    spec: str | PathLike[str] | LibraryTokenizer, *, engine: str = "auto"
) -> LoadedTokenizer: ...
@overload
def load_tokenizer(spec: _Own, *, engine: str = "auto") -> _Own: ...
def load_tokenizer(spec: TokenizerSpec, *, engine: str = "auto") -> Tokenizer:
    """Open a tokenizer. `spec` is

    - the path of a `tokenizer.json`, a SentencePiece `.model` (Mistral's `.model.v3` and the
      like too), a `tekken.json` of Mistral or a `.tiktoken` rank file;
    - a folder with one of these (or one that `transformers` can convert);
    - the name of a tiktoken encoding whose file is at hand, or "byte";
    - an object: a fast tokenizer of `transformers`, a `tokenizers.Tokenizer`, a
      `sentencepiece.SentencePieceProcessor`, a `tiktoken.Encoding`. What it holds counts, tokens
      added in memory too; its ids are those of the files it came from, and so is its fingerprint,
      unless these were written by an older library and it does not know where they are;
    - a tokenizer of your own (`Tokenizer` in tokenizer_protocol.py), which is returned as it is.

    `engine` is "auto", the fastest that gives the ids of the reference, or "reference".

    A loaded tokenizer has `encode` and `decode` for one text, `encode_batch` for many. Text is
    always text: a control token that it spells is encoded as the letters it is spelled with.

    >>> tokenizer = load_tokenizer("byte")
    >>> tokenizer.encode("hi")
    [104, 105]
    >>> tokenizer.decode([104, 105, 256])
    'hi<|endoftext|>'
    >>> tokenizer.encode_batch(["hi", "you"]).offsets.tolist()
    [0, 2, 5]
    """
    if not isinstance(spec, (str, PathLike)):
        return adapt(spec, engine=engine)
    return ReferencedTokenizer(_define(spec), engine=engine)


def _define(spec: str | PathLike[str]) -> Definition:
    if spec == "byte":
        return define_bytes(DEFAULT_SPECIALS)
    path = usable_path(Path(spec).expanduser())
    if path.is_dir():
        return _define_folder(path.absolute())
    if path.is_file():
        return _define_file(path.absolute())
    kind = special_kind(path)
    if kind is not None:
        raise ConfigError("not a tokenizer", where=path, expected="a regular file", actual=kind)
    return _define_name(str(spec))


def _define_folder(folder: Path) -> Definition:
    from tokenreel.text.tokenizers.huggingface import define_folder

    versioned = [path for path in folder.iterdir() if _VERSIONED_MODEL.search(path.name)]
    if not (folder / "tokenizer.json").is_file():
        if (folder / "tekken.json").is_file():
            return _define_file(folder / "tekken.json")
        if len(versioned) == 1:
            return _define_file(versioned[0])
    return define_folder(folder)


def _define_file(path: Path) -> Definition:
    if path.suffix == ".json":
        from tokenreel.text.tokenizers.huggingface import define_json_file
        from tokenreel.text.tokenizers.tekken import define_tekken, is_tekken

        return define_tekken(path) if is_tekken(path) else define_json_file(path)
    if path.suffix == ".model" or _VERSIONED_MODEL.search(path.name):
        from tokenreel.text.tokenizers.sentencepiece import define_model

        return define_model(path)
    if path.suffix == ".tiktoken":
        from tokenreel.text.tokenizers.tiktoken import define_rank_file

        return define_rank_file(path)
    raise ConfigError(
        "the ending of the name does not say what kind of tokenizer this is",
        where=path,
        expected=ACCEPTED_FILES,
    )


def _define_name(name: str) -> Definition:
    from tokenreel.text.tokenizers.tiktoken import define_named, encoding_names

    try:
        encodings = encoding_names()
    except MissingExtraError:
        encodings = []
    if name in encodings:
        return define_named(name)
    raise NoFileError(
        f"no tokenizer {name!r}: there is no such file or folder, and no encoding of that name",
        expected=", ".join(["a path", "byte", *encodings]),
        remedy=f"nothing is downloaded; give the path of a file: {ACCEPTED_FILES}; or, in Python, "
        f"{ACCEPTED_OBJECTS}",
    )
