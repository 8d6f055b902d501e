"""The one tokenizer class: a definition, a reference, and the engine that does the work.

Promises, for every kind of definition:
- no control id comes out of text: engines are loaded without the control tokens, and
  every id that comes back is checked besides (measured: 4 % of the fastest engine's time);
- the ids of a text are those of the reference, whatever engine, batch size or number
  of threads;
- text that is no text (a lone surrogate) is an InputError that says where;
- it can be sent to another process, which opens the same files again and refuses if
  they have changed; one made from a library's object takes that object's contents along.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from tokenreel import native
from tokenreel.errors import ConfigError, InputError, MismatchError, VocabularyError
from tokenreel.text.tokenizers.end_of_text import DeclaredEnd
from tokenreel.text.tokenizers.engine import Engine, choose_engine
from tokenreel.text.tokenizers.tokenizer_protocol import (
    Encoded,
    as_id_array,
    encode_one,
    join,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

log = logging.getLogger(__name__)

ENGINES = ("auto", "reference")
_MOST_ATTEMPTS = 8
_MOST_RUNS = 8
_CHUNK = 1 << 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a tokenizer is: its ids, its reference, and who may stand in for it.

    `candidates` are loaded in order, when asked for. `decode_text` decodes ids none of
    which is a control id. `words` are further strings that engines may see differently: what
    text is matched with as a whole. `reopen` reads the definition again, in any process.
    `reference_again(n)` is for text that spells the very name a control token was
    hidden under: it hides them under the n-th other names; None where no text can.
    `declared_end` is the end token that the files name; None where they name none.
    `control_strips` are the control tokens that swallow blanks, with whether they do so before
    and behind them. `continued` defines the encoding of text that follows a control token, where
    the beginning of an input is encoded in a way of its own; None where it is not.
    """

    where: str
    fingerprint: str
    vocab_size: int
    control_ids: Mapping[str, int]
    reference: Engine
    decode_text: Callable[[list[int]], str]
    reopen: Callable[[], Definition]
    candidates: Sequence[Callable[[], Engine]] = ()
    words: Sequence[str] = ()
    reference_again: Callable[[int], Engine] | None = None
    declared_end: DeclaredEnd | None = None
    control_strips: Mapping[str, tuple[bool, bool]] = field(default_factory=dict)
    continued: Callable[[], Definition] | None = None


