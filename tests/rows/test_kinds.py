"""A kind of row is a module and a list entry; a plan is data that is looked up in."""

from __future__ import annotations

import re
import shutil
import typing
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
from mypy import api
from tests.feed.making import check_ledger, recipe_of, write_store
from tests.feed.test_row_maker import arrays_of, noise
from tests.rows.planning import plan_of, rows_of
from tests.rows.test_pairs import write_groups
from tests.rows.test_prompts import write_prompts

import tokenreel
from tokenreel import Feed, Source, native, open_store
from tokenreel.feed.row_maker import Assembler
from tokenreel.rows.kinds import KINDS, Rows, kinds_with
from tokenreel.rows.pieces import Pieces
from tokenreel.rows.row_plan import KernelTable, RowPlan
from tokenreel.store.split import Split

SOURCE = Path(tokenreel.__file__).parent
NAMES = typing.get_args(Rows)


def test_the_names_that_type_checkers_know_are_those_of_the_kinds() -> None:
    assert tuple(KINDS) == NAMES


def test_mypy_refuses_a_source_of_unknown_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls.py"
    calls.write_text(
        "from tokenreel.feed.recipe import Source\n"
        + "".join(f'Source(name="a", path="a", rows="{name}")\n' for name in (*NAMES, "pakced"))
    )
    monkeypatch.setenv("MYPYPATH", str(SOURCE.parent))
    files = [calls, SOURCE / "feed/recipe.py", SOURCE / "rows/kinds.py"]
    options = ["--follow-imports=skip", "--explicit-package-bases", "--config-file="]
    said, _, _ = api.run([*options, f"--cache-dir={tmp_path}", *map(str, files)])
    found = [line for line in said.splitlines() if "calls.py" in line and "error:" in line]
    assert [int(line.split(":")[1]) for line in found] == [2 + len(NAMES)], said


def test_the_settings_of_a_kind_are_settings_of_a_source() -> None:
    known = {item.name: item.default for item in fields(Source)}
    for kind in KINDS.values():
        for name in kind.settings:
            assert known[name] is None, "what is not given is left to the kind"
            assert kind.name in kinds_with(name)


def test_no_other_room_imports_a_kind() -> None:
    """What a feed, a kernel table or a command knew of a kind would be another place to edit."""
    listed = (SOURCE / "rows" / "kinds.py").read_text()
    kinds = re.findall(r"^from tokenreel\.rows\.(\w+) import \(?[A-Z_]+\b", listed, re.MULTILINE)
    assert {"windows", "episodes", "packed"} <= set(kinds)
    imported = re.compile(
        rf"tokenreel\.rows\.({'|'.join(kinds)})\b|rows import .*\b({'|'.join(kinds)})\b"
    )
    for file in sorted(SOURCE.rglob("*.py")):
        if file.parent != SOURCE / "rows":
            assert not imported.search(file.read_text()), file


@dataclass(frozen=True, kw_only=True)
class Backwards:
    """Rows of another plan from the last to the first: a kind of row that the core has not."""

    plan: RowPlan
    kernel_table: KernelTable | None

    @property
    def split(self) -> Split:
        return self.plan.split

    @property
    def num_rows(self) -> int:
        return self.plan.num_rows

    @property
    def settings(self) -> dict[str, object]:
        return {"rows": "backwards", "version": 1, "of": self.plan.settings}

    @property
    def ledger(self) -> typing.Mapping[str, int]:
        return self.plan.ledger

    @property
    def folder(self) -> Path | None:
        return None

    def pieces(self, rows: np.ndarray) -> Pieces:
        return self.plan.pieces(self.num_rows - 1 - rows)

    def find(self, document: int) -> list[tuple[int, int, int]]:
        found = self.plan.find(document)
        return [(self.num_rows - 1 - row, start, stop) for row, start, stop in found]


@pytest.mark.skipif(native.extension() is None, reason="numpy was asked for")
def test_a_new_kind_of_row_is_fed_with_and_without_a_kernel_table(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [30, 5, 12, 7, 60, 2, 9] * 3, shard_tokens=50)
    source = Source(name="a", path=tmp_path / "s", rows="episodes", shuffle=False)
    feed = Feed(recipe_of(source, seq_len=16))
    plan = feed.plans[0]
    table = plan.kernel_table
    assert table is not None
    turned = tuple(None if column is None else column[::-1] for column in table.columns)
    tables = [None, replace(table, columns=turned)]
    made = []
    for kernel_table in tables:
        rows = Backwards(plan=plan, kernel_table=kernel_table)
        assembler = Assembler([rows], feed.order, deal=feed.deal, seq_len=16, pad_id=0)
        assert (assembler._tables is None) == (kernel_table is None)
        memory = noise(4, 16)
        assembler.fill(1, np.arange(4), memory)
        made.append(arrays_of(memory))
    last = plan.num_rows - 1 - 4  # the first row of step 1, counted from the end
    expected = plan.split.document(plan.pieces(np.array([last])).document[0]).tokens[:16]
    assert made[0]["input_ids"][0, : len(expected)].tolist() == expected.tolist()
    for name, array in made[0].items():
        assert np.array_equal(array, made[1][name]), name


@pytest.mark.parametrize("rows", NAMES)
def test_the_ledger_of_every_kind_adds_up(tmp_path: Path, rows: Rows) -> None:
    lengths = [1] * 12 + [30, 5, 0, 12, 7, 60, 2, 9]
    if rows == "prompts":
        write_prompts(tmp_path / "s", lengths, shard_bytes=180)
    elif rows == "pairs":
        lengths = [max(length, 1) for length in lengths]
        groups = [[(1, length)] * 2 for length in lengths]
        write_groups(tmp_path / "s", groups, shard_bytes=300)
        lengths = [2 * (1 + length) for length in lengths]
    else:
        write_store(tmp_path / "s", lengths, sidecar="turns", shard_tokens=90)
    (plan,) = Feed(recipe_of(Source(name="a", path=tmp_path / "s", rows=rows), seq_len=8)).plans
    check_ledger(plan, sum(lengths), plan.ledger["trained"])


def test_a_plan_is_data_and_copying_it_neither_plans_nor_reads_nor_writes(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [1] * 12 + [30, 5, 12, 7, 60, 2, 9], sidecar="turns")
    store = open_store(tmp_path / "s")
    kinds = ("windows", "document_windows", "episodes")
    plans = [plan_of(store), *(rows_of(store, kind) for kind in kinds)]
    shown = [plan.pieces(np.arange(plan.num_rows)) for plan in plans]
    shutil.rmtree(tmp_path / "s")
    for plan, before in zip(plans, shown, strict=True):
        assert not hasattr(plan, "__post_init__")
        copied = replace(plan, ledger={})
        assert copied.settings == plan.settings and not copied.ledger
        after = copied.pieces(np.arange(copied.num_rows))
        for item in fields(before):
            assert np.array_equal(getattr(after, item.name), getattr(before, item.name))
    assert not (tmp_path / "s").exists()
