"""Tokenizers that sleep, die or fail, for builds in worker processes."""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenreel.text.tokenizers import Encoded, byte_tokenizer


class Faulty:
    """The byte tokenizer, with something that happens where a text holds the word."""

    engine = "reference"

    def __init__(self, how: str, word: str = "trap") -> None:
        self.how = how
        self.word = word
        self._bytes = byte_tokenizer()
        self.vocab_size = self._bytes.vocab_size
        self.control_ids = dict(self._bytes.control_ids)
        self.fingerprint = self._bytes.fingerprint

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """Encode, unless it is time for something else."""
        if self.how == "uneven":
            time.sleep(zlib.crc32("".join(texts).encode()) % 7 / 100)
        elif any(self.word in text for text in texts):
            self._happen()
        return self._bytes.encode_batch(texts)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Decode."""
        return self._bytes.decode(ids)

    def _happen(self) -> Any:
        if self.how == "exit":
            os._exit(7)
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "memory":
            raise MemoryError
        if self.how == "error":
            raise RuntimeError("the tokenizer broke")
        if self.how == "sleep":
            time.sleep(60)
        return None
