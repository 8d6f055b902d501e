"""The account of a build as one self-contained page: no scripts, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse}
td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}td.n{text-align:right}
svg{display:block;margin:.3rem 0}td svg{margin:.45rem 0 0}
svg text{font:12px system-ui,sans-serif;fill:#444}code{font-size:.9em}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}svg text{fill:#bbb}}
"""
COLOURS = {
    "trained": "#2f7d5b",
    "masked": "#8fb8a4",
    "truncated": "#d9a441",
    "dropped": "#b5473c",
}


def report_page(title: str, report: dict[str, Any]) -> str:
    """Return the page of a build's report (what `Account.as_dict` gave, and a few facts)."""
    sections = [
        f"<h1>{escape(title)}</h1>",
        _facts(report),
        "<h2>Where the tokens went</h2>",
        _ledger(report["ledger"]),
        *(_split(name, split) for name, split in report["splits"].items()),
        _reasons("Left out", report["dropped"]),
        _reasons(
            "Skipped while reading",
            {reason: {"documents": count} for reason, count in report["skipped"].items()},
        ),
        _places(report["skipped_places"]),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>{''.join(sections)}</body></html>\n"
    )


def _facts(report: dict[str, Any]) -> str:
    per_token = report["bytes_per_token"]
    facts = {
        "documents read": f"{report['documents']:,}",
        "text": f"{report['text_bytes']:,} bytes",
        "bytes per token": "–" if per_token is None else f"{per_token:.2f}",
        "tokenizer engine": ", ".join(report["tokenizer_engines"]),
        "fingerprint": report.get("fingerprint", "–"),
    }
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items()
    )
    return f"<table>{rows}</table>"


def _ledger(ledger: dict[str, int]) -> str:
    """Draw one bar of the whole, divided; the table under it has the numbers."""
    total = max(ledger["total"], 1)
    parts, rows, left = [], [], 0.0
    for name, colour in COLOURS.items():
        width = 800 * ledger[name] / total
        parts.append(
            f'<rect x="{left:.1f}" y="0" width="{width:.1f}" height="28" fill="{colour}"/>'
        )
        left += width
        share = 100 * ledger[name] / total
        rows.append(
            f'<tr><td><svg width="12" height="12"><rect width="12" height="12" fill="{colour}"/>'
            f'</svg></td><td>{name}</td><td class="n">{ledger[name]:,}</td>'
            f'<td class="n">{share:.2f} %</td></tr>'
        )
    bar = f'<svg viewBox="0 0 800 28" width="100%" role="img">{"".join(parts)}</svg>'
    total_row = f'<tr><td></td><td>total</td><td class="n">{ledger["total"]:,}</td></tr>'
    return f"{bar}<table>{''.join(rows)}{total_row}</table>"


def _split(name: str, split: dict[str, Any]) -> str:
    return (
        f"<h2>{escape(name)}: {split['documents']:,} documents, {split['tokens']:,} tokens</h2>"
        f"<p>tokens per document</p>{_histogram(split['histogram'])}"
    )


def _histogram(buckets: Sequence[dict[str, int]]) -> str:
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
            f'<rect x="160" y="{y + 3}" width="{width:.1f}" height="15" fill="#4c78a8"/>'
            f'<text x="{168 + width:.1f}" y="{y + 15}">{count:,}</text>'
        )
    height = 22 * max(len(buckets), 1)
    return f'<svg viewBox="0 0 800 {height}" width="100%" role="img">{"".join(lines)}</svg>'


def _reasons(title: str, reasons: dict[str, dict[str, int]]) -> str:
    if not reasons:
        return ""
    rows = "".join(
        f'<tr><td>{escape(reason)}</td><td class="n">{counts["documents"]:,} documents</td>'
        f'<td class="n">{counts["tokens"]:,} tokens</td></tr>'
        if "tokens" in counts
        else f'<tr><td>{escape(reason)}</td><td class="n">{counts["documents"]:,} records</td></tr>'
        for reason, counts in reasons.items()
    )
    return f"<h2>{title}</h2><table>{rows}</table>"


def _places(places: Sequence[dict[str, Any]]) -> str:
    if not places:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(str(place.get('file', '(memory)')))}</code></td>"
        f'<td class="n">{_line(place)}</td><td>{escape(str(place["reason"]))}</td></tr>'
        for place in places
    )
    head = "<tr><th>file</th><th>line</th><th>reason</th></tr>"
    return f"<p>where, up to a hundred:</p><table>{head}{rows}</table>"


def _line(place: dict[str, Any]) -> str:
    return f"{place['row'] + 1:,}" if "row" in place else "–"
