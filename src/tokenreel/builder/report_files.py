"""The report of a build: kept in the manifest, and shown beside the store in two files.

The manifest's notes have it from the moment the store exists. The files come after it,
so a build that is killed in between lacks them: the same build, run again, finds its
store finished and writes them from there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokenreel.builder.samples import samples_of
from tokenreel.canonical import digest
from tokenreel.errors import TokenreelError
from tokenreel.filesystem import LOCAL
from tokenreel.layouts.open_store import open_store
from tokenreel.store.build_folder import BUILD_FOLDER, PLAN_NAME
from tokenreel.store.lock import BuildLock
from tokenreel.store.manifest import MANIFEST_NAME, read_manifest
from tokenreel.store.store import Store
from tokenreel.text.tokenizers import Tokenizer

logger = logging.getLogger(__name__)

REPORT_NOTE = "report"
PAGE_NAME = "report.html"
REPORT_NAME = "report.json"


def finished_build(path: Path, wanted: Mapping[str, Any]) -> Store | None:
    """Return the store at `path` if it was built with these facts, None if there is no such."""
    if not (path / MANIFEST_NAME).is_file():
        return None
    store = open_store(path, layout="native")
    if store.manifest is None or REPORT_NOTE not in store.manifest.notes:
        return None
    facts = store.manifest.facts
    if any(digest(getattr(facts, name)) != digest(value) for name, value in wanted.items()):
        return None
    _tidy(path / BUILD_FOLDER)
    return store


def _tidy(folder: Path) -> None:
    """Remove what a build leaves that is killed after its store has come to exist."""
    if folder.is_dir():
        lock = BuildLock(folder / "lock", filesystem=LOCAL)
        LOCAL.discard(folder / PLAN_NAME)
        lock.release()
        LOCAL.remove_dir(folder)


def report_of(store: Store) -> dict[str, Any]:
    """Return the report of the build that made a store."""
    notes = {} if store.manifest is None else store.manifest.notes
    return dict(notes[REPORT_NOTE])


def report_beside(path: Path, store: Store, *, tokenizer: Tokenizer) -> None:
    """Write the files beside a finished store where they are not there and of this very store.

    The store exists, whatever comes of them: a failure is a warning, and the next run of the
    same build tries again.
    """
    if is_reported(path):
        return
    report = {"path": str(path), "fingerprint": store.fingerprint, **report_of(store)}
    try:
        write_report(path, report, tokenizer=tokenizer)
    except Exception as error:  # among them all that a tokenizer of others may raise
        logger.warning(
            "%s: the store is finished, but its %s could not be written: %s",
            path,
            PAGE_NAME,
            error,
        )


def is_reported(path: Path) -> bool:
    """Tell whether the files beside the store at `path` are there and of this very store."""
    try:
        said = json.loads((path / REPORT_NAME).read_bytes())
        return bool(said["fingerprint"] == read_manifest(path / MANIFEST_NAME).fingerprint)
    except (OSError, ValueError, LookupError, TypeError, TokenreelError):
        return False


def write_report(path: Path, report: Mapping[str, Any], *, tokenizer: Tokenizer) -> None:
    """Write both files, report.json last: where it is, the page is too."""
    from tokenreel.builder.page import report_page  # a build begins without it

    store = open_store(path, layout="native")
    manifest = path / MANIFEST_NAME
    # When the store came to exist, whenever it is reported on.
    built = datetime.fromtimestamp(manifest.stat().st_mtime, UTC)
    page = report_page(
        f"{path.absolute().name}: how it was built",
        report,
        facts=read_manifest(manifest).facts.as_json(),
        date=f"{built:%Y-%m-%d %H:%M:%S} UTC",
        samples=samples_of(store, tokenizer),
    )
    LOCAL.write_whole(path / PAGE_NAME, page.encode("utf-8", "replace"))
    LOCAL.write_whole(path / REPORT_NAME, json.dumps(report, indent=2).encode() + b"\n")
