"""Measure, compare, print, record.

A figure counts as a ratio to something measured in the same run, interleaved
with it; absolute numbers are printed for orientation and do not travel.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured figure; `target` and `met` are about the ratio, or about the value."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    target: str = ""
    met: bool | None = None


def at_least(name: str, value: float, unit: str, *, baseline: float | None, target: float) -> Row:
    """Make a row whose ratio to `baseline` (or value, if None) must reach `target`."""
    ratio = None if baseline is None else value / baseline
    met = bool((value if ratio is None else ratio) >= target)
    return Row(name=name, value=value, unit=unit, ratio=ratio, target=f">= {target:g}", met=met)


def at_most(name: str, value: float, unit: str, *, target: float) -> Row:
    """Make a row whose value must stay within `target`."""
    return Row(
        name=name, value=value, unit=unit, target=f"<= {target:g}", met=bool(value <= target)
    )


def best_seconds(
    jobs: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Run the jobs in turn, `rounds` times, and return the best time of each in seconds.

    `clock` time.process_time suits jobs of one thread on a machine that others use too.
    """
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            begin = clock()
            job()
            best[name] = min(best[name], clock() - begin)
    return best


ONE_CORE = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}


def rows_of_process(module: str) -> list[Row]:
    """Run a module in a process held to one thread and return the rows it prints as JSON."""
    output = subprocess.run(
        [sys.executable, "-m", module],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ONE_CORE},
    ).stdout
    return [Row(**row) for row in json.loads(output.splitlines()[-1])]


def machine() -> dict[str, object]:
    """Say what was measured on, without naming the machine."""
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def report(title: str, rows: list[Row], json_path: Path | None) -> None:
    """Print the rows as a table and write them as JSON where asked."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for column in ("name", "value", "unit", "ratio", "target", "met"):
        table.add_column(column, justify="left" if column in ("name", "unit") else "right")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        met = "" if row.met is None else ("yes" if row.met else "NO")
        table.add_row(row.name, f"{row.value:,.4g}", row.unit, ratio, row.target, met)
    Console(width=120).print(table)
    if json_path is not None:
        text = json.dumps({"machine": machine(), "rows": [asdict(row) for row in rows]}, indent=2)
        json_path.write_text(text + "\n")
