"""The tokenizer that contract 001's functions are given; a face over tokenreel's.

It is also a tokenreel tokenizer (`encode_batch`, `control_ids`, `fingerprint`), so that
whole batches need not go text by text through `encode`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from niels_gpt.special_tokens import ASST_TOKEN, EOT_TOKEN, SYS_TOKEN, USR_TOKEN
from tokenreel.errors import FormatError
from tokenreel.text import tokenizers

_SHORT_NAMES = {"sys": SYS_TOKEN, "usr": USR_TOKEN, "asst": ASST_TOKEN, "eot": EOT_TOKEN}


class SentencePieceTokenizer:
    """Encode and decode with a SentencePiece model that has the four control tokens."""

    def __init__(self, path: str | Path, *, engine: str = "auto") -> None:
        self._path = Path(path).absolute()
        self._core = tokenizers.load_tokenizer(self._path, engine=engine)
        missing = [text for text in _SHORT_NAMES.values() if text not in self._core.control_ids]
        if missing:
            raise FormatError(
                "the tokenizer lacks control tokens of the chat format",
                where=path,
                expected=", ".join(missing),
                remedy='train one with "tokenreel train-tokenizer … --template ngpt"',
            )

    @property
    def model_path(self) -> str:
        """The file it was opened from; its SHA-256 stands in the meta.json of a cache."""
        return str(self._path)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, control ids included."""
        return self._core.vocab_size

    @property
    def control_ids(self) -> Mapping[str, int]:
        """The control tokens by their strings."""
        return self._core.control_ids

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of what defines the ids."""
        return self._core.fingerprint

    def encode(self, text: str) -> list[int]:
        """Return the ids of ordinary text: control strings in it are text too."""
        return self._core.encode_batch([text]).ids.tolist()

    def encode_batch(self, texts: Sequence[str]) -> tokenizers.Encoded:
        """Encode each text as ordinary text."""
        return self._core.encode_batch(texts)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Return the text of the ids; control ids show as their strings."""
        return self._core.decode(ids)

    def special_token_ids(self) -> dict[str, int]:
        """Return the ids of the control tokens under their short names."""
        return {name: self._core.control_ids[text] for name, text in _SHORT_NAMES.items()}


def load_tokenizer(path: str | Path) -> SentencePieceTokenizer:
    """Open a SentencePiece model that has the four control tokens."""
    return SentencePieceTokenizer(path)
