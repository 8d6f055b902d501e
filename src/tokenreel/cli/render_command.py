"""tokenreel render FILE --template T --tokenizer K --row 3: a chat as the model will see it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from tokenreel.cli.output import emit, printable
from tokenreel.cli.template_option import add_template_options, template_args
from tokenreel.cli.token_drawing import draw_legend, draw_tokens
from tokenreel.errors import ConfigError
from tokenreel.text.chats import (
    BUILT_IN,
    Chat,
    Rendered,
    by_answer,
    fitting_template,
    load_template,
    read_chat,
    render,
)
from tokenreel.text.chats.runs import Run, runs_of
from tokenreel.text.sources import open_source
from tokenreel.text.tokenizers import load_tokenizer
from tokenreel.text.turns import told_turns

if TYPE_CHECKING:
    from rich.console import Console

POLICIES = ("assistant", "last_assistant", "each_answer", "last_answer", "all")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("file", help="a file of chats, as build takes it")
    parser.add_argument(
        "--template",
        metavar="NAME|FILE",
        help=f"a built-in template ({', '.join(BUILT_IN)}), a .toml file, 'model' for the "
        "tokenizer's own, or the folder, tokenizer_config.json or chat_template.jinja of a model "
        "(default: the built-in one whose control tokens the tokenizer has)",
    )
    add_template_options(parser)
    parser.add_argument(
        "--row",
        type=int,
        default=1,
        metavar="N",
        help="which chat: the first is 1, as in messages about the file (default: %(default)s)",
    )
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default="assistant",
        help="which turns are trained; each_answer shows a document for each answer "
        "(default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Render the chat and print it."""
    tokenizer = load_tokenizer(args.tokenizer)
    template = (
        fitting_template(tokenizer)
        if args.template is None
        else load_template(args.template, tokenizer=args.tokenizer, args=template_args(args))
    )
    chat = _chat(args.file, args.row)
    documents = by_answer([chat], policy=args.policy)
    rendered = render(documents, template, tokenizer=tokenizer, policy=args.policy)
    weights = rendered.token_weights()
    shown = []
    for number in range(len(rendered)):
        part = slice(rendered.offsets[number], rendered.offsets[number + 1])
        shown.append(runs_of(rendered.ids[part], (weights[part] > 0).tolist(), tokenizer))
    result = {
        "row": args.row,
        "origin": str(chat.provenance),
        "template": template.name,
        "fingerprint": template.fingerprint,
        "documents": [
            _as_dict(rendered, number, weights, runs) for number, runs in enumerate(shown)
        ],
    }
    emit(args, result, lambda console: _draw(console, chat, template.name, rendered, shown))
    return 0


def _chat(file: str, row: int) -> Chat:
    if row < 1:
        raise ConfigError("bad row", expected="1 for the first chat, or more", actual=row)
    source, last = open_source(file, text_key=None), 0
    for part in source.ranges(1 << 62):
        for record in source.read(part):
            place = record.provenance.row
            last = last + 1 if place is None else place + 1
            if last == row:
                return read_chat(record.value, record.provenance)
            if last > row:
                break
    raise ConfigError(f"no chat in row {row:,}", where=file, expected=f"1 to {last:,}", actual=row)


def _as_dict(
    rendered: Rendered, number: int, weights: np.ndarray, runs: list[Run]
) -> dict[str, object]:
    part = slice(rendered.offsets[number], rendered.offsets[number + 1])
    return {
        "ids": rendered.ids[part].tolist(),
        "weights": weights[part].tolist(),
        "turns": told_turns(rendered.chat_turns(number)),
        "pieces": [run.as_dict() for run in runs],
        "unrendered": list(rendered.unrendered[number]) if rendered.unrendered else [],
    }


def _draw(
    console: Console, chat: Chat, template: str, rendered: Rendered, shown: list[list[Run]]
) -> None:
    trained = sum(len(run.ids) for runs in shown for run in runs if run.is_trained)
    console.print(
        f"{printable(str(chat.provenance))} by {printable(template)}: {len(rendered.ids):,} "
        f"tokens, {trained:,} trained",
        markup=False,
    )
    for number, runs in enumerate(shown):
        if len(shown) > 1:
            console.print(f"document {number + 1} of {len(shown)}:", markup=False)
        draw_tokens(console, runs)
        for what in rendered.unrendered[number] if rendered.unrendered else ():
            console.print(f"note: {printable(what)}", markup=False)
    draw_legend(console)
