"""Run benchmarks: `python -m benchmarks store order --json rows.json`, or `all`."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from benchmarks.harness import Row, report

NAMES = (
    *("store", "text", "build", "feed", "adapters", "order", "packing", "stream", "view"),
    "startup",
)


def main() -> None:
    """Run the named benchmarks and report each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="+", choices=(*NAMES, "all"))
    parser.add_argument("--json", type=Path, help="write the rows here as well")
    args = parser.parse_args()
    names = NAMES if "all" in args.names else args.names
    rows: list[Row] = []
    for name in names:
        measured: list[Row] = importlib.import_module(f"benchmarks.{name}").measure()
        report(name, measured, None)
        rows += measured
    if args.json:
        report("all", rows, args.json)


if __name__ == "__main__":
    main()
