"""Fast engines under a slow reference.

The reference implementation of a tokenizer defines the ids. A faster engine does the
work if it gave the same ids on a fixed hostile sample when it was chosen; otherwise,
or if it cannot load the definition, the reference does the work and the log says why.
What is chosen depends on the definition and the installed packages alone, and the ids
on neither. Choosing costs some milliseconds: a few hundred short texts by each engine.

A sample is no proof. Builds and streams therefore compare stretches of their own text with
the reference (checked_encoder.py), and a difference stops them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from tokenreel.errors import MismatchError
from tokenreel.text.tokenizers.hostile import hostile_sample
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded

log = logging.getLogger(__name__)

ONE_THREAD = {"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


class Engine(Protocol):
    """Something that turns ordinary text into ids; control tokens are unknown to it."""

    @property
    def name(self) -> str:
        """What the manifest records, such as "gigatoken 0.10.0"."""

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode each text; the ids of a text do not depend on its neighbours."""


class UnsuitableError(Exception):
    """An engine cannot serve this definition."""


def choose_engine(
    reference: Engine, candidates: Iterable[Callable[[], Engine]], *, spelled: Iterable[str]
) -> Engine:
    """Return the first candidate that encodes the hostile sample as the reference does.

    `spelled` are strings the sample must contain: the control tokens. No thread is started by
    choosing: a process that has one thread can still be forked.
    """
    with one_thread():
        return _choose_engine(reference, candidates, spelled)


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold the libraries that start threads inside the block to one, in new processes too."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _choose_engine(
    reference: Engine, candidates: Iterable[Callable[[], Engine]], spelled: Iterable[str]
) -> Engine:
    sample = hostile_sample(spelled)
    expected: Encoded | None = None
    for load in candidates:
        try:
            engine = load()
            actual = engine.encode(sample)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of a Rust engine is no Exception
            log.info("tokenizer engine not used: %s", str(error).partition("\n")[0])
            continue
        if expected is None:
            expected = reference.encode(sample)
        number = first_difference(expected, actual)
        if number is None:
            return engine
        log.info("%s not used: it encodes %r differently", engine.name, sample[number][:60])
    return reference


def first_difference(expected: Encoded, actual: Encoded) -> int | None:
    """Return the number of the first text whose ids differ, or None."""
    if np.array_equal(expected.offsets, actual.offsets) and np.array_equal(
        expected.ids, actual.ids
    ):
        return None
    pairs = range(min(len(expected), len(actual)))
    return next((n for n in pairs if not np.array_equal(expected[n], actual[n])), len(pairs))


def require_equal(
    expected: Encoded,
    actual: Encoded,
    *,
    names: Sequence[object],
    engine: str,
    decode: Callable[[np.ndarray], str],
) -> None:
    """Raise MismatchError at the first text the engine encodes unlike the reference."""
    number = first_difference(expected, actual)
    if number is None:
        return
    wanted, got = expected[number], actual[number]
    common = min(len(wanted), len(got))
    unequal = np.flatnonzero(wanted[:common] != got[:common])
    token = int(unequal[0]) if len(unequal) else common
    raise MismatchError(
        f"{engine} and the reference encode this document differently, from token {token:,} on "
        f"(character {len(decode(wanted[:token])):,})",
        differing={
            "ids": (wanted[token : token + 5].tolist(), got[token : token + 5].tolist()),
            "tokens": (len(wanted), len(got)),
        },
        where=str(names[number]),
        remedy='build with tokenizer_engine="reference", and report the document',
    )
