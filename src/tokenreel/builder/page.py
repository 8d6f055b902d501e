"""The account of a build as one self-contained page: no scripts, nothing from elsewhere.

The same report, tokenizer and samples give the same page; only the date differs. Whatever comes
from outside (names, reasons, settings, tokens) is escaped, and characters that could rearrange
the page (controls, direction marks) are shown by their number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from tokenreel.builder.chips import chip_row, legend
from tokenreel.builder.file_counts import OTHERS
from tokenreel.builder.page_style import STYLE
from tokenreel.builder.samples import Sample
from tokenreel.display.escaped import printed

LEDGER = ("trained", "masked", "truncated", "dropped")
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
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{printed(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(sections)}</body></html>\n"
    )


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
    rows = [(escape(name), value) for name, value in shown.items() if value]
    return _table(rows, css="facts")


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
    if not settings.get("template"):
        return ""
    policy = settings.get("policy")
    told = policy if isinstance(policy, str) else json.dumps(policy)
    return f"{printed(settings['template'])}, trained: {printed(told)}"


def _ledger(ledger: Mapping[str, int]) -> str:
    """Draw one bar of the whole, divided; the table under it has the numbers."""
    total = max(ledger["total"], 1)
    parts, rows, left = [], [], 0.0
    for name in LEDGER:
        width = 800 * ledger[name] / total
        parts.append(f'<rect class="{name}" x="{left:.1f}" y="0" width="{width:.1f}" height="28"/>')
        left += width
        key = f'<svg width="12" height="12"><rect class="{name}" width="12" height="12"/></svg>'
        rows.append((key, name, f"{ledger[name]:,}", f"{100 * ledger[name] / total:.2f} %"))
    rows.append(("", "total", f"{ledger['total']:,}", ""))
    drawn = f'<svg viewBox="0 0 800 28" class="wide" role="img">{"".join(parts)}</svg>'
    return drawn + _table(rows, numbers=(2, 3))


def _remarks(report: Mapping[str, Any]) -> str:
    """Return the remarks on the text that are no errors: dirt, and chats that train nothing."""
    told = [
        f"{printed(kind)}: in {count:,} records" for kind, count in report.get("dirt", {}).items()
    ]
    if chats := report.get("untrained_chats"):
        noun = "chat trains" if chats == 1 else "chats train"
        told.append(f"{chats:,} {noun} nothing: {printed(report['untrained_reason'])}")
    if not told:
        return ""
    items = "".join(f"<li>{line}</li>" for line in told)
    return f"<h2>To know</h2><ul>{items}</ul>{_places(report.get('dirt_places', ()))}"


def _split(name: str, split: Mapping[str, Any]) -> str:
    return (
        f"<h2>{printed(name)}: {split['documents']:,} documents, {split['tokens']:,} tokens</h2>"
        f"<p>tokens per document</p>{_histogram(split['histogram'])}"
    )


def _histogram(buckets: Sequence[Mapping[str, int]]) -> str:
    most = max((bucket["documents"] for bucket in buckets), default=1)
    lines = []
    for row, bucket in enumerate(buckets):
        low, count = bucket["at_least_tokens"], bucket["documents"]
        high = max(2 * low - 1, low)
        label = f"{low:,}" if low == high else f"{low:,}–{high:,}"
        width = max(520 * count / most, 1)
        y = row * 22
        lines.append(
            f'<text x="150" y="{y + 15}" text-anchor="end">{label}</text>'
            f'<rect class="count" x="160" y="{y + 3}" width="{width:.1f}" height="15"/>'
            f'<text x="{168 + width:.1f}" y="{y + 15}">{count:,}</text>'
        )
    height = 22 * max(len(buckets), 1)
    return f'<svg viewBox="0 0 800 {height}" class="wide" role="img">{"".join(lines)}</svg>'


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
    table = _table(rows, head=head, numbers=(1, 2, 3))
    if len(rows) > OPEN_FILES:
        table = f"<details><summary>{count:,} files</summary>{table}</details>"
    return f"<h2>Source files</h2>{table}"


def _left_out(report: Mapping[str, Any]) -> str:
    dropped = [
        (printed(reason), f"{counts['documents']:,} documents", f"{counts['tokens']:,} tokens")
        for reason, counts in report["dropped"].items()
    ]
    skipped = [
        (printed(reason), f"{count:,} records") for reason, count in report["skipped"].items()
    ]
    shown = f"<h2>Left out</h2>{_table(dropped, numbers=(1, 2))}" if dropped else ""
    if skipped:
        shown += f"<h2>Skipped while reading</h2>{_table(skipped, numbers=(1,))}"
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
    table = _table(rows, head=("file", "line", "what"), numbers=(1,))
    return f"<details><summary>where (the first {len(places):,})</summary>{table}</details>"


def _samples(samples: Sequence[Sample]) -> str:
    if not samples:
        return ""
    shown = "".join(f"<h3>{printed(sample.name)}</h3>{chip_row(sample)}" for sample in samples)
    return f"<h2>Samples</h2>{legend()}{shown}"


def _settings(settings: Mapping[str, Any]) -> str:
    if not settings:
        return ""
    rows = [
        (printed(name), f"<code>{printed(json.dumps(value, ensure_ascii=False))}</code>")
        for name, value in sorted(settings.items())
    ]
    return f"<h2>Settings</h2>{_table(rows)}"


def _table(
    rows: Iterable[Sequence[str]],
    *,
    head: Sequence[str] = (),
    numbers: Sequence[int] = (),
    css: str = "",
) -> str:
    """Return a table of cells that are HTML; `numbers` are the columns set to the right."""
    kinds = ["n" if column in numbers else "" for column in range(9)]

    def line(tag: str, cells: Sequence[str]) -> str:
        drawn = (
            f'<{tag} class="{kind}">{cell}</{tag}>'
            for cell, kind in zip(cells, kinds, strict=False)
        )
        return f"<tr>{''.join(drawn)}</tr>"

    top = line("th", [escape(cell) for cell in head]) if head else ""
    body = "".join(line("td", row) for row in rows)
    return f'<div class="scroll"><table class="{css}">{top}{body}</table></div>'
