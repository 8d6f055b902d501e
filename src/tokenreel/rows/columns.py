"""Plans as columns: arrays with names, which is all that plans on disk know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from tokenreel.errors import DamageError

T = TypeVar("T")
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns(Generic[T]):
    """The columns of one kind of plan, and the way from the plan to them and back.

    dtypes: by name; a column that no part has is not stored. parts: blocks of a plan as
    arrays that need only be strung together. whole: the plan that all columns are; it
    raises DamageError, naming the path it is given, where they are none.
    """

    dtypes: Mapping[str, np.dtype]
    parts: Callable[[Iterable[T]], Iterator[Arrays]]
    whole: Callable[[Arrays, Path], T]

    def typed_parts(self, blocks: Iterable[T]) -> Iterator[dict[str, np.ndarray]]:
        """Yield the parts in the dtypes they are stored in."""
        for part in self.parts(blocks):
            yield {
                name: values.astype(self.dtypes[name], copy=False) for name, values in part.items()
            }

    def join(self, blocks: Iterable[T]) -> T:
        """Return the plan that all blocks together are, in memory."""
        parts = list(self.typed_parts(blocks))
        names = [name for name in self.dtypes if any(name in part for part in parts)]
        columns = {
            name: np.concatenate([part[name] for part in parts if name in part]) for name in names
        }
        return self.whole(columns, Path("memory"))


def check_equal_lengths(columns: Arrays, names: Iterable[str], *, where: Path) -> None:
    """Raise DamageError unless these columns are there, not empty and of one length."""
    counts = {name: len(columns[name]) if name in columns else 0 for name in names}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise no_plan(counts, where=where, expected="one row or more, in every column as many")


def no_plan(counts: Mapping[str, int], *, where: Path, expected: str) -> DamageError:
    """Return the error of columns that are no plan."""
    return DamageError(
        "the columns make no table",
        where=where,
        expected=expected,
        actual=", ".join(f"{name} {count:,}" for name, count in counts.items()),
        remedy="plan again",
    )


def leads_nowhere(folder: Path | None, name: str) -> DamageError:
    """Return the error of a row whose entry in a column cannot be."""
    if folder is None:
        return DamageError(f"a row of the plan leads nowhere: {name}")
    return DamageError(
        "a row of the plan leads nowhere",
        where=folder / name,
        remedy=f"remove the folder {folder.parent.name}/{folder.name}: "
        "the plan is made again when it is needed",
    )
