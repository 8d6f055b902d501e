"""The least a loader of random windows can do: a loop in C over rows that are known beforehand.

No order, no mixture, no checks, compiled for this very processor. Where there is no
compiler there is no such figure.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

SOURCE = r"""
#include <stdint.h>
void gather(const uint16_t *tokens, const int64_t *starts, int64_t rows, int64_t length,
            int64_t *restrict inputs, int64_t *restrict labels) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < length; i++) {
            inputs[r * length + i] = tokens[starts[r] + i];
            labels[r * length + i] = tokens[starts[r] + i + 1];
        }
}
"""


def compile_gather() -> ctypes.CDLL | None:
    """Return the loop, or None where it cannot be compiled."""
    folder = Path(tempfile.mkdtemp(prefix="tokenreel-bench-"))
    library = folder / "gather.so"
    (folder / "gather.c").write_text(SOURCE)
    command = ["cc", "-O3", "-march=native", "-shared", "-fPIC", "gather.c", "-o", library.name]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return ctypes.CDLL(str(library))


def bare_gather(
    library: ctypes.CDLL, tokens: np.ndarray, *, batch: int, length: int, num_batches: int
) -> Callable[[int], None]:
    """Return a job that gathers batches of random windows of uint16 tokens."""
    chance = np.random.default_rng(0)
    starts = chance.integers(0, len(tokens) - length - 1, (num_batches, batch))
    inputs, labels = np.empty((batch, length), np.int64), np.empty((batch, length), np.int64)
    into = (ctypes.c_void_p(inputs.ctypes.data), ctypes.c_void_p(labels.ctypes.data))
    source = ctypes.c_void_p(tokens.ctypes.data)
    rows = [ctypes.c_void_p(row.ctypes.data) for row in starts]
    shape = (ctypes.c_int64(batch), ctypes.c_int64(length))

    def gather(number: int) -> None:
        library.gather(source, rows[number], *shape, *into)

    gather.held = (starts, inputs, labels)  # type: ignore[attr-defined]
    return gather
