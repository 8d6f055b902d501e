"""What a kind of row offers: its name in a recipe, its settings, and plans that are plain data.

A plan is frozen data with lookups. It is made by a function (`plan_windows`, `plan_episodes`,
`plan_packed`), which may read the store and write to a cache; a plan itself does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from tokenreel.rows.pieces import Pieces
from tokenreel.rows.plan_cache import PlanCache, plan_cache
from tokenreel.store.split import Split
from tokenreel.store.store import Store
from tokenreel.text.turns import roles_of_answers

# The ways in which the kernel looks rows up, by the numbers that native/lookup.c gives them.
BY_WINDOW, BY_DOCUMENT_WINDOW, BY_TABLE, BY_SEGMENT = range(4)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelTable:
    """What the kernel looks the rows of a plan up in.

    lookup: one of the ways above. columns: always four arrays, None where the way has no such.
    num_windows: of the split, rows or not. is_plain: every row is one segment of tokens that all
    weigh 1, so that inputs and labels say all there is; only the last row may be padded.
    """

    lookup: int
    columns: tuple[np.ndarray | None, ...]
    num_windows: int = 0
    is_plain: bool = False


class RowPlan(Protocol):
    """Row numbers to pieces of documents, and back; nothing is dropped after this."""

    @property
    def split(self) -> Split:
        """Where the tokens are."""

    @property
    def num_rows(self) -> int:
        """How many rows there are."""

    @property
    def settings(self) -> dict[str, object]:
        """What the rows depend on besides the store, ready for JSON; `version` among it."""

    @property
    def ledger(self) -> Mapping[str, int]:
        """The account of every token of an epoch; row_ledger.py says what adds up to what."""

    @property
    def folder(self) -> Path | None:
        """Where the plan is stored; None: in memory alone."""

    @property
    def kernel_table(self) -> KernelTable | None:
        """What the kernel makes rows from; None: rows are made piece by piece (row_maker.py)."""

    def pieces(self, rows: np.ndarray) -> Pieces:
        """Return the pieces of the rows with these numbers, int64 [n]; vectorised."""

    def find(self, document: int) -> list[tuple[int, int, int]]:
        """Return (row, start, stop): each row that shows tokens start to stop of a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answers in some rows, in order; each is a segment of its row.

    row_offsets: int64 [rows + 1], row r has answers row_offsets[r] to row_offsets[r + 1]. All
    others [answers]: document int64, the number of its group in the split; length int64, its
    tokens with those of its prompt; label uint8, as in text/turns.py.
    """

    row_offsets: np.ndarray
    document: np.ndarray
    length: np.ndarray
    label: np.ndarray

    def roles(self) -> list[list[str]]:
        """Return what each answer of each row is in its group: its label, or else its rank."""
        return [
            _roles(self.document[first:stop].tolist(), self.label[first:stop].tolist())
            for first, stop in pairwise(self.row_offsets.tolist())
        ]


def _roles(documents: list[int], labels: list[int]) -> list[str]:
    """Return the roles of the answers of one row, in which a group is a run of one document.

    >>> _roles([7, 7, 2, 2, 2], [1, 2, 0, 0, 0])
    ['preferred', 'rejected', 'rank 1 of 3', 'rank 2 of 3', 'rank 3 of 3']
    """
    answers = zip(documents, labels, strict=True)
    groups = groupby(answers, key=lambda answer: answer[0])
    return [role for _, group in groups for role in roles_of_answers([label for _, label in group])]


@runtime_checkable
class GroupPlan(Protocol):
    """A plan whose rows are made of groups of answers: what a RowPlan of such offers besides."""

    def answers(self, rows: np.ndarray) -> Answers:
        """Return the answers of the rows with these numbers, int64 [n]; vectorised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowKind:
    """A kind of row, as kinds.py lists it.

    name: what a recipe calls it. meaning: what help() says after the name. settings: those of a
    recipe's source that concern it; one that no kind names concerns all. plan: called with store,
    split, seq_len and, as keywords, those of the settings that were given. shows_groups: it is of
    stores of groups of answers alone, and they of no other kind. has_targets: its rows have labels;
    False for what a model is to answer.
    """

    name: str
    meaning: str
    settings: tuple[str, ...] = ()
    plan: Callable[..., RowPlan]
    shows_groups: bool = False
    has_targets: bool = True


def survey_cache(store: Store) -> PlanCache | None:
    """Return where to keep what a look at every document found; None where it could be outdated.

    Foreign files are known by a sample of their bytes, and somebody may still change them.
    """
    return None if store.manifest is None else plan_cache(store)
