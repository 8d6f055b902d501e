"""Try to break a chat template with a tokenizer, and show what breaks it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from tokenreel.cli.output import emit_text
from tokenreel.errors import ConfigError
from tokenreel.text.chats.check import CLAIMS, Finding, check_template
from tokenreel.text.chats.model_template import ModelTemplate
from tokenreel.text.chats.template import Template
from tokenreel.text.chats.templates import BUILT_IN, fitting_template, load_template
from tokenreel.text.tokenizers import load_tokenizer


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "template",
        nargs="?",
        metavar="NAME|FILE",
        help=f"a built-in template ({', '.join(BUILT_IN)}) or a .toml file "
        "(default: the one whose control tokens the tokenizer has)",
    )
    parser.add_argument(
        "--tokenizer", required=True, metavar="SPEC", help="a tokenizer file or folder, or 'byte'"
    )


def run(args: argparse.Namespace) -> int:
    """Check the template; the exit code is 1 if a claim was refuted."""
    tokenizer = load_tokenizer(args.tokenizer)
    named = args.template
    template = fitting_template(tokenizer) if named is None else load_template(named)
    if isinstance(template, ModelTemplate):
        raise ConfigError(
            "check-template tries templates of TOML; a model's own is checked chat by chat",
            where=template.where,
        )
    findings = check_template(template, tokenizer)
    emit_text(args, _as_dict(template, findings), _as_text(template, findings))
    return 1 if findings else 0


def _as_dict(template: Template, findings: Sequence[Finding]) -> dict[str, object]:
    refuted = {finding.claim for finding in findings}
    return {
        "template": template.name,
        "fingerprint": template.fingerprint,
        "ok": not findings,
        "claims": {claim: claim not in refuted for claim in CLAIMS},
        "findings": [finding.as_dict() for finding in findings],
    }


def _as_text(template: Template, findings: Sequence[Finding]) -> str:
    refuted = {finding.claim: finding for finding in findings}
    lines = [f"template {template.name} ({template.fingerprint[:12]})"]
    for claim, meaning in CLAIMS.items():
        finding = refuted.get(claim)
        lines.append(f"  {'BROKEN' if finding else 'holds '}  {claim:<10} {meaning}")
        if finding:
            lines += _counterexample(finding)
    broken = len(findings)
    lines.append(f"{broken} of {len(CLAIMS)} claims broken" if broken else "nothing broke it")
    return "\n".join(lines)


def _counterexample(finding: Finding) -> list[str]:
    # Contents are shown as JSON strings: escapes in them must not reach the terminal.
    said = [
        f"            {message.role}"
        + (f" ({json.dumps(message.name)})" if message.name is not None else "")
        + f": {json.dumps(message.content)}"
        for message in finding.messages
    ]
    return [
        f"          {finding.what}; the chat:",
        *said,
        f"          expected {finding.expected}",
        f"          got      {finding.actual}",
    ]