class ReferencedTokenizer:
    """Encode and decode by a definition, at the speed of the best engine that fits it."""

    def __init__(self, definition: Definition, *, engine: str = "auto") -> None:
        if engine not in ENGINES:
            raise ConfigError(
                "no such tokenizer engine", expected=" or ".join(ENGINES), actual=engine
            )
        self._definition = definition
        self._asked_engine = engine
        self._control = np.zeros(definition.vocab_size, bool)
        self._control[list(definition.control_ids.values())] = True
        self._runs = _runs(sorted(definition.control_ids.values()))
        self._names = {number: text for text, number in definition.control_ids.items()}
        self._engine = (
            definition.reference
            if engine == "reference"
            else choose_engine(
                definition.reference,
                definition.candidates,
                spelled=[*definition.control_ids, *definition.words],
            )
        )

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, control ids included."""
        return self._definition.vocab_size

    @property
    def control_ids(self) -> Mapping[str, int]:
        """The control tokens by their strings."""
        return MappingProxyType(dict(self._definition.control_ids))

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over the kind and the bytes of the files that define the ids."""
        return self._definition.fingerprint

    @property
    def declared_end(self) -> DeclaredEnd | None:
        """The end token that the tokenizer's own files name, if they do (end_of_text.py)."""
        return self._definition.declared_end

    @property
    def control_strips(self) -> Mapping[str, tuple[bool, bool]]:
        """Which control tokens swallow the blanks before and behind them."""
        return self._definition.control_strips

    @cached_property
    def continued(self) -> ReferencedTokenizer:
        """The tokenizer of text that follows a control token; mostly this one."""
        continued = self._definition.continued
        if continued is None:
            return self
        return ReferencedTokenizer(continued(), engine=self._asked_engine)

    def offsets(self, text: str, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Return where the tokens of a text begin and end, in characters; None if nobody knows.

        `ids` are those of the text; int64 [tokens] each.
        """
        locate = getattr(self._definition.reference, "locate", None)
        if locate is None:
            return None
        found, starts, stops = locate(text)
        return (starts, stops) if np.array_equal(found, ids) else None

    @property
    def engine(self) -> str:
        """The engine that does the work, for the record: the ids do not depend on it."""
        return "reference" if self._engine is self._definition.reference else self._engine.name

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """Encode each text as ordinary text: no control ids, no added BOS or EOS."""
        return self._encode(self._engine, texts)

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text, encoded as ordinary text; see `encode_batch` for many."""
        return encode_one(self, text)

    def encode_utf8(self, texts: Sequence[bytes]) -> Encoded:
        """Encode as `encode_batch` does, texts that are given as UTF-8 and known to be that."""
        encode = getattr(self._engine, "encode_utf8", None)
        if encode is None:
            return self.encode_batch(_decoded(texts))
        try:
            encoded: Encoded = encode(texts)
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # a panic of a Rust engine is no Exception
            log.info("%s gave up on a batch of UTF-8: %s", self._engine.name, error)
            return self.encode_batch(_decoded(texts))
        if not self._any_control(encoded.ids):
            return encoded
        return self._encode_hidden_names(_decoded(texts), encoded)

    def encode_by_reference(self, texts: Sequence[str]) -> Encoded:
        """Encode as `encode_batch` does, by the implementation that defines the ids."""
        return self._encode(self._definition.reference, texts)

    def decode(self, ids: ArrayLike) -> str:
        """Return the text of the ids, in a list, array or tensor; control ids as their strings."""
        return "".join(self._decoded(as_id_array(ids)))

    def __reduce__(self) -> tuple[object, ...]:
        return _open_again, (self._definition.reopen, self._asked_engine, self.fingerprint)

    def __repr__(self) -> str:
        return (
            f"<tokenizer {self._definition.where}: {self.vocab_size:,} ids, "
            f"{len(self._names)} control, engine {self.engine}, {self.fingerprint[:8]}>"
        )

    def _decoded(self, ids: np.ndarray) -> Iterator[str]:
        outside = np.flatnonzero((ids < 0) | (ids >= self.vocab_size))
        if len(outside):
            raise _outside_vocabulary(self, ids, int(outside[0]))
        start = 0
        for stop in np.flatnonzero(self._control[ids]).tolist():
            if stop > start:
                yield self._definition.decode_text(ids[start:stop].tolist())
            yield self._names[int(ids[stop])]
            start = stop + 1
        if start < len(ids):
            yield self._definition.decode_text(ids[start:].tolist())

    def _encode(self, engine: Engine, texts: Sequence[str]) -> Encoded:
        texts = list(texts)
        try:
            encoded = engine.encode(texts)
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # a panic of a Rust engine is no Exception
            _refuse_what_is_no_text(texts)
            if engine is self._definition.reference:
                raise _not_encodable(engine, texts, error) from error
            log.info("%s gave up on a batch, the reference encodes it: %s", engine.name, error)
            return self._encode(self._definition.reference, texts)
        if not self._any_control(encoded.ids):
            return encoded
        return self._encode_hidden_names(texts, encoded)

    def _encode_hidden_names(self, texts: list[str], encoded: Encoded) -> Encoded:
        parts = [encoded[number] for number in range(len(encoded))]
        again = self._definition.reference_again
        for attempt in range(1, _MOST_ATTEMPTS + 1 if again else 1):
            forged = self._forged(parts)
            if not forged or again is None:
                break
            redone = again(attempt).encode([texts[number] for number in forged])
            for place, number in enumerate(forged):
                parts[number] = redone[place]
        forged = self._forged(parts)
        if forged:
            raise VocabularyError(
                f"a control token came out of text {forged[0]} of the batch",
                where=self._definition.where,
                remedy="the definition gives one id two names; repair it",
            )
        return join(parts)

    def _forged(self, parts: Sequence[np.ndarray]) -> list[int]:
        return [number for number, part in enumerate(parts) if self._any_control(part)]

    def _any_control(self, ids: np.ndarray) -> bool:
        # Control ids mostly are neighbours, at one end of the vocabulary: the smallest and the
        # largest id, found within the cache, are several times faster than looking every id up.
        if len(self._runs) > _MOST_RUNS:
            return bool(self._control[ids].any())
        extension = native.extension()
        if extension is not None and ids.dtype == np.uint32:
            return bool(extension.any_within(np.ascontiguousarray(ids), self._runs))
        return any(
            _any_within(ids[start : start + _CHUNK], self._runs)
            for start in range(0, len(ids), _CHUNK)
        )


def fingerprint_of(kind: str, parts: Mapping[str, bytes]) -> str:
    """Hash the kind and the named contents, each with its length; folders do not count.

    >>> fingerprint_of("byte", {"a": b"1"}) == fingerprint_of("byte", {"a": b"2"})
    False
    """
    digest = hashlib.sha256()
    for text in (kind, *(piece for name in sorted(parts) for piece in (name, parts[name]))):
        data = text.encode() if isinstance(text, str) else text
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _any_within(ids: np.ndarray, runs: np.ndarray) -> bool:
    lowest, highest = int(ids.min()), int(ids.max())
    return any(
        lowest < int(first) + int(length)
        and highest >= int(first)
        and bool((ids - first < length).any())
        for first, length in runs
    )


def _decoded(texts: Sequence[bytes]) -> list[str]:
    return [str(text, "utf-8") for text in texts]


def _runs(ids: Sequence[int]) -> np.ndarray:
    """Return (first, length) of each run of consecutive ids, which are sorted: uint32 [runs, 2]."""
    steps = np.flatnonzero(np.diff(ids) != 1) + 1
    runs = np.split(np.array(ids, np.uint32), steps) if ids else []
    return np.array([(run[0], len(run)) for run in runs], np.uint32).reshape(-1, 2)


def _open_again(
    reopen: Callable[[], Definition], engine: str, fingerprint: str
) -> ReferencedTokenizer:
    definition = reopen()
    if definition.fingerprint != fingerprint:
        raise MismatchError(
            "the tokenizer has changed since it was first opened",
            differing={"fingerprint": (fingerprint, definition.fingerprint)},
            where=definition.where,
        )
    return ReferencedTokenizer(definition, engine=engine)


def _refuse_what_is_no_text(texts: Sequence[object]) -> None:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"text {number} of the batch is no string", actual=type(text).__name__
            ) from None
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"text {number} of the batch holds a lone surrogate "
                f"U+{ord(text[error.start]):04X} at character {error.start:,}",
                remedy="repair or leave out the document: no UTF-8 exists for it",
            ) from None


def _not_encodable(engine: Engine, texts: Sequence[str], error: BaseException) -> InputError:
    for number, text in enumerate(texts):
        try:
            engine.encode([text])
        except Exception as cause:
            return InputError(
                f"the tokenizer cannot encode text {number} of the batch "
                f"({len(text):,} characters): {cause}"
            )
    return InputError(f"the tokenizer cannot encode this batch: {error}")


def _outside_vocabulary(
    tokenizer: ReferencedTokenizer, ids: np.ndarray, place: int
) -> VocabularyError:
    return VocabularyError(
        f"token {place:,} is outside the vocabulary",
        expected=f"0 to {tokenizer.vocab_size - 1:,}",
        actual=int(ids[place]),
    )
