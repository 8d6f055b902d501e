"""The account of a build as one self-contained page: no scripts, nothing from elsewhere.

The same report, tokenizer and samples give the same page; only the date differs. Whatever comes
from outside (names, reasons, settings, tokens) is escaped, and characters that could rearrange
the page (controls, direction marks) are shown by their number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenreel.builder.file_counts import OTHERS
from tokenreel.builder.page_style import STYLE
from tokenreel.builder.report import told_template
from tokenreel.builder.samples import Sample
from tokenreel.display import count_of
from tokenreel.display.escaped import PICTURES, printed
from tokenreel.display.html_page import cells_table, html_page
from tokenreel.display.token_chips import chips_html, legend_html, more_html

# The parts of the ledger, and the words of the page: a token that is masked in the loss is
# context for the model.
LEDGER = {"trained": "trained", "masked": "context", "truncated": "truncated", "dropped": "dropped"}
NEW_LINE = f"{PICTURES[chr(10)]}\n"  # its picture, and the end of the line
OPEN_FILES = 20  # a longer list is folded


def report_page(
    title: str,
    report: Mapping[str, Any],
    *,
    facts: Mapping[str, Any] | None = None,
    date: str | None = None,
    samples: Sequence[Sample] = (),
) -> str:
    """Return the page of a build's report (what `Account.as_dict` gave, and a few facts).

    `facts` are those of the manifest. A report of an older build lacks some parts; so does its
    page.
    """
    sections = [
        f"<h1>{printed(title)}</h1>",
        _facts(report, facts or {}, date),
        "<h2>Where the tokens went</h2>",
        _ledger(report["ledger"]),
        _remarks(report),
        *(_split(name, split) for name, split in report["splits"].items()),
        _files(report.get("files", ())),
        _left_out(report),
        _samples(samples),
        _settings(report.get("settings", {})),
    ]
    return html_page(title, sections, style=STYLE)


def _facts(report: Mapping[str, Any], facts: Mapping[str, Any], date: str | None) -> str:
    per_token = report["bytes_per_token"]
    shown = {
        "built": date,
        "documents read": f"{report['documents']:,}",
        "text": f"{report['text_bytes']:,} bytes",
        "bytes per token": "–" if per_token is None else f"{per_token:.2f}",
        "tokenizer": _tokenizer(report, facts),
        "end of a document": _end_token(report),
        "chat template": _template(report.get("settings", {})),
        "store": f"<code>{printed(report.get('fingerprint', '–'))}</code>",
    }
    rows = [(printed(name), value) for name, value in shown.items() if value]
    return cells_table(rows, css="facts")


def _tokenizer(report: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """Return name, vocabulary, engine and fingerprint of the tokenizer."""
    known = facts.get("tokenizer", {})
    parts = []
    if name := known.get("name"):
        parts.append(printed(name))
    if size := facts.get("vocab_size"):
        control = len(known.get("control_ids", ()))
        parts.append(f"vocabulary of {size:,}, {control:,} of them control tokens")
    parts.append(f"engine: {printed(', '.join(report['tokenizer_engines']) or 'none')}")
    if mark := known.get("fingerprint"):
        parts.append(f"<code>{printed(mark)}</code>")
    return "<br>".join(parts)


def _end_token(report: Mapping[str, Any]) -> str:
    end = report.get("end_token")
    if end is None:
        return "" if report.get("settings", {}).get("chat") else "no token is appended"
    return f"<code>{printed(end['token'])}</code> ({end['id']}), from {printed(end['source'])}"


def _template(settings: Mapping[str, Any]) -> str:
    """Return the chat template with its arguments and date, and what is trained of a chat."""
    template = told_template(settings)
    if not template:
        return ""
    policy = settings.get("policy")
    told = policy if isinstance(policy, str) else json.dumps(policy)
    return f"{printed(template)}; trained: {printed(told)}"


def _ledger(ledger: Mapping[str, int]) -> str:
    """Draw one bar of the whole, divided; the table under it has the numbers."""
    total = max(ledger["total"], 1)
    parts, rows, left = [], [], 0.0
    for name, word in LEDGER.items():
        width = 800 * ledger[name] / total
        parts.append(f'<rect class="{word}" x="{left:.1f}" y="0" width="{width:.1f}" height="28"/>')
        left += width
        key = f'<svg width="12" height="12"><rect class="{word}" width="12" height="12"/></svg>'
        rows.append((key, word, f"{ledger[name]:,}", f"{100 * ledger[name] / total:.2f} %"))
    rows.append(("", "total", f"{ledger['total']:,}", ""))
    drawn = f'<svg viewBox="0 0 800 28" class="wide" role="img">{"".join(parts)}</svg>'
    return drawn + cells_table(rows, numbers=(2, 3))


def _remarks(report: Mapping[str, Any]) -> str:
    """Return the remarks on the text that are no errors: dirt, and chats that train nothing."""
    told = [
        f"{printed(kind)}: in {count_of(count, 'record')}"
        for kind, count in report.get("dirt", {}).items()
    ]
    if chats := report.get("untrained_chats"):
        noun = "chat trains" if chats == 1 else "chats train"
        told.append(f"{chats:,} {noun} nothing: {printed(report['untrained_reason'])}")
    if not told:
        return ""
    items = "".join(f"<li>{line}</li>" for line in told)
    return f"<h2>To know</h2><ul>{items}</ul>{_places(report.get('dirt_places', ()))}"


def _split(name: str, split: Mapping[str, Any]) -> str:
    counts = f"{count_of(split['documents'], 'document')}, {count_of(split['tokens'], 'token')}"
    return (
        f"<h2>{printed(name)}: {counts}</h2>"
        f"<p>tokens per document</p>{_histogram(split['histogram'])}"
    )


def _histogram(buckets: Sequence[Mapping[str, int]]) -> str:
    """Draw a bar for each range of lengths, as long as its part of the page's width."""
    most = max((bucket["documents"] for bucket in buckets), default=1)
    rows = []
    for bucket in buckets:
        low, count = bucket["at_least_tokens"], bucket["documents"]
        high = max(2 * low - 1, low)
        label = f"{low:,}" if low == high else f"{low:,}–{high:,}"
        bar = f'<rect class="count" width="{count / most:.1%}" height="14" rx="2"/>'
        drawn = f'<svg width="100%" height="14" role="img">{bar}</svg>'
        rows.append((label, drawn, f"{count:,}"))
    return cells_table(rows, numbers=(0, 2), css="bars")


