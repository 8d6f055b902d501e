"""--tokenizer and --template-arg, for commands that render chats."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from tokenreel.text.chats.model_template import parse_argument


def add_template_options(parser: argparse.ArgumentParser) -> None:
    """Add --tokenizer and --template-arg."""
    parser.add_argument(
        "--tokenizer", required=True, metavar="SPEC", help="a tokenizer file or folder, or 'byte'"
    )
    parser.add_argument(
        "--template-arg",
        action="append",
        metavar="NAME=VALUE",
        help="argument of a model's own template, such as enable_thinking=false; repeat for more",
    )


def template_args(args: argparse.Namespace) -> Mapping[str, Any]:
    """Return the arguments of the template by their names."""
    return dict(map(parse_argument, args.template_arg or ()))
