"""SentencePiece models (`.model`).

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tokenreel.errors import FormatError, MissingExtraError
from tokenreel.text.tokenizers.bpe_engines import Gigatoken, gigatoken_of_sentencepiece
from tokenreel.text.tokenizers.end_of_text import DeclaredEnd
from tokenreel.text.tokenizers.engine import UnsuitableError
from tokenreel.text.tokenizers.model_proto import Piece, PieceType, read_pieces, rewrite_pieces
from tokenreel.text.tokenizers.protocol import Encoded, join
from tokenreel.text.tokenizers.referenced import Definition, fingerprint_of
from tokenreel.text.tokenizers.specials import looks_like_structure

_BLANK = "\u2581"


@dataclass(frozen=True, slots=True)
class _Reference:
    processor: Any
    name: str = "reference"

    def encode(self, texts: Sequence[str]) -> Encoded:
        return join(self.processor.encode(list(texts), out_type=int)) if texts else join([])


def define_model(path: Path) -> Definition:
    """Define a tokenizer by a SentencePiece model file."""
    data = path.read_bytes()
    original = _processor(data, path)
    pieces = read_pieces(data)
    return Definition(
        where=str(path),
        fingerprint=fingerprint_of("sentencepiece", {"model": data}),
        vocab_size=len(pieces),
        control_ids={piece.text: piece.id for piece in pieces if is_control(piece)},
        reference=_Reference(_processor(hide_controls(data, PieceType.CONTROL), path)),
        decode_text=original.decode,
        reopen=partial(define_model, path),
        candidates=(partial(_gigatoken, data),),
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


def hide_controls(model: bytes, retype: PieceType) -> bytes:
    """Return the model with its control pieces retyped and out of reach of any text."""
    taken = {piece.text for piece in read_pieces(model)}

    def hide(piece: Piece) -> Piece:
        if not is_control(piece):
            return piece
        name = f"hidden{_BLANK}{piece.id}"
        while name in taken:
            name += _BLANK + "x"
        return replace(piece, text=name, type=retype)

    return rewrite_pieces(model, hide)


def _gigatoken(model: bytes) -> Gigatoken:
    # gigatoken merges unused pieces like any other, the library takes them apart again; and it
    # would match control pieces in text, but has no way to an unused piece that no two pieces make.
    if any(piece.type == PieceType.UNUSED for piece in read_pieces(model)):
        raise UnsuitableError("gigatoken does not know unused pieces")
    return gigatoken_of_sentencepiece(hide_controls(model, PieceType.UNUSED))


def _processor(model: bytes, path: Path) -> Any:
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
        raise FormatError(f"not a SentencePiece model: {error}", where=path) from None
    return processor
