"""Progress moves while a chunk is encoded, is seen by people, and by nobody else."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.builder.faulty import Faulty
from tests.builder.making import chats, documents, write_jsonl

from tokenreel.builder.build import build
from tokenreel.progress import bars
from tokenreel.text.tokenizers import Encoded

BATCHES = 5
WINDOW_BYTES = 2 << 20  # of one batch


class Slow(Faulty):
    """The byte tokenizer, a moment longer than the bar takes from one drawing to the next."""

    def __init__(self) -> None:
        super().__init__("none")

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """Encode at leisure."""
        time.sleep(0.15)
        return super().encode_batch(texts)


class Counted:
    """Everything that was reported."""

    def __init__(self) -> None:
        self.total: int | None = None
        self.amounts: list[int] = []

    def start(self, task: str, *, total: int | None, unit: str = "") -> None:
        """Begin anew."""
        self.total, self.amounts = total, []

    def advance(self, amount: int = 1) -> None:
        """Keep what was done, if anything was."""
        self.amounts += [amount] if amount else []

    def note(self, text: str) -> None:
        """Drop the words."""


@pytest.fixture(scope="module")
def one_chunk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of several batches that a large chunk_bytes makes one chunk of."""
    text = "all work and no play " * 5000
    rows = [{"text": text}] * (BATCHES * WINDOW_BYTES // len(text))
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "docs.jsonl", rows)


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Make standard error a terminal; what is called afterwards returns what was drawn on it."""
    reader, writer = pty.openpty()
    drawn: list[bytes] = []

    def read() -> None:
        while block := _read(reader):
            drawn.append(block)

    thread = threading.Thread(target=read)
    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        thread.start()
        try:
            yield lambda: b"".join(drawn).decode()
        finally:
            monkeypatch.undo()
    thread.join()
    os.close(reader)


def _read(reader: int) -> bytes:
    try:
        return os.read(reader, 1 << 16)
    except OSError:  # the other side is closed
        return b""


def shares(drawn: str) -> set[int]:
    """The percentages strictly between the ends that were drawn."""
    return {int(share) for share in re.findall(r"(\d+) %", drawn)} - {0, 100}


def test_the_bar_moves_within_a_chunk_that_this_process_encodes(
    one_chunk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    with terminal(monkeypatch) as drawn:
        build(one_chunk, out=tmp_path / "s", tokenizer=Slow(), chunk_bytes=1 << 30)
    text = drawn()
    assert len(shares(text)) >= 3
    assert re.search(r"of 10\.\d MB  [\d.]+ MB/s  0:0\d left", text)
    assert f"{BATCHES * WINDOW_BYTES // 105_000:,} documents" in text


SCRIPT = """
import sys, threading
from tests.builder.test_progress import Slow
from tokenreel.builder.build import build

if __name__ == "__main__":
    if sys.argv[3] == "spawned":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    build(sys.argv[1], out=sys.argv[2], tokenizer=Slow(), workers=2, chunk_bytes=1 << 30)
