"""One view as one file: the page, its styles and scripts, and the answers that it would ask for.

The file needs no server and no network, and its Content-Security-Policy allows nothing but what
is in it: one script and one style sheet, by their hashes. The answers stand in it as JSON, which
nothing runs, under the paths of their questions without parameters; those about a second target
under `path?target=1`. Rows longer than an answer may be are cut there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.feed.feed import Feed
from tokenreel.filesystem import LOCAL
from tokenreel.view.answers import Answers
from tokenreel.view.bundle import bundle_modules
from tokenreel.view.page_files import INDEX, page_files
from tokenreel.view.row_facts import LARGEST_RANGE
from tokenreel.view.store_pages import sample_numbers
from tokenreel.view.subject import Subject

MOST_ROWS = 64
DEFAULT_ROWS = range(8)
ROWS = re.compile(r"([0-9]{0,9}):([0-9]{1,9})|([0-9]{1,9})", re.ASCII)
SHEET = re.compile(r'<link rel="stylesheet" href="static/([\w.-]+)">\n?')
SCRIPT = re.compile(r'<script type="module" src="static/([\w.-]+)"></script>')
ICON = re.compile(r'href="static/([\w.-]+\.svg)"')


def parse_rows(text: str | None) -> range:
    """Return the rows that START:STOP or a single number stand for; None: the first eight.

    >>> parse_rows("4:8"), parse_rows("3")
    (range(4, 8), range(3, 4))
    """
    if text is None:
        return DEFAULT_ROWS
    found = ROWS.fullmatch(text)
    if found is None:
        raise ConfigError("bad rows", expected="START:STOP or one number", actual=repr(text[:60]))
    start = int(found[3] or found[1] or 0)
    stop = start + 1 if found[3] else int(found[2])
    if not 0 < stop - start <= MOST_ROWS:
        raise ConfigError("bad rows", expected=f"1 to {MOST_ROWS} of them", actual=stop - start)
    return range(start, stop)


def export_page(answers: Answers, path: Path, *, rows: range = DEFAULT_ROWS) -> int:
    """Write the view into a file that is there whole or not at all; return its size in bytes."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError("an export is a page", where=path, expected="a name that ends in .html")
    if not path.absolute().parent.is_dir():
        raise ConfigError("there is no such folder", where=path.absolute().parent)
    page = exported_page(dict(exported_answers(answers, rows))).encode("utf-8")
    LOCAL.write_whole(path, page)
    return len(page)


def exported_answers(answers: Answers, rows: range = DEFAULT_ROWS) -> Iterator[tuple[str, Any]]:
    """Yield the questions that the page asks for one view, and their answers."""
    step = answers.first_step
    for number, subject in enumerate(answers.subjects):
        chosen = [row for row in rows if row < _num_rows(subject)]
        if isinstance(subject.target, Feed) and not chosen:
            raise ConfigError(
                "no such rows", expected=f"below {_num_rows(subject):,}", actual=f"{rows.start}"
            )
        about = answers.answer("api/target", _about(number))
        about["exported"] = {"step": step, "rows": chosen}
        yield _key("api/target", number), about
        for path, query in _questions(subject, step, chosen):
            yield _key(path, number), answers.answer(path, [*query, *_about(number)])
    if len(answers.subjects) == 2:
        yield "api/compare", answers.answer("api/compare")
        if all(isinstance(subject.target, Feed) for subject in answers.subjects):
            yield f"api/compare/step/{step}", answers.answer(f"api/compare/step/{step}")


def _about(number: int) -> list[tuple[str, str]]:
    return [("target", str(number))]


def _key(path: str, number: int) -> str:
    return f"{path}?target={number}" if number else path


def _num_rows(subject: Subject) -> int:
    return subject.feed.recipe.global_batch_size if isinstance(subject.target, Feed) else 0


def _questions(
    subject: Subject, step: int, rows: list[int]
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield what is asked of one subject: paths and parameters."""
    whole = [("start", "0"), ("stop", str(LARGEST_RANGE))]
    if subject.kind == "stream_state":
        yield "api/state", []
        return
    if subject.kind == "recipe":
        yield "api/reel", []
        yield f"api/step/{step}", []
        first = [("start", str(rows[0])), ("stop", str(rows[-1] + 1))]
        yield f"api/step/{step}/rows", first
        for row in rows:
            yield f"api/step/{step}/row/{row}", whole
            yield f"api/step/{step}/row/{row}/segments", []
    for number, store in enumerate(subject.stores):
        yield f"api/store/{number}", []
        if subject.kind == "store":
            for place, split in enumerate(store.splits.values()):
                yield from _samples(number, place, split.num_documents, whole)


def _samples(
    store: int, split: int, num_documents: int | None, whole: list[tuple[str, str]]
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for document in sample_numbers(num_documents or 0):
        yield f"api/store/{store}/{split}/document/{document}", whole
    if num_documents is None:
        yield f"api/store/{store}/{split}/tokens", whole


def exported_page(answers: dict[str, Any]) -> str:
    """Return the page with everything that it needs in itself."""
    files = {name: file.content.decode("utf-8") for name, file in page_files().items()}
    page = files[INDEX]
    style = "\n".join(files[name] for name in SHEET.findall(page))
    entry = SCRIPT.search(page)
    if entry is None:
        raise ValueError(f"{INDEX} has no module to begin with")
    script = bundle_modules(files, entry[1])
    for text, end in ((style, "</style"), (script, "</script"), (script, "<!--")):
        if end in text.lower():
            raise ValueError(f"a file of the page spells {end}")
    # `<` in the answers would let a document end the element that they stand in.
    told = json.dumps(answers, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">\n'
        f"<style>{style}</style>\n"
        f'<script type="application/json" id="answers">{told}</script>\n'
        f'<script type="module">{script}</script>'
    )
    page = SHEET.sub("", page)
    page = ICON.sub(lambda found: f'href="{_data_address(files[found[1]])}"', page)
    page = SCRIPT.sub("", page)
    # The policy holds for what stands behind it: it comes first.
    return page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{head}', 1)


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _data_address(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
