"""tokenreel render FILE --template T --tokenizer K --row 3: a chat as the model will see it.

With --pairs a record is a group of answers, shown one by one; with --prompts what a model is to
answer, and the rest of the record. Both are read and rendered as `tokenreel build` does it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenreel.builder.build_settings import BuildSettings
from tokenreel.builder.prompt_items import prompt_value
from tokenreel.canonical import canonical_json
from tokenreel.cli.output import emit, printable
from tokenreel.cli.template_option import add_template_options, template_args
from tokenreel.cli.token_drawing import draw_legend, draw_tokens
from tokenreel.errors import ConfigError
from tokenreel.text.chats import (
    BUILT_IN,
    ModelTemplate,
    Rendered,
    Template,
    by_answer,
    fitting_template,
    load_template,
    read_chat,
    render,
)
from tokenreel.text.chats.group_render import render_groups
from tokenreel.text.chats.preferences import NOT_KEPT, read_group
from tokenreel.text.chats.prompt_render import render_prompts
from tokenreel.text.chats.prompt_shapes import read_prompt
from tokenreel.text.chats.runs import Run, runs_of
from tokenreel.text.sources import open_source
from tokenreel.text.sources.record import Record
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer
from tokenreel.text.turns import answer_begins, roles_of_answers, told_turns

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
        help="which record: the first is 1, as in messages about the file (default: %(default)s)",
    )
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default="assistant",
        help="which turns are trained; each_answer shows a document for each answer "
        "(default: %(default)s)",
    )
    kinds = parser.add_argument_group("what the records are (default: chats)")
    kinds.add_argument("--pairs", action="store_true", help="preferences: chosen, rejected, …")
    kinds.add_argument(
        "--prompts",
        action="store_true",
        help="prompts without targets; by --template or --chat, else plain text",
    )
    kinds.add_argument(
        "--chat",
        action="store_true",
        help="chats; with --prompts: render them by the template that fits the tokenizer",
    )
    kinds.add_argument(
        "--text-key", metavar="TEXT", help="field that holds the chat, the pair or the prompt"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Tokens of a document that are drawn under one title, or under none."""

    title: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A record as it is rendered: its documents, and what is said of it besides."""

    rendered: Rendered
    roles: Sequence[str] = ()  # of the answers of a group
    notes: Sequence[str] = ()
    record: object = None  # what a store keeps beside a prompt

    def parts(self, number: int) -> list[_Part]:
        """Return the parts of a document: the answers of a group, or one."""
        length = len(self.rendered.chat_ids(number))
        if not self.roles:
            count = len(self.rendered)
            title = f"document {number + 1} of {count}:" if count > 1 else ""
            return [_Part(title=title, start=0, stop=length)]
        turns = self.rendered.chat_turns(number)
        begins = turns["start"][answer_begins(turns, np.zeros(len(turns)))].tolist()
        borders = pairwise([*begins, length])
        return [
            _Part(title=f"answer, {role}:", start=start, stop=stop)
            for role, (start, stop) in zip(self.roles, borders, strict=True)
        ]

    def notes_of(self, number: int) -> list[str]:
        """Return what is to be known of a document."""
        unrendered = self.rendered.unrendered
        return [*(unrendered[number] if unrendered else ()), *self.notes]


def run(args: argparse.Namespace) -> int:
    """Render the record and print it."""
    tokenizer = load_tokenizer(args.tokenizer)
    template = _template(args, tokenizer)
    record = _record(args)
    shown = _rendered(args, record, template, tokenizer)
    documents = [_Document(shown, number, tokenizer) for number in range(len(shown.rendered))]
    result = {
        "row": args.row,
        "origin": str(record.provenance),
        "template": None if template is None else template.name,
        "fingerprint": None if template is None else template.fingerprint,
        "documents": [document.as_dict() for document in documents],
    }
    if shown.record is not None:
        result["record"] = shown.record

    def draw(console: Console) -> None:
        trained = sum(document.num_trained for document in documents)
        told = f"{len(shown.rendered.ids):,} tokens, {trained:,} trained"
        way = "without a template" if template is None else f"by {template.name}"
        console.print(printable(f"{record.provenance} {way}: {told}"), markup=False)
        for document in documents:
            document.draw(console)
        if shown.record is not None:
            console.print(f"record {printable(canonical_json(shown.record))}", markup=False)
        draw_legend(console)

    emit(args, result, draw)
    return 0


def _template(args: argparse.Namespace, tokenizer: Tokenizer) -> Template | ModelTemplate | None:
    """Return the template of the record; None for prompts that are plain text, as in a build."""
    # The settings of a build say which of these go together.
    settings = BuildSettings(
        sources=args.file,
        out="",
        tokenizer=args.tokenizer,
        chat=args.chat or not args.prompts,
        pairs=args.pairs,
        prompts=args.prompts,
        policy=args.policy,
        template=args.template,
        template_arg=template_args(args) or None,
    )
    if not settings.is_chat:
        return None
    if args.template is None:
        return fitting_template(tokenizer)
    return load_template(args.template, tokenizer=args.tokenizer, args=template_args(args))


def _rendered(
    args: argparse.Namespace,
    record: Record,
    template: Template | ModelTemplate | None,
    tokenizer: Tokenizer,
) -> _Shown:
    place = record.provenance
    if args.prompts or template is None:  # only prompts have none
        value = prompt_value(record, args.text_key)
        prompt = read_prompt(value, place, key=args.text_key, has_template=template is not None)
        rendered = render_prompts([prompt], template, tokenizer=tokenizer)
        return _Shown(rendered=rendered, record=prompt.rest or None)
    if args.pairs:
        group = read_group(record.value, place)
        return _Shown(
            rendered=render_groups([group], template, tokenizer=tokenizer, policy=args.policy),
            roles=roles_of_answers(group.labels),
            notes=[f"the field {name}{NOT_KEPT}" for name in group.unkept],
        )
    chats = by_answer([read_chat(record.value, place)], policy=args.policy)
    return _Shown(rendered=render(chats, template, tokenizer=tokenizer, policy=args.policy))


def _record(args: argparse.Namespace) -> Record:
    """Return the record in a row of the file."""
    if args.row < 1:
        raise ConfigError("bad row", expected="1 for the first chat, or more", actual=args.row)
    key = None if args.prompts else args.text_key  # beside a prompt all of its record is kept
    source, last = open_source(args.file, text_key=None, chat_key=key), 0
    for part in source.ranges(1 << 62):
        for record in source.read(part):
            place = record.provenance.row
            last = last + 1 if place is None else place + 1
            if last == args.row:
                return record
            if last > args.row:
                break
    raise ConfigError(
        f"no chat in row {args.row:,}",
        where=args.file,
        expected=f"1 to {last:,}",
        actual=args.row,
    )


class _Document:
    """One document of a record: its tokens, and how they are told and drawn."""

    def __init__(self, shown: _Shown, number: int, tokenizer: Tokenizer) -> None:
        rendered = shown.rendered
        self._shown, self._number = shown, number
        self._ids = rendered.chat_ids(number)
        first = int(rendered.offsets[number])
        self._weights = rendered.token_weights()[first : first + len(self._ids)]
        is_trained = (self._weights > 0).tolist()
        self._parts: list[tuple[_Part, list[Run]]] = []
        for part in shown.parts(number):
            inside = slice(part.start, part.stop)
            self._parts.append((part, runs_of(self._ids[inside], is_trained[inside], tokenizer)))

    @property
    def num_trained(self) -> int:
        return int(np.count_nonzero(self._weights > 0))

    def as_dict(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "ids": self._ids.tolist(),
            "weights": self._weights.tolist(),
            "turns": told_turns(self._shown.rendered.chat_turns(self._number)),
            "pieces": [run.as_dict() for _, runs in self._parts for run in runs],
            "unrendered": self._shown.notes_of(self._number),
        }
        if self._shown.roles:
            facts["answers"] = [
                {"role_of_answer": role, "start": part.start, "stop": part.stop}
                for role, (part, _) in zip(self._shown.roles, self._parts, strict=True)
            ]
        return facts

    def draw(self, console: Console) -> None:
        for part, runs in self._parts:
            if part.title:
                console.print(part.title, markup=False)
            draw_tokens(console, runs)
        for what in self._shown.notes_of(self._number):
            console.print(f"note: {printable(what)}", markup=False)
