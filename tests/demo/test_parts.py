"""What the demo shows it has found out: runs are compared, killed and resumed for real."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tokenreel import Feed, StoreWriter
from tokenreel.demo.comparison import TOLERANCE, Comparison
from tokenreel.demo.corpus import MAX_ANSWER, docstring_chats, write_documents
from tokenreel.demo.run import Run
from tokenreel.demo.step_record import Trained, read_steps, row_digests
from tokenreel.errors import WorkerError
from tokenreel.progress import SILENT
from tokenreel.torch import Tensors

RECIPE = """
seq_len = 16
global_batch_size = 4
seed = 3
steps = {steps}
[[sources]]
name = "a"
path = "store"
rows = "packed"
"""


def write_recipe(folder: Path, *, steps: int) -> Path:
    if not (folder / "store").exists():
        with StoreWriter(folder / "store", vocab_size=40) as writer:
            for number in range(160):  # each counts on from somewhere: a model can learn that
                writer.add([(number + k) % 40 for k in range(3 + number % 9)])
    (folder / "recipe.toml").write_text(RECIPE.format(steps=steps))
    return folder / "recipe.toml"


@pytest.mark.soak
def test_a_killed_run_goes_on_with_two_ranks_and_the_feeds_own_rows(tmp_path: Path) -> None:
    with Run(write_recipe(tmp_path, steps=10_000), tmp_path / "run", world_size=1) as run:
        run.watch(SILENT, start=0, stop=14)
        run.kill()
        killed = run.steps()
    stop = len(killed) + 4
    with Run(write_recipe(tmp_path, steps=stop), tmp_path / "run", world_size=2) as run:
        run.watch(SILENT, start=0, stop=stop)
        run.wait()
        resumed = run.steps()
    assert sorted(resumed) == list(range(min(resumed), stop))
    assert min(resumed) in range(10, len(killed) + 1, 10)
    feed = Feed(tmp_path / "recipe.toml")
    for part, world_size in ((killed, 1), (resumed, 2)):
        for step, trained in part.items():
            assert trained.world_size == world_size
            assert list(trained.rows) == row_digests(Tensors()(feed.batch(step)))
    for step in killed.keys() & resumed.keys():
        assert abs(killed[step].loss - resumed[step].loss) < TOLERANCE
    assert resumed[stop - 1].loss < killed[0].loss


def test_a_rank_that_fails_is_reported_with_its_reason(tmp_path: Path) -> None:
    with (
        Run(tmp_path / "missing.toml", tmp_path / "run", world_size=1) as run,
        pytest.raises(WorkerError, match=r"(?s)ended early .*exit codes \[1\].*missing\.toml"),
    ):
        run.watch(SILENT, start=0, stop=1)


def test_a_line_that_a_kill_cut_off_is_no_step(tmp_path: Path) -> None:
    (tmp_path / "2-0.jsonl").write_text(
        '{"step": 5, "loss": 2.5, "rows": ["a"]}\n{"step": 6, "loss": 2.4, "rows": ["c"]}\n'
    )
    (tmp_path / "2-1.jsonl").write_text(
        '{"step": 5, "loss": 2.5, "rows": ["b"]}\n{"step": 6, "loss": 2.4, "ro'
    )
    step = Trained(step=5, world_size=2, rows=("a", "b"), loss=2.5)
    assert read_steps(tmp_path, world_size=2) == {5: step}
    assert read_steps(tmp_path, world_size=1) == {}


def test_a_comparison_holds_only_for_the_same_rows_and_near_losses() -> None:
    alone = {
        step: Trained(step=step, world_size=1, rows=(f"{step}a", f"{step}b"), loss=4.0 - step)
        for step in range(3)
    }
    killed = {step: alone[step] for step in (0, 1)}
    resumed = {step: replace(alone[step], world_size=2) for step in (1, 2)}
    assert Comparison(alone=alone, parts=(killed, resumed)).holds()
    assert not Comparison(alone=alone, parts=(killed,)).holds()
    swapped = {**killed, 1: replace(alone[1], rows=("1b", "1a"))}  # trained again later, correctly
    assert not Comparison(alone=alone, parts=(swapped, resumed)).holds()
    far = {**resumed, 2: replace(resumed[2], loss=alone[2].loss + 2 * TOLERANCE)}
    compared = Comparison(alone=alone, parts=(killed, far))
    assert compared.same_batches() and not compared.holds()
    assert compared.loss_gap() == pytest.approx(2 * TOLERANCE)
    wrong = Comparison(alone=alone, parts=(killed, {**resumed, 2: replace(alone[2], rows=("x",))}))
    console = Console(width=80, file=StringIO())
    console.print(wrong.table([0, 2]))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[1].split()[:5] == ["0", "4.00000", "4.00000", "1", "same"]
    assert "differs" in lines[2]


def test_the_corpus_is_the_standard_librarys(tmp_path: Path) -> None:
    path = write_documents(tmp_path / "code.jsonl", limit_bytes=100_000)
    assert 100_000 < path.stat().st_size < 2_000_000
    question, answer = next(docstring_chats())
    assert len(answer["content"]) <= MAX_ANSWER
    assert question["role"] == "user" and question["content"].startswith("What does ")
    assert answer["role"] == "assistant" and answer["content"]


def test_without_torch_the_demo_says_what_to_install_before_it_begins(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from tokenreel.cli.main import main\n"
        "sys.exit(main(['demo']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert "the demo needs the package 'torch', which is not installed" in done.stderr
    assert 'pip install "tokenreel[torch]"' in done.stderr
