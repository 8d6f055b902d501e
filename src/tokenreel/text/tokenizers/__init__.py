"""Tokenizers: text to ids that no text can forge, and back.

`load_tokenizer` opens any kind; see protocol.py for what it returns and referenced.py
for what that promises.
"""

from __future__ import annotations

from pathlib import Path

from tokenreel.errors import ConfigError, MissingExtraError, NoFileError
from tokenreel.text.tokenizers.adapted import adapt
from tokenreel.text.tokenizers.byte import DEFAULT_SPECIALS, byte_tokenizer, define_bytes
from tokenreel.text.tokenizers.end_of_text import EndToken, find_end, take_end
from tokenreel.text.tokenizers.protocol import Encoded, Tokenizer
from tokenreel.text.tokenizers.referenced import (
    ENGINES,
    Definition,
    ReferencedTokenizer,
    check_sample,
)
from tokenreel.text.tokenizers.specials import END_OF_TEXT, NGPT_SPECIALS

__all__ = [
    "END_OF_TEXT",
    "ENGINES",
    "NGPT_SPECIALS",
    "Encoded",
    "EndToken",
    "Tokenizer",
    "adapt",
    "byte_tokenizer",
    "check_sample",
    "find_end",
    "load_tokenizer",
    "take_end",
]


def load_tokenizer(spec: str | Path | Tokenizer, *, engine: str = "auto") -> Tokenizer:
    """Open a tokenizer.

    `spec` is a `tokenizer.json`, a folder with one (or one that `transformers` can
    convert), a SentencePiece `.model`, a `.tiktoken` rank file, the name of a tiktoken
    encoding whose file is at hand, or "byte". A tokenizer is returned as it is.
    `engine` is "auto", the fastest that gives the ids of the reference, or "reference".

    >>> load_tokenizer("byte").encode_batch(["hi"]).ids.tolist()
    [104, 105]
    """
    if not isinstance(spec, (str, Path)):
        return adapt(spec)
    return ReferencedTokenizer(_define(spec), engine=engine)


def _define(spec: str | Path) -> Definition:
    if spec == "byte":
        return define_bytes(DEFAULT_SPECIALS)
    path = Path(spec).expanduser()
    if path.is_dir():
        from tokenreel.text.tokenizers.huggingface import define_folder

        return define_folder(path.absolute())
    if path.is_file():
        return _define_file(path.absolute())
    return _define_name(str(spec))


def _define_file(path: Path) -> Definition:
    if path.suffix == ".json":
        from tokenreel.text.tokenizers.huggingface import define_json_file

        return define_json_file(path)
    if path.suffix == ".model":
        from tokenreel.text.tokenizers.sentencepiece import define_model

        return define_model(path)
    if path.suffix == ".tiktoken":
        from tokenreel.text.tokenizers.tiktoken import define_rank_file

        return define_rank_file(path)
    raise ConfigError(
        "the ending of the name does not say what kind of tokenizer this is",
        where=path,
        expected=".json (Hugging Face), .model (SentencePiece) or .tiktoken",
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
        remedy="nothing is downloaded; give the path of a tokenizer.json, .model or .tiktoken file",
    )
