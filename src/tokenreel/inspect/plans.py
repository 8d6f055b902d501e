"""The plans that are kept beside a store, checked byte by byte."""

from __future__ import annotations

from pathlib import Path

from tokenreel.errors import StoreError
from tokenreel.rows.plan_cache import FOLDER
from tokenreel.rows.plan_file import HEADER, check_plan
from tokenreel.store.filesystem import TEMPORARY_SUFFIX


def plan_problems(root: Path) -> list[StoreError]:
    """Return what is wrong with the plans in a store's folder; unfinished ones are no plans."""
    headers = sorted((root / FOLDER).glob(f"*/{HEADER}"))
    return [
        problem
        for header in headers
        if not header.parent.name.endswith(TEMPORARY_SUFFIX)
        for problem in check_plan(header.parent)
    ]
