"""Read and rewrite the pieces of a SentencePiece model file.

The file is a protocol buffer, of which only these fields matter here:

    ModelProto      1: piece (repeated)   2: trainer settings   3: normalizer settings
    piece           1: text (string)      2: score (float)      3: type (enum, default NORMAL)

Everything else is copied byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from tokenreel.errors import FormatError


class PieceType(IntEnum):
    """What a piece is to the model."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One entry of the vocabulary; its id is its place."""

    id: int
    text: str
    score: bytes
    type: PieceType


def read_pieces(model: bytes) -> list[Piece]:
    """Return the vocabulary of a model file."""
    records = [value for field, _, value in _fields(model) if field == 1]
    return [_piece(number, record) for number, record in enumerate(records)]


def replace_pieces(model: bytes, changed: Iterable[Piece]) -> bytes:
    """Return the model with these pieces in the places of their ids.

    >>> model = b"\\n\\x03\\n\\x01a"
    >>> replace_pieces(model, [Piece(id=0, text="b", score=b"", type=PieceType.CONTROL)])
    b'\\n\\x05\\n\\x01b\\x18\\x03'
    """
    new = {piece.id: _record(1, _packed(piece)) for piece in changed}
    written, number = [], 0
    for field, raw, _ in _fields(model):
        written.append(new.get(number, raw) if field == 1 else raw)
        number += field == 1
    return b"".join(written)


def _piece(number: int, record: bytes) -> Piece:
    text, score, kind = b"", b"", int(PieceType.NORMAL)
    for field, raw, value in _fields(record):
        if field == 1:
            text = value
        elif field == 2:
            score = raw
        elif field == 3:
            kind = _varint(value, 0)[0]
    try:
        return Piece(id=number, text=text.decode(), score=score, type=PieceType(kind))
    except ValueError as error:
        raise FormatError(f"piece {number} of the SentencePiece model: {error}") from None


def _packed(piece: Piece) -> bytes:
    kind = b"" if piece.type == PieceType.NORMAL else bytes((3 << 3, piece.type))
    return _record(1, piece.text.encode()) + piece.score + kind


def _record(field: int, value: bytes) -> bytes:
    return bytes((field << 3 | 2,)) + _varint_bytes(len(value)) + value


def _fields(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (field number, all bytes of the field, bytes of its value)."""
    place = 0
    while place < len(data):
        key, body = _varint(data, place)
        wire = key & 7
        if wire == 0:
            stop = _varint(data, body)[1]
        elif wire == 2:
            length, body = _varint(data, body)
            stop = body + length
        elif wire in (1, 5):
            stop = body + (8 if wire == 1 else 4)
        else:
            stop = len(data) + 1
        if stop > len(data):
            raise FormatError(f"not a SentencePiece model: the field at byte {place:,} is cut off")
        yield key >> 3, data[place:stop], data[body:stop]
        place = stop


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 64:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise FormatError(f"not a SentencePiece model: the number at byte {place:,} does not end")


def _varint_bytes(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*written, value))
