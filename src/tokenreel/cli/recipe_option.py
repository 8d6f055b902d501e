"""The arguments of every command that reads a recipe."""

from __future__ import annotations

import argparse

from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Add the recipe file and settings that override it."""
    parser.add_argument("recipe", help="a recipe in TOML, YAML or XML")
    add_overrides(parser)


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add settings that override those of a recipe."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting, e.g. seed=3 or sources.web.weight=0.5 (may be repeated)",
    )


def open_feed(args: argparse.Namespace) -> Feed:
    """Open the feed of the recipe."""
    return Feed(Recipe.read(args.recipe, overrides=args.set))
