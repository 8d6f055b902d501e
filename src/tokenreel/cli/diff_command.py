"""tokenreel diff A B: did a change alter the data, and where first?"""

from __future__ import annotations

import argparse
from typing import Any

from tokenreel.cli.diff_drawing import Shown, draw
from tokenreel.cli.output import emit, report_error
from tokenreel.cli.spoken import for_command
from tokenreel.cli.store_flags import add_open_options, open_options
from tokenreel.cli.tokenizer_option import add_tokenizer
from tokenreel.errors import ConfigError, TokenreelError
from tokenreel.feed.feed import Feed
from tokenreel.inspect.comparison import Comparison, compare
from tokenreel.inspect.first_step import DEFAULT_STEPS
from tokenreel.inspect.row_context import Sides, decoder, sides_of_rows
from tokenreel.inspect.step_comparison import StepComparison, compare_step
from tokenreel.inspect.store_comparison import DEFAULT_TOKENS
from tokenreel.inspect.targets import Target, open_target
from tokenreel.layouts.open_store import open_store
from tokenreel.progress import bars
from tokenreel.store.store import Store

EPILOG = """\
A and B are two recipes (TOML, YAML, XML) or states of feeds (JSON of what state_dict() returned),
in any combination; two stores, native or of another layout; or two states of streams (JSON of what
get_state() returned). Microbatches, ranks, paths and how stores are read alter no batch: they are
listed apart.

exit codes: 0 no batch differs (or, with --step, not that of the step); 1 one differs, or the
identities do and the steps searched do not show that no batch does; 2 something could not be
read or compared."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("a", metavar="A", help="a recipe, a state, or a store")
    parser.add_argument("b", metavar="B", help="another")
    parser.add_argument(
        "--step",
        type=int,
        help="compare this step, instead of searching for the first that differs",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=DEFAULT_STEPS,
        help="how many steps to compare, at most, behind those that cannot differ "
        f"(default {DEFAULT_STEPS:,})",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=DEFAULT_TOKENS,
        help="of stores: how many tokens of a split to compare, at most "
        f"(default {DEFAULT_TOKENS:,})",
    )
    parser.add_argument(
        "--store",
        action="append",
        default=[],
        metavar="PATH",
        help="a store that the batches of a state are made of (may be repeated)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a setting of the second recipe, e.g. seed=3 (may be repeated)",
    )
    add_tokenizer(parser, purpose="show the text of what differs")
    add_open_options(parser.add_argument_group("stores of another layout"))
    parser.epilog = EPILOG


def run(args: argparse.Namespace) -> int:
    """Compare both, print what differs, and return 0, 1 or 2, as the program diff does."""
    try:
        return _run(args)
    except ConfigError:
        raise  # whose exit code is 2 for every command
    except TokenreelError as error:
        report_error(for_command(error, args.flags), as_json=args.json)
        return 2


def _run(args: argparse.Namespace) -> int:
    a, b = _open(args, args.a, []), _open(args, args.b, args.set)
    stores = [open_store(path) for path in args.store]
    steps = args.steps if args.step is None else 0
    with bars(quiet=args.quiet or args.json) as progress:
        found = compare(
            a, b, stores=stores, max_steps=steps, max_tokens=args.tokens, progress=progress
        )
    decode = decoder(args.tokenizer, _stores(a, b, found), force=args.force_tokenizer)
    step = _at_step(args, found)
    sides: dict[int, Sides] = {}
    if found.feeds is not None and step is not None and step.why is None:
        sides = sides_of_rows(*found.feeds, step, decode)
    shown = Shown(
        titles=(args.a, args.b),
        targets=(a, b),
        comparison=found,
        is_asked=args.step is not None,
        step=step,
        sides=sides,
        decode=decode,
    )
    emit(args, _as_dict(shown), lambda console: draw(console, shown))
    is_same = step.is_same if shown.is_asked and step is not None else found.is_same
    return 0 if is_same else 1


def _open(args: argparse.Namespace, path: str, overrides: list[str]) -> Target:
    options = {name: value for name, value in open_options(args).items() if value is not None}
    return open_target(path, overrides=overrides, **options)


def _stores(a: Target, b: Target, found: Comparison) -> tuple[list[Store], list[Store]]:
    """Return the opened stores of both sides."""
    one, other = found.feeds or (a, b)
    sides = [
        [item] if isinstance(item, Store) else list(item.stores) if isinstance(item, Feed) else []
        for item in (one, other)
    ]
    return sides[0], sides[1]


def _at_step(args: argparse.Namespace, found: Comparison) -> StepComparison | None:
    """Return the comparison of the step that was asked for, else of the first that differs."""
    if found.feeds is None:
        if args.step is None:
            return None
        needs_stores = found.kind == "feeds"
        raise ConfigError(
            "there is no step to compare",
            expected="two recipes, or states whose stores are given",
            actual=found.kind.replace("_", " "),
            remedy="name the stores: store=…" if needs_stores else "leave step out",
        )
    step = args.step
    if step is None and found.search is not None:
        step = found.search.first_step
    return None if step is None else compare_step(*found.feeds, step)


def _as_dict(shown: Shown) -> dict[str, Any]:
    found: dict[str, Any] = {"titles": list(shown.titles), **shown.comparison.as_dict()}
    if shown.step is not None:
        found["step"] = shown.step.as_dict()
        for row in found["step"]["rows"]:
            one, other = shown.sides.get(row["row"], (None, None))
            row["a"] = None if one is None else one.as_dict()
            row["b"] = None if other is None else other.as_dict()
    return found