"""


@pytest.mark.parametrize("how", ["forked", "spawned"])
def test_the_bar_moves_within_a_chunk_that_a_worker_encodes_and_workers_draw_nothing(
    how: str, one_chunk: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(script), str(one_chunk), str(tmp_path / "s"), how],
        stderr=writer,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])},  # noqa: PTH109
    )
    os.close(writer)
    text = b""
    while block := _read(reader):
        text += block
    os.close(reader)
    assert process.wait() == 0
    drawn = text.decode()
    assert len(shares(drawn)) >= 3
    # One line that is drawn again and again: a second drawer would begin it anew.
    assert drawn.count("reading the sources") == 1
    found = [int(share) for share in re.findall(r"(\d+) %", drawn)]
    assert found == sorted(found)


def test_nothing_is_drawn_on_request_and_nothing_to_a_pipe(
    one_chunk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal(monkeypatch) as drawn:
        build(one_chunk, out=tmp_path / "a", tokenizer="byte", progress=False)
    assert drawn() == ""
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    build(one_chunk, out=tmp_path / "b", tokenizer="byte")
    assert pipe.getvalue() == ""


def test_a_notebook_sees_plain_lines_though_it_is_no_terminal(
    one_chunk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    cell = io.StringIO()
    monkeypatch.setattr(sys, "stderr", cell)
    build(one_chunk, out=tmp_path / "s", tokenizer=Slow(), chunk_bytes=1 << 30)
    assert len(shares(cell.getvalue())) >= 3
    assert "\x1b" not in cell.getvalue()


def _packed(path: Path, rows: list[Any]) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def _text_rows() -> list[dict[str, str]]:
    chance = np.random.default_rng(1)
    return [{"text": chance.bytes(3000).hex()} for _ in range(1200)]


@pytest.mark.parametrize("kind", ["plain", "packed", "chats", "packed chats", "in memory"])
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_what_is_reported_adds_up_to_the_bytes_of_the_sources(
    kind: str, workers: int, tmp_path: Path
) -> None:
    counted = Counted()
    choices: dict[str, Any] = {"out": tmp_path / "s", "tokenizer": "byte", "workers": workers}
    if kind == "in memory":
        build(texts=["some text"] * 100, progress=counted, chunk_bytes=300, **choices)
        assert sum(counted.amounts) == 100 * len('"some text"')
        return
    rows = chats(4000) if "chats" in kind else _text_rows()
    write = _packed if "packed" in kind else write_jsonl
    source = write(tmp_path / f"d.jsonl{'.gz' if 'packed' in kind else ''}", rows)
    built = build(source, progress=counted, chat="chats" in kind, **choices)
    assert built.store.num_documents
    assert sum(counted.amounts) == counted.total == source.stat().st_size
    if workers == 1 and kind != "packed chats":  # these are guessed at, and are too few here
        assert len(counted.amounts) > 1, "one report at the end is no progress"


def test_text_out_of_a_packed_file_counts_for_a_quarter_of_its_bytes(tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", **row}]}
        for row in ({"content": row["text"]} for row in _text_rows()[:100])
    ]
    num_bytes = sum(len(turn["content"]) for row in rows for turn in row["messages"])
    amounts = []
    for write, name in ((write_jsonl, "d.jsonl"), (_packed, "d.jsonl.gz")):
        counted = Counted()
        source = write(tmp_path / name, rows)
        out = tmp_path / f"{name}.store"
        build(source, out=out, tokenizer="byte", chat=True, progress=counted)
        amounts.append(counted.amounts[0])
    assert amounts == [num_bytes, num_bytes // 4]


def test_chunks_of_an_unfinished_build_count_as_done(tmp_path: Path) -> None:
    rows = documents(200)
    rows[150]["text"] = "a trap"
    source = write_jsonl(tmp_path / "d.jsonl", rows)
    with pytest.raises(Exception, match="broke"):
        build(source, out=tmp_path / "s", tokenizer=Faulty("error"), chunk_bytes=2000)
    counted = Counted()
    build(source, out=tmp_path / "s", tokenizer=Faulty("none"), chunk_bytes=2000, progress=counted)
    assert sum(counted.amounts) == source.stat().st_size


@pytest.mark.parametrize(
    ("columns", "has_words", "has_bar"), [(140, True, True), (80, False, True), (45, False, False)]
)
def test_a_narrow_terminal_sees_figures_rather_than_words_and_the_line_goes_at_the_end(
    columns: int, has_words: bool, has_bar: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with terminal(monkeypatch) as drawn, bars() as progress:
        progress.start("working", total=10, unit="steps")
        progress.note("and some words that are not needed")
        progress.advance(5)
    *lines, blank, end = drawn().split("\r")
    assert "50 %  5 of 10 steps" in lines[-1] and max(map(len, lines)) < columns
    assert ("words" in lines[-1], "━" in lines[-1]) == (has_words, has_bar)
    assert blank.isspace() and end == ""


GUARDLESS = """
import shutil, sys, threading
from tokenreel.builder.build import build

print("the script runs")
shutil.rmtree(sys.argv[2], ignore_errors=True)  # as scripts do, and here each worker too
if sys.argv[3] == "spawned":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
build(sys.argv[1], out=sys.argv[2], tokenizer="byte", workers=2, chunk_bytes=1 << 20)
"""


def run_without_guard(
    source: Path, tmp_path: Path, how: str, *, first: str = ""
) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "guardless.py"
    script.write_text(first + GUARDLESS)
    return subprocess.run(
        [sys.executable, str(script), str(source), str(tmp_path / "s"), how],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_script_without_a_main_guard_builds_where_workers_are_forked(
    one_chunk: Path, tmp_path: Path
) -> None:
    done = run_without_guard(one_chunk, tmp_path, "forked")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "the script runs\n"


def test_a_missing_main_guard_is_named_by_the_parent_alone_where_workers_are_spawned(
    one_chunk: Path, tmp_path: Path
) -> None:
    done = run_without_guard(one_chunk, tmp_path, "spawned")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "ConfigError" in last and "guardless.py" in last
    assert 'if __name__ == "__main__":' in last and "workers=1" in last
    assert done.stderr.count("Traceback") == 1, "tracebacks of workers"
    assert "bootstrapping" not in done.stderr


def test_a_script_that_fails_in_the_workers_that_import_it_is_named(
    one_chunk: Path, tmp_path: Path
) -> None:
    fails = "if __name__ != '__main__': raise SystemExit('only once')\n"
    done = run_without_guard(one_chunk, tmp_path, "spawned", first=fails)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "guardless.py: each worker process imports this script, and the script fails" in last
