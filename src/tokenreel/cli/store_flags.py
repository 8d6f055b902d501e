"""The declarations of `open_store` as options: what a layout does not say of itself."""

from __future__ import annotations

import argparse
from typing import Any

from tokenreel.layouts.open_store import LAYOUTS
from tokenreel.store.open_options import FOREIGN_DTYPES


def add_open_options(parser: argparse._ActionsContainer) -> None:
    """Add the declarations that `open_store` takes."""
    parser.add_argument(
        "--layout",
        choices=[module.NAME for module in LAYOUTS],
        help="take the folder for this layout instead of recognising it",
    )
    parser.add_argument(
        "--dtype", choices=FOREIGN_DTYPES, help="token dtype of a layout that does not declare it"
    )
    parser.add_argument(
        "--vocab-size", type=int, help="vocabulary of a layout that does not say it"
    )
    parser.add_argument(
        "--eos-id", type=int, metavar="ID", help="find documents by this end token, once"
    )
    parser.add_argument(
        "--file-pattern", metavar="GLOB", help='which files of a flat folder are shards: "*.npy"'
    )


def open_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return what was declared, as keywords of `open_store`."""
    names = ("layout", "dtype", "vocab_size", "eos_id", "file_pattern")
    return {name: getattr(args, name) for name in names}
