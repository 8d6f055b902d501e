"""The folder a build writes into: what is finished there, what is begun, what is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

from tokenreel.builder.given_settings import Made, changes, portable
from tokenreel.builder.report import Account
from tokenreel.builder.report_files import REPORT_NOTE, finished_build
from tokenreel.builder.spill import Spill, remove_half_done
from tokenreel.canonical import digest, read_canonical
from tokenreel.errors import (
    EmptyError,
    ExistsError,
    MismatchError,
    SettingsError,
    TokenreelError,
)
from tokenreel.filesystem import LOCAL
from tokenreel.store.build_folder import BUILD_FOLDER, PLAN_NAME
from tokenreel.store.manifest import MANIFEST_NAME, read_manifest
from tokenreel.store.store import Store
from tokenreel.store.writer import StoreWriter

SPILL_PREFIX = "chunks-"


def by_recorded_name(path: Path, made: Made, *, replace: bool, restart: bool) -> Made:
    """Return what is made, its tokenizer by the name that the build at `path` has recorded for it.

    The name is a fact of a store, but it makes no other store: a file may be renamed, or be
    given as an object, and its fingerprint says that it is the same tokenizer.
    """
    given = made.facts["tokenizer"]
    begun = {} if restart else _tokenizer_begun(path)
    finished = {} if replace else _tokenizer_finished(path)
    for recorded in (begun, finished):
        name = recorded.get("name")
        if recorded.get("fingerprint") == given["fingerprint"] and isinstance(name, str):
            facts = {**made.facts, "tokenizer": {**given, "name": name}}
            return Made(note=made.note, facts=facts)
    return made


def _tokenizer_begun(path: Path) -> Mapping[str, Any]:
    """Return the tokenizer of the unfinished build at `path`; what is damaged is found later."""
    with suppress(TokenreelError, OSError):
        facts = read_canonical(path / BUILD_FOLDER / PLAN_NAME).get("facts")
        tokenizer = facts.get("tokenizer") if isinstance(facts, Mapping) else None
        return tokenizer if isinstance(tokenizer, Mapping) else {}
    return {}


def _tokenizer_finished(path: Path) -> Mapping[str, Any]:
    """Return the tokenizer of the store at `path`; what is damaged is found later."""
    with suppress(TokenreelError, OSError):
        return read_manifest(path / MANIFEST_NAME).facts.tokenizer or {}
    return {}


def finished_store(path: Path, made: Made, *, can_seek: bool) -> Store | None:
    """Return the store at `path` if it is this very build's; refuse another."""
    if not (path / MANIFEST_NAME).is_file():
        return None
    if not can_seek:
        raise ExistsError(
            "a finished store is here, and an iterator does not say whether it gives the same",
            where=path,
            remedy="choose another folder, or pass replace=True",
        )
    if (kept := finished_build(path, made.facts)) is not None:
        return kept
    manifest = read_manifest(path / MANIFEST_NAME)
    report = manifest.notes.get(REPORT_NOTE)
    found = manifest.facts.as_json()
    what = "a finished store is here, which was not built so"
    if isinstance(report, Mapping):
        before = Made(note={"settings": report.get("settings")}, facts=found)
        now = Made(note={"settings": portable(made.note["settings"])}, facts=made.facts)
        if told := changes(before, now).told:
            what = f"a finished store of other settings is here: {told}"
    raise ExistsError(what, where=path, remedy="choose another folder, or pass replace=True")


def open_writer(
    out: str | PathLike[str], made: Made, *, replace: bool, restart: bool
) -> StoreWriter:
    """Open the writer; if another build is unfinished here, say in words what differs."""
    try:
        return StoreWriter(out, **made.facts, note=made.note, replace=replace, restart=restart)
    except MismatchError as error:
        begun: dict[str, Any] = read_canonical(Path(out) / BUILD_FOLDER / PLAN_NAME)
        found = changes(Made(note=begun.get("note") or {}, facts=begun["facts"]), made)
        raise SettingsError(
            "an unfinished build of other settings is here",
            where=error.where,
            differing=found.differing,
            told=found.told,
            remedy="build that one to its end, or pass restart=True to begin anew",
        ) from None


def open_spill(writer: StoreWriter, *, restart: bool) -> Spill:
    """Return the folder of encoded chunks; its name says of which build, so none are mixed up."""
    parent = writer.path / BUILD_FOLDER
    name = f"{SPILL_PREFIX}{digest(writer.facts.as_json())[:16]}"
    for folder in parent.glob(f"{SPILL_PREFIX}*"):
        if restart or folder.name != name:
            LOCAL.remove_tree(folder)
    spill = Spill(parent / name, writer.facts.token_dtype)
    spill.begin()
    return spill


@contextmanager
def keeping_what_is_finished(
    writer: StoreWriter, *, stop: Callable[[BaseException], None]
) -> Iterator[None]:
    """Keep an unfinished build only if it holds finished work from which it can go on.

    `stop` ends the workers because of an error.
    """
    try:
        yield
    except BaseException as error:
        stop(error)  # from here on nobody writes into the folder
        if isinstance(error, EmptyError) or not writer.has_finished_work:
            writer.forget()
        else:
            for folder in (writer.path / BUILD_FOLDER).glob(f"{SPILL_PREFIX}*"):
                remove_half_done(folder)
            if isinstance(error, KeyboardInterrupt):  # the last line of its traceback
                error.add_note(
                    f"{writer.path}: what is encoded is kept; the same call goes on where it was"
                )
        raise


def refuse_empty(account: Account, path: Path) -> None:
    """Raise EmptyError, with what was dropped and skipped, if no split has a token."""
    if any(split.tokens for split in account.splits.values()):
        return
    report = account.as_dict()
    reasons = {reason: counts["documents"] for reason, counts in report["dropped"].items()}
    reasons |= {f"skipped: {reason}": count for reason, count in report["skipped"].items()}
    gone = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    raise EmptyError(
        "nothing is left of the sources, so there is no store",
        where=path,
        expected="at least one token",
        actual=f"{account.documents:,} documents" + (f" ({gone})" if gone else ""),
        remedy="look at the sources and at what is dropped (min_tokens, budgets, on_bad)",
    )
