"""Every kind of row there is: a new one is a module of this room and an entry in the lists below.

A kind (row_plan.py) says what a recipe calls it, which settings concern it, and how its rows are
planned; its plans say what the kernel looks rows up in. Recipes, feeds and kernel tables know no
kind by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tokenreel.rows.episodes import EPISODES
from tokenreel.rows.packed import PACKED
from tokenreel.rows.pairs import PAIRS
from tokenreel.rows.prompts import PROMPTS
from tokenreel.rows.row_plan import RowKind
from tokenreel.rows.windows import DOCUMENT_WINDOWS, WINDOWS

# The names of the kinds, once more: type checkers read no list. tests/rows/test_kinds.py
# compares the two.
Rows = Literal["windows", "document_windows", "episodes", "packed", "prompts", "pairs"]
KINDS: Mapping[str, RowKind] = {
    kind.name: kind for kind in (WINDOWS, DOCUMENT_WINDOWS, EPISODES, PACKED, PROMPTS, PAIRS)
}


def kinds_with(setting: str) -> tuple[str, ...]:
    """Return the names of the kinds that a setting concerns; none: it is not a kind's own.

    >>> kinds_with("truncation"), kinds_with("weight")
    (('episodes', 'packed', 'prompts', 'pairs'), ())
    """
    return tuple(kind.name for kind in KINDS.values() if setting in kind.settings)
