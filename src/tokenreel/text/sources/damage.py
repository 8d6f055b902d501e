"""The error for a compressed file that cannot be read to its end."""

from __future__ import annotations

from pathlib import Path

from tokenreel.errors import InputError


def damaged(path: Path, what: str, byte: int) -> InputError:
    """Return the error that names the fault and its offset in the compressed file."""
    return InputError(
        f"{what}, at byte {byte:,} of the compressed file",
        where=path,
        expected="a complete compressed file and nothing after it",
        remedy="fetch or compress the file again",
    )
