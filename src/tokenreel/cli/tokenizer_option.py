"""--tokenizer, which must be that of the store, and --force-tokenizer, which insists."""

from __future__ import annotations

import argparse

REMEDY = "give the tokenizer that it was built with, or insist with --force-tokenizer"


def add_tokenizer(parser: argparse.ArgumentParser, *, purpose: str) -> None:
    """Add both options."""
    parser.add_argument("--tokenizer", help=f"{purpose}; must be that of the store")
    parser.add_argument(
        "--force-tokenizer",
        action="store_true",
        help="take the tokenizer although the store is of another",
    )
