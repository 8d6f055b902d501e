"""Bytes as tokens: ids 0 to 255 are UTF-8 bytes, control tokens follow from 256.

No file, no dependency, exact for every text; for bringing a pipeline up and for
tests. A text costs one id per byte, four times what a trained vocabulary needs.
The default control tokens are the end of text (256) and the begin and end of a turn in the
chat template `chatml` (257, 258).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.text.tokenizers.end_of_text import DeclaredEnd
from tokenreel.text.tokenizers.specials import DEFAULT_SPECIALS, END_OF_TEXT
from tokenreel.text.tokenizers.tokenizer import Definition, ReferencedTokenizer, fingerprint_of
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded


@dataclass(frozen=True, slots=True)
class _Bytes:
    name: str = "reference"

    def encode(self, texts: Sequence[str]) -> Encoded:
        return self.encode_utf8([text.encode() for text in texts])

    def encode_utf8(self, texts: Sequence[bytes]) -> Encoded:
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(data) for data in texts], out=offsets[1:])
        ids = np.frombuffer(b"".join(texts), np.uint8).astype(np.uint32)
        return Encoded(ids=ids, offsets=offsets)


def byte_tokenizer(specials: Sequence[str] = DEFAULT_SPECIALS) -> ReferencedTokenizer:
    """Make the tokenizer of bytes with these control tokens, whose ids follow from 256.

    >>> dict(byte_tokenizer().control_ids)
    {'<|endoftext|>': 256, '<|im_start|>': 257, '<|im_end|>': 258}
    >>> tokenizer = byte_tokenizer(["<end>"])
    >>> tokenizer.encode_batch(["a<"]).ids.tolist(), dict(tokenizer.control_ids)
    ([97, 60], {'<end>': 256})
    """
    return ReferencedTokenizer(define_bytes(tuple(specials)))


def define_bytes(specials: tuple[str, ...]) -> Definition:
    """Define the tokenizer of bytes with these control tokens."""
    if len(set(specials)) < len(specials):
        raise ConfigError("a control token is given twice", actual=", ".join(specials))
    return Definition(
        where="byte",
        fingerprint=fingerprint_of("byte", {str(n): s.encode() for n, s in enumerate(specials)}),
        vocab_size=256 + len(specials),
        control_ids={special: 256 + number for number, special in enumerate(specials)},
        reference=_Bytes(),
        decode_text=lambda ids: bytes(ids).decode(errors="replace"),
        reopen=partial(define_bytes, specials),
        declared_end=(
            DeclaredEnd(token=END_OF_TEXT, source="byte") if END_OF_TEXT in specials else None
        ),
    )
