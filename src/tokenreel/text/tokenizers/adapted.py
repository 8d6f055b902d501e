"""Objects as tokenizers: those of other libraries, and any with three members.

Objects of transformers, tokenizers, sentencepiece and tiktoken are known (objects.py). Any
other needs `encode`, `special_token_ids` and `vocab_size`.

The interface is that of contract 001: `encode(text) -> list[int]`,
`special_token_ids() -> {"sys": …, "usr": …, "asst": …, "eot": …}`. Its control tokens
go by the strings of the `ngpt` format; other short names stand for themselves.

Such an object may match control strings inside text. What it makes of them cannot be
undone here, so content that encodes to a control id is a VocabularyError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.errors import ConfigError, VocabularyError
from tokenreel.text.tokenizers.objects import ACCEPTED_FILES, ACCEPTED_OBJECTS, define_object
from tokenreel.text.tokenizers.specials import NGPT_SPECIALS
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer, fingerprint_of
from tokenreel.text.tokenizers.tokenizer_protocol import (
    Encoded,
    Tokenizer,
    as_id_array,
    encode_one,
    join,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def adapt(tokenizer: Any, *, engine: str = "auto") -> Tokenizer:
    """Return the object as a tokenizer; one that already is comes back as it is."""
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    definition = define_object(tokenizer)
    if definition is not None:
        return ReferencedTokenizer(definition, engine=engine)
    missing = [
        name
        for name in ("encode", "special_token_ids", "vocab_size")
        if not hasattr(tokenizer, name)
    ]
    if missing:
        raise ConfigError(
            f"a {type(tokenizer).__name__} is no tokenizer: it has no {', '.join(missing)}",
            expected=f"{ACCEPTED_OBJECTS}; or an object of your own with encode(text), "
            "special_token_ids(), vocab_size",
            remedy=f"or give a path: {ACCEPTED_FILES}",
        )
    return AdaptedTokenizer(tokenizer)


class AdaptedTokenizer:
    """Present a contract 001 tokenizer through the protocol."""

    engine = "reference"

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._control_ids = {
            NGPT_SPECIALS.get(name, name): int(number)
            for name, number in tokenizer.special_token_ids().items()
        }
        self._control = np.array(sorted(self._control_ids.values()), np.uint32)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, control ids included."""
        size = self._tokenizer.vocab_size
        return int(size() if callable(size) else size)

    @property
    def control_ids(self) -> Mapping[str, int]:
        """The control tokens by their strings."""
        return dict(self._control_ids)

    @property
    def fingerprint(self) -> str:
        """The object's own if it has one; else of its type, size and control ids alone."""
        own = getattr(self._tokenizer, "fingerprint", None)
        if isinstance(own, str):
            return own
        kind = f"{type(self._tokenizer).__module__}.{type(self._tokenizer).__qualname__}"
        facts = {"vocab_size": self.vocab_size, **self._control_ids}
        parts = {name: str(value).encode() for name, value in facts.items()}
        return fingerprint_of(f"adapted {kind}", parts)

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """Encode each text; a control id that comes out is a VocabularyError."""
        encoded = join([self._tokenizer.encode(text) for text in texts])
        forged = np.flatnonzero(np.isin(encoded.ids, self._control))
        if len(forged):
            number = int(np.searchsorted(encoded.offsets, forged[0], side="right")) - 1
            raise VocabularyError(
                f"the tokenizer makes control id {encoded.ids[forged[0]]} out of the text "
                f"{_shortened(texts[number])}",
                where=f"text {number} of the batch",
                remedy="use a tokenizer that encodes control strings in content as ordinary text",
            )
        return encoded

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text; a control id that comes out is a VocabularyError."""
        return encode_one(self, text)

    def decode(self, ids: ArrayLike) -> str:
        """Return the text of the ids, as the object gives it."""
        if not hasattr(self._tokenizer, "decode"):
            raise ConfigError(f"a {type(self._tokenizer).__name__} cannot decode")
        return str(self._tokenizer.decode(as_id_array(ids).tolist()))


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:77]}…")
