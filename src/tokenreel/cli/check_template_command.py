"""tokenreel check-template T --tokenizer K: try to break a template, compare it, show a chat."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenreel.cli.output import emit, printable
from tokenreel.cli.spoken import in_flags
from tokenreel.cli.template_option import add_template_options, template_args
from tokenreel.cli.token_drawing import draw_legend, draw_tokens
from tokenreel.errors import ConfigError, InputError, MissingExtraError
from tokenreel.text.chats import ModelTemplate, Template, by_answer, read_chat, render
from tokenreel.text.chats.check import CLAIMS, Finding, check_template
from tokenreel.text.chats.conversations import CONVERSATIONS, SHOWN
from tokenreel.text.chats.runs import Run, runs_of
from tokenreel.text.chats.template_peer import DIFFERS, Compared, compare, load_peer
from tokenreel.text.chats.templates import BUILT_IN, fitting_template, load_template
from tokenreel.text.tokenizers import load_tokenizer
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer

if TYPE_CHECKING:
    from rich.console import Console


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "template",
        nargs="?",
        metavar="NAME|FILE",
        help=f"a built-in template ({', '.join(BUILT_IN)}), a .toml file, 'model' for the "
        "tokenizer's own, or the folder, tokenizer_config.json or chat_template.jinja of a model "
        "(default: the built-in one whose control tokens the tokenizer has)",
    )
    add_template_options(parser)
    parser.add_argument(
        "--against",
        metavar="FOLDER",
        help="compare with the template and tokenizer of this folder, as transformers loads them "
        "(default: with the same template in transformers, where it can load the tokenizer)",
    )


def run(args: argparse.Namespace) -> int:
    """Check the template; the exit code is 1 if it has a fault, or differs from transformers."""
    tokenizer = load_tokenizer(args.tokenizer)
    template = (
        fitting_template(tokenizer)
        if args.template is None
        else load_template(args.template, tokenizer=args.tokenizer, args=template_args(args))
    )
    findings = check_template(template, tokenizer)
    compared, not_compared = _compared(template, tokenizer, args)
    shown, not_shown = _shown(template, tokenizer)
    is_ok = not any(finding.is_fault for finding in findings)
    is_ok &= not any(one.outcome == DIFFERS for one in compared)
    result = {
        "template": template.name,
        "fingerprint": template.fingerprint,
        "ok": is_ok,
        "claims": {claim: claim not in {f.claim for f in findings} for claim in CLAIMS},
        "findings": [finding.as_dict() for finding in findings],
        "compared": [one.as_dict() for one in compared],
        "not_compared": not_compared,
        "shown": [run.as_dict() for run in shown],
    }

    def draw(console: Console) -> None:
        _draw_claims(console, template, findings)
        _draw_compared(console, compared, not_compared)
        _draw_shown(console, shown, not_shown)

    emit(args, result, draw)
    return 0 if is_ok else 1


def _compared(
    template: Template | ModelTemplate, tokenizer: Tokenizer, args: argparse.Namespace
) -> tuple[list[Compared], str | None]:
    """Return what became of each conversation, or why there is nothing to compare with."""
    try:
        peer = load_peer(template, args.tokenizer, against=args.against)
    except (ConfigError, MissingExtraError) as error:
        if args.against is not None:
            raise
        return [], error.what
    return compare(template, tokenizer, peer), None


def _shown(
    template: Template | ModelTemplate, tokenizer: Tokenizer
) -> tuple[Sequence[Run], str | None]:
    """Return one chat, by the first policy that the template allows, or why there is none."""
    chat, why = read_chat(CONVERSATIONS[SHOWN]), None
    for policy in ("assistant", "last_answer"):
        try:
            chats = by_answer([chat], policy=policy)
            rendered = render(chats, template, tokenizer=tokenizer, policy=policy)
        except InputError as error:
            why = error.what
            continue
        return runs_of(rendered.ids, (rendered.token_weights() > 0).tolist(), tokenizer), None
    return [], why


def _draw_claims(
    console: Console, template: Template | ModelTemplate, findings: Sequence[Finding]
) -> None:
    found = {finding.claim: finding for finding in findings}
    lines = [f"template {printable(template.name)} ({template.fingerprint[:12]})"]
    for claim, meaning in CLAIMS.items():
        finding = found.get(claim)
        status = "holds " if finding is None else "BROKEN" if finding.is_fault else "no    "
        lines.append(f"  {status}  {claim:<10} {meaning}")
        if finding:
            lines += _counterexample(finding)
    broken = sum(finding.is_fault for finding in findings)
    verdict = f"{broken} of {len(CLAIMS)} claims broken" if broken else "nothing broke it"
    if len(findings) > broken:
        verdict += ", but what does not hold needs its remedy"
    lines.append(verdict)
    console.print("\n".join(lines), markup=False)


def _counterexample(finding: Finding) -> list[str]:
    # Contents are shown as JSON strings: escapes in them must not reach the terminal.
    said = [
        f"            {message.role}"
        + (f" ({json.dumps(message.name)})" if message.name is not None else "")
        + f": {json.dumps(message.content)}"
        for message in finding.messages
    ]
    return [
        f"          {printable(finding.what)}" + ("; the chat:" if said else ""),
        *said,
        f"          expected {printable(finding.expected)}",
        f"          got      {printable(finding.actual)}",
        *(
            [f"          remedy: {in_flags(finding.remedy, {'--policy'})}"]
            if finding.remedy
            else []
        ),
    ]


def _draw_compared(
    console: Console, compared: Sequence[Compared], not_compared: str | None
) -> None:
    if not_compared is not None:
        console.print(f"\nnot compared with transformers: {printable(not_compared)}", markup=False)
        return
    lines = ["\nagainst transformers"]
    for one in compared:
        status = "DIFFERS" if one.outcome == DIFFERS else one.outcome
        lines.append(f"  {status:<8}  {one.name:<14} {printable(one.told)}")
        if one.ours:
            lines.append(f"            ours    {' | '.join(map(printable, one.ours))}")
            lines.append(f"            theirs  {' | '.join(map(printable, one.theirs))}")
    differing = sum(one.outcome == DIFFERS for one in compared)
    total = f"{len(compared)} conversations"
    lines.append(f"{differing} of {total} differ" if differing else f"none of {total} differs")
    console.print("\n".join(lines), markup=False)


def _draw_shown(console: Console, shown: Sequence[Run], not_shown: str | None) -> None:
    if not_shown is not None:
        console.print(f"\nno chat is shown: {printable(not_shown)}", markup=False)
        return
    console.print("\none chat:", markup=False)
    draw_tokens(console, shown)
    draw_legend(console)
