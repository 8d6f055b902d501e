"""The arguments of every command that reads a recipe."""

from __future__ import annotations

import argparse

from tokenreel.feed.feed import Feed


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Add the recipe file."""
    parser.add_argument("recipe", help="a recipe in TOML")


def open_feed(args: argparse.Namespace) -> Feed:
    """Open the feed of the recipe."""
    return Feed(args.recipe)
