"""The arrays of a piece as they grow, batch by batch: ids, offsets, turns, origins, hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tokenreel.builder.plan import BuildPlan
from tokenreel.builder.spill import HASH, Arrays
from tokenreel.errors import InputError
from tokenreel.seeds import derive_key
from tokenreel.store.narrow import narrow
from tokenreel.store.origins import ORIGIN, OriginTable
from tokenreel.text.chats import read_chat, render
from tokenreel.text.sources.record import Record
from tokenreel.text.tokenizers import Encoded, Tokenizer
from tokenreel.text.tokenizers.engine import require_equal
from tokenreel.text.tokenizers.protocol import join
from tokenreel.text.tokenizers.referenced import ReferencedTokenizer
from tokenreel.text.turns import TURN

SAMPLE_CHARACTERS = 2048  # of each batch, encoded by the reference too: one in two thousand
OFFSET = np.dtype(np.int64)


class Piece:
    """Encode batches of records into arrays that lie end to end."""

    def __init__(
        self, plan: BuildPlan, tokenizer: Tokenizer, *, dtype: np.dtype, engine: str
    ) -> None:
        self._plan = plan
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._engine = engine
        self._end_id = plan.end_id(tokenizer)
        self._parts: dict[str, list[np.ndarray]] = {}
        self._table = OriginTable()
        self.num_documents = 0
        self.text_bytes = 0

    def add(self, batch: Sequence[Record]) -> None:
        """Encode a batch of records."""
        if self._plan.is_chat:
            self._add_chats(batch)
        else:
            self._add_documents(batch)
        if self._plan.provenance:
            records, strings = self._table.add([record.provenance for record in batch])
            self._grow("origins", records)
            self._grow("strings", np.frombuffer(strings, np.uint8))
        self.num_documents += len(batch)

    def _add_documents(self, batch: Sequence[Record]) -> None:
        texts = [_text(record) for record in batch]
        encoded = self._encode(texts, batch)
        ids = narrow(encoded.ids, self._dtype, limit=self._tokenizer.vocab_size)
        lengths = np.diff(encoded.offsets)
        if self._end_id is not None:
            ids, lengths = _with_ends(ids, encoded.offsets, self._end_id), lengths + 1
        self._grow_ids(ids, lengths)
        self.text_bytes += sum(map(_num_bytes, texts))

    def _add_chats(self, batch: Sequence[Record]) -> None:
        if self._plan.template is None:
            raise AssertionError("a chat build has a template")
        chats = [read_chat(_value(record), record.provenance) for record in batch]
        rendered = render(
            chats, self._plan.template, tokenizer=self._tokenizer, policy=self._plan.policy
        )
        contents = [[message.content for message in chat.messages] for chat in chats]
        self._encode(["\n".join(contents[0])], batch)
        ids = narrow(rendered.ids, self._dtype, limit=self._tokenizer.vocab_size)
        self._grow_ids(ids, np.diff(rendered.offsets))
        self._grow("turns", rendered.turns)
        self._grow("turn_offsets", np.diff(rendered.turn_offsets))
        self.text_bytes += sum(_num_bytes(text) for texts in contents for text in texts)

    def _encode(self, texts: list[str], batch: Sequence[Record]) -> Encoded:
        """Encode texts, and a stretch of one of them in the same call, to be compared."""
        tokenizer = self._tokenizer
        if self._engine == "reference" or not isinstance(tokenizer, ReferencedTokenizer):
            return tokenizer.encode_batch(texts)
        number, stretch = _stretch(texts, batch)
        encoded = tokenizer.encode_batch([*texts, stretch])
        require_equal(
            tokenizer.encode_by_reference([stretch]),
            join([encoded[len(texts)]]),
            names=[batch[number].provenance],
            engine=self._engine,
            decode=tokenizer.decode,
        )
        return Encoded(ids=encoded.ids[: encoded.offsets[-2]], offsets=encoded.offsets[:-1])

    def _grow_ids(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        self._grow("ids", ids)
        self._grow("offsets", lengths)
        if self._plan.deduplicate:
            self._grow("hashes", _content_hashes(ids, lengths))

    def _grow(self, name: str, array: np.ndarray) -> None:
        self._parts.setdefault(name, []).append(array)

    def arrays(self) -> Arrays:
        """Return everything, end to end."""
        arrays = {
            "ids": self._joined("ids", self._dtype),
            "offsets": _offsets(self._joined("offsets", OFFSET)),
        }
        if self._plan.is_chat:
            arrays["turns"] = self._joined("turns", TURN)
            arrays["turn_offsets"] = _offsets(self._joined("turn_offsets", OFFSET))
        if self._plan.provenance:
            arrays["origins"] = self._joined("origins", ORIGIN)
            arrays["strings"] = self._joined("strings", np.dtype(np.uint8))
        if self._plan.deduplicate:
            arrays["hashes"] = self._joined("hashes", HASH)
        return arrays

    def _joined(self, name: str, dtype: np.dtype) -> np.ndarray:
        parts = self._parts.get(name)
        # Left to itself numpy would pack the records of TURN.
        return np.concatenate(parts, dtype=dtype) if parts else np.empty(0, dtype)


def _stretch(texts: Sequence[str], batch: Sequence[Record]) -> tuple[int, str]:
    """Return a stretch of one text and the text's number, chosen by the first provenance."""
    key = derive_key("sample", str(batch[0].provenance))
    number = key % len(texts)
    start = key % max(1, len(texts[number]) - SAMPLE_CHARACTERS)
    return number, texts[number][start : start + SAMPLE_CHARACTERS]


def _text(record: Record) -> str:
    if record.text is None:
        raise InputError(
            "the source gives objects, not documents",
            where=str(record.provenance),
            remedy="build with chat=True (--chat), or name the field of the text (text_key)",
        )
    return record.text


def _value(record: Record) -> object:
    if record.value is None:
        raise InputError(
            "the source gives documents, not chats",
            where=str(record.provenance),
            remedy="leave out chat=True (--chat), or text_key",
        )
    return record.value


def _num_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _with_ends(ids: np.ndarray, offsets: np.ndarray, end_id: int) -> np.ndarray:
    """Return the ids with one more at the end of each document."""
    ended = np.empty(len(ids) + len(offsets) - 1, ids.dtype)
    ends = offsets[1:] + np.arange(len(offsets) - 1)
    is_text = np.ones(len(ended), bool)
    is_text[ends] = False
    ended[is_text] = ids
    ended[ends] = end_id
    return ended


def _offsets(lengths: np.ndarray) -> np.ndarray:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _content_hashes(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Hash the ids of each document: equal text and structure, equal hash."""
    offsets = _offsets(lengths).tolist()
    data = ids.data
    hashes = [
        hashlib.blake2b(data[start:stop], digest_size=HASH.itemsize).digest()
        for start, stop in pairwise(offsets)
    ]
    return np.frombuffer(b"".join(hashes), HASH)
