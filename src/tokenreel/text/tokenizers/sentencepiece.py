"""SentencePiece models: `.model`, Mistral's `.model.v3` and the like, or a loaded processor.

The reference is the `sentencepiece` library, loaded from the model with its control
pieces out of reach of text. Control pieces are those of type CONTROL, and user-defined
symbols that look like markup: the library matches the latter inside text by nature, so
they are retyped. Control pieces also get a name that is never looked up: of several
characters, with a blank inside. BPE and Unigram search only other types of pieces, but
look single characters up by name; the word model looks up whole words, and no word has
a blank inside. Byte pieces and byte fallback stay; so do user-defined words and blanks.

Ids are those of `sentencepiece` called directly, for text without control strings. A
text comes back as the model's normalization left it; U+2581, the model's own sign for a
blank, comes back as a blank.

Cost: time in proportion to the text (measured on a busy core, 16 million characters of
any sort: 3 to 14 s).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tokenreel.errors import ConfigError, FormatError, MissingExtraError
from tokenreel.text.tokenizers.bpe_engines import Gigatoken, gigatoken_of_sentencepiece
from tokenreel.text.tokenizers.end_of_text import DeclaredEnd
from tokenreel.text.tokenizers.engine import UnsuitableError
from tokenreel.text.tokenizers.model_proto import Piece, PieceType, read_pieces, replace_pieces
from tokenreel.text.tokenizers.specials import looks_like_structure
from tokenreel.text.tokenizers.tokenizer import Definition, fingerprint_of
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded, join

_BLANK = "\u2581"


@dataclass(frozen=True, slots=True)
class _Reference:
    processor: Any
    name: str = "reference"

    def encode(self, texts: Sequence[str]) -> Encoded:
        return join(self.processor.encode(list(texts), out_type=int)) if texts else join([])


def define_model(path: Path) -> Definition:
    """Define a tokenizer by a SentencePiece model file."""
    return _define(path.read_bytes(), where=str(path), reopen=partial(define_model, path))


def define_processor(processor: Any) -> Definition:
    """Define a tokenizer by the model that a `SentencePieceProcessor` holds.

    What the processor was told besides (add_bos, sampling, …) is left out: it is no part of
    the model, and text is encoded as ordinary text.
    """
    model = processor.serialized_model_proto()
    if not model:
        raise ConfigError(
            "this SentencePieceProcessor holds no model", remedy="load one into it first"
        )
    return define_serialized(model)


def define_serialized(model: bytes) -> Definition:
    """Define a tokenizer by the bytes of a SentencePiece model."""
    return _define(model, where="SentencePieceProcessor", reopen=partial(define_serialized, model))


def _define(data: bytes, *, where: str, reopen: Callable[[], Definition]) -> Definition:
    original = _processor(data, where)
    pieces = read_pieces(data)
    return Definition(
        where=where,
        fingerprint=fingerprint_of("sentencepiece", {"model": data}),
        vocab_size=len(pieces),
        control_ids={piece.text: piece.id for piece in pieces if is_control(piece)},
        reference=_Reference(_processor(hide_from_library(data, pieces), where)),
        decode_text=original.decode,
        reopen=reopen,
        candidates=(partial(_gigatoken, data, pieces),),
        words=[
            piece.text.replace(_BLANK, " ")
            for piece in pieces
            if piece.type == PieceType.USER_DEFINED
        ],
        declared_end=_declared_end(original),
    )


def _declared_end(processor: Any) -> DeclaredEnd | None:
    number = processor.eos_id()
    if number < 0:  # the library's "none"
        return None
    return DeclaredEnd(token=processor.id_to_piece(number), source="the model's eos_id")


def is_control(piece: Piece) -> bool:
    """Tell whether only structure may use the piece."""
    if piece.type == PieceType.USER_DEFINED:
        return looks_like_structure(piece.text)
    return piece.type == PieceType.CONTROL


def hide_from_library(model: bytes, pieces: Sequence[Piece]) -> bytes:
    """Return the model that the library encodes text with, its control pieces out of reach."""
    return _hide(model, pieces, PieceType.CONTROL, f"hidden{_BLANK}{{}}")


def hide_from_gigatoken(model: bytes, pieces: Sequence[Piece]) -> bytes:
    """Return the model that gigatoken encodes text with, its control pieces out of reach.

    It would match control pieces in text, but has no way to an unused piece that no two pieces
    make. A name with a blank inside would cost it its cache of words, and three quarters of its
    speed.
    """
    return _hide(model, pieces, PieceType.UNUSED, "<|hidden:{}|>")


def _hide(model: bytes, pieces: Sequence[Piece], retype: PieceType, template: str) -> bytes:
    taken = {piece.text for piece in pieces}

    def hide(piece: Piece) -> Piece:
        name = template.format(piece.id)
        while name in taken or _is_joined(name, taken):
            name += "x"
        return replace(piece, text=name, type=retype)

    return replace_pieces(model, [hide(piece) for piece in pieces if is_control(piece)])


def _is_joined(name: str, known: Set[str]) -> bool:
    return any(name[:place] in known and name[place:] in known for place in range(1, len(name)))


def _gigatoken(model: bytes, pieces: Sequence[Piece]) -> Gigatoken:
    # gigatoken merges unused pieces like any other, the library takes them apart again.
    if any(piece.type == PieceType.UNUSED for piece in pieces):
        raise UnsuitableError("gigatoken does not know unused pieces")
    return gigatoken_of_sentencepiece(hide_from_gigatoken(model, pieces))


def _processor(model: bytes, where: str) -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise MissingExtraError(
            "sentencepiece", extra="text", purpose="a SentencePiece tokenizer"
        ) from None
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except (RuntimeError, OSError, TypeError, ValueError) as error:
        raise FormatError(f"not a SentencePiece model: {error}", where=where) from None
    return processor