def _files(files: Sequence[Sequence[Any]]) -> str:
    if not files:
        return ""
    rows, count = [], 0
    for name, documents, text_bytes, tokens, *num_others in files:
        count += num_others[0] if name == OTHERS else 1
        shown = f"<code>{printed(name)}</code>"
        if name == OTHERS:
            shown = f"and {num_others[0]:,} more"
        rows.append((shown, f"{documents:,}", f"{text_bytes:,}", f"{tokens:,}"))
    head = ("file", "documents", "bytes of text", "tokens")
    table = cells_table(rows, head=head, numbers=(1, 2, 3))
    if len(rows) > OPEN_FILES:
        table = f"<details><summary>{count_of(count, 'file')}</summary>{table}</details>"
    return f"<h2>Source files</h2>{table}"


def _left_out(report: Mapping[str, Any]) -> str:
    dropped = [
        (
            printed(reason),
            count_of(counts["documents"], "document"),
            count_of(counts["tokens"], "token"),
        )
        for reason, counts in report["dropped"].items()
    ]
    skipped = [
        (printed(reason), count_of(count, "record")) for reason, count in report["skipped"].items()
    ]
    shown = f"<h2>Left out</h2>{cells_table(dropped, numbers=(1, 2))}" if dropped else ""
    if skipped:
        shown += f"<h2>Skipped while reading</h2>{cells_table(skipped, numbers=(1,))}"
    return shown + _places(report["skipped_places"])


def _places(places: Sequence[Mapping[str, Any]]) -> str:
    if not places:
        return ""
    rows = [
        (
            f"<code>{printed(place.get('file', '(memory)'))}</code>",
            f"{place['row'] + 1:,}" if "row" in place else "–",
            printed(place["reason"]),
        )
        for place in places
    ]
    table = cells_table(rows, head=("file", "line", "what"), numbers=(1,))
    return f"<details><summary>where (the first {len(places):,})</summary>{table}</details>"


def _samples(samples: Sequence[Sample]) -> str:
    if not samples:
        return ""
    shown = "".join(f"<h3>{printed(sample.name)}</h3>{sample_html(sample)}" for sample in samples)
    return f"<h2>Samples, token by token</h2>{legend_html()}{shown}"


def sample_html(sample: Sample) -> str:
    """Return the chips of a sample, line by line."""
    first, last = (chips_html(chips, newline=NEW_LINE) for chips in (sample.first, sample.last))
    between = ""
    if sample.num_between:
        left = count_of(sample.num_between, "token")
        between = f"\n{more_html(f'… {left} …')}\n"
    return f'<div class="chips">{first}{between}{last}</div>'


def _settings(settings: Mapping[str, Any]) -> str:
    if not settings:
        return ""
    rows = [
        (printed(name), f"<code>{printed(json.dumps(value, ensure_ascii=False))}</code>")
        for name, value in sorted(settings.items())
    ]
    return f"<h2>Settings</h2>{cells_table(rows, css='facts')}"
