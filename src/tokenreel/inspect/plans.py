"""The plans that are kept of a store, checked byte by byte."""

from __future__ import annotations

from pathlib import Path

from tokenreel.errors import StoreError
from tokenreel.filesystem import TEMPORARY_SUFFIX
from tokenreel.rows.plan_cache import FOLDER, plan_folders
from tokenreel.rows.plan_file import HEADER, check_plan, read_header
from tokenreel.store.store import Store


def plan_problems(root: Path) -> list[StoreError]:
    """Return what is wrong with the plans in a store's folder; unfinished ones are no plans."""
    return [problem for folder in _plans(root / FOLDER) for problem in check_plan(folder)]


def store_plan_problems(store: Store) -> list[StoreError]:
    """Do the same for a store of any layout, and for its plans in the user's cache folder."""
    beside, cache = plan_folders(store)
    mine = [folder for folder in _plans(cache) if _is_of(folder, store)]
    problems = [problem for folder in mine for problem in check_plan(folder)]
    return plan_problems(beside.parent) + problems


def _plans(folder: Path) -> list[Path]:
    headers = sorted(folder.glob(f"*/{HEADER}"))
    return [h.parent for h in headers if not h.parent.name.endswith(TEMPORARY_SUFFIX)]


def _is_of(folder: Path, store: Store) -> bool:
    """Whether a plan among those of all stores is of this one; a damaged header does not say."""
    try:
        return bool(read_header(folder)["fingerprint"] == store.fingerprint)
    except (StoreError, KeyError):
        return False
