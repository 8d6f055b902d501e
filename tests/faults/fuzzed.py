"""What a fuzz test gives to a parser, damaged inputs and what reads them, and the run itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.faults.damaging import damaged_bytes
from tests.feed.making import scratch

from tokenreel.errors import TokenreelError
from tokenreel.text.tokenizers import byte_tokenizer

Strategy = st.SearchStrategy[Any]
BYTES = byte_tokenizer(["<|im_start|>", "<|im_end|>"])


@dataclass(frozen=True, kw_only=True)
class Target:
    """What is drawn, and what reads it."""

    inputs: Strategy
    use: Callable[[Any], object]


Maker = Callable[[Path], Target]


def file_target(
    path: Path,
    use: Callable[[], object],
    damage: Callable[[bytes], Strategy] = damaged_bytes,
) -> Target:
    """Damage one file, use it, and put it back."""
    whole = path.read_bytes()

    def damaged_use(data: bytes) -> None:
        path.write_bytes(data)
        try:
            use()
        finally:
            path.write_bytes(whole)

    return Target(inputs=damage(whole), use=damaged_use)


def as_mapping(value: Any) -> dict[str, Any]:
    """Return a mapping as it is, and anything else as the seed of one."""
    return value if isinstance(value, dict) else {"seed": value}


@contextmanager
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)  # a warning for each damaged plan
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def fuzz(make: Maker, examples: int) -> None:
    """Give a parser so many damaged inputs; anything but a TokenreelError comes out of here."""

    def run(target: Target) -> None:
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(target.inputs)
        def refused_or_read(value: Any) -> None:
            with suppress(TokenreelError):
                target.use(value)

        refused_or_read()

    with scratch() as folder, quiet():
        run(make(folder))
