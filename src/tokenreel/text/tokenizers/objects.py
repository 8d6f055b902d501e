"""Tokenizer objects of other libraries, known by the names of their classes.

    transformers    a fast tokenizer (PreTrainedTokenizerFast and what derives from it)
    tokenizers      Tokenizer, and its ready-made implementations
    sentencepiece   SentencePieceProcessor
    tiktoken        Encoding

Each is defined by what it holds now, and encoded by the same engines as its files would be.
Nothing is imported to look at an object: whoever holds one has imported its library.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from tokenreel.errors import ConfigError
from tokenreel.text.tokenizers.tokenizer import Definition
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    import sentencepiece
    import tiktoken
    import tokenizers
    import transformers

# The names in quotes are for editors and type checkers; no library is imported for them.
LibraryTokenizer: TypeAlias = Union[
    "transformers.PreTrainedTokenizerBase",
    "tokenizers.Tokenizer",
    "sentencepiece.SentencePieceProcessor",
    "tiktoken.Encoding",
]
TokenizerSpec: TypeAlias = str | PathLike[str] | LibraryTokenizer | Tokenizer

ACCEPTED_FILES = (
    ".json (Hugging Face's tokenizer.json, Mistral's tekken.json), .model or .model.v3 "
    "(SentencePiece) or .tiktoken"
)
ACCEPTED_OBJECTS = (
    "a fast transformers tokenizer, a tokenizers.Tokenizer, a SentencePieceProcessor or a "
    "tiktoken.Encoding"
)


def define_object(tokenizer: Any) -> Definition | None:
    """Define a tokenizer by an object of a known library; None is for any other object."""
    names = {
        f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(tokenizer).__mro__
    }
    if "transformers.PreTrainedTokenizerBase" in names:
        from tokenreel.text.tokenizers.hf_objects import define_transformers

        return define_transformers(tokenizer)
    if names & {"tokenizers.Tokenizer", "tokenizers.BaseTokenizer"}:
        from tokenreel.text.tokenizers.hf_objects import define_backend

        return define_backend(tokenizer)
    if "sentencepiece.SentencePieceProcessor" in names:
        from tokenreel.text.tokenizers.sentencepiece import define_processor

        return define_processor(tokenizer)
    if "tiktoken.Encoding" in names:
        from tokenreel.text.tokenizers.tiktoken import define_encoding

        return define_encoding(tokenizer)
    _refuse_mistral(names)
    return None


def _refuse_mistral(names: set[str]) -> None:
    found = sorted(name for name in names if name.startswith("mistral_common."))
    if found:
        raise ConfigError(
            f"a {found[0]} is not taken as an object",
            expected=ACCEPTED_OBJECTS,
            remedy="give the path of its tekken.json or .model file",
        )
