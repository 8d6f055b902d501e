"""What a build counts and says at its end: dirt, chats that train nothing, and every file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import write_jsonl

from tokenreel.builder.build import build
from tokenreel.builder.file_counts import MAX_FILES, FileCounts
from tokenreel.cli.main import main

ASK = {"role": "user", "content": "why?"}
ANSWER = {"role": "assistant", "content": "because"}
DIRTY = [{"text": "clean"}, {"text": "\ufeffmark"}, {"text": "nul \0"}, {"text": "\ufeffnul \0"}]
DIRT = {"NUL, kept": 2, "byte order mark, removed": 2}


def said(words: list[Any], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what the command prints."""
    common = ["--tokenizer", "byte", "--workers", "1"]
    assert main(["build", *map(str, words), *common]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_dirt_stops_no_build_and_is_counted_with_its_places(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "d.jsonl", DIRTY)
    for name, given in (("file", {"sources": path}), ("texts", {"texts": iter(DIRTY)})):
        built = build(out=tmp_path / name, tokenizer="byte", **given)
        assert built.report["dirt"] == DIRT and built.report["skipped"] == {}
        places = [(place["row"], place["reason"]) for place in built.report["dirt_places"]]
        mark, nul = "byte order mark, removed", "NUL, kept"
        assert places == [(1, mark), (2, nul), (3, mark), (3, nul)]
        split = built.store["train"]
        texts = [bytes(split.document(n).tokens.tolist()[:-1]).decode() for n in range(4)]
        assert texts == ["clean", "mark", "nul \0", "nul \0"]


@pytest.mark.parametrize("workers", [1, 2])
def test_dirt_in_many_chunks_and_many_kinds_of_files_adds_up(tmp_path: Path, workers: int) -> None:
    write_jsonl(tmp_path / "a.jsonl", DIRTY * 50)
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfmark and nul \0")
    built = build(
        [tmp_path / "a.jsonl", tmp_path / "b.txt"],
        out=tmp_path / "s",
        tokenizer="byte",
        workers=workers,
        chunk_bytes=500,
    )
    assert built.report["dirt"] == dict.fromkeys(DIRT, 101)
    assert len(built.report["dirt_places"]) == 100


def test_dirt_in_chats_is_counted_too_and_not_that_of_chats_that_are_skipped(
    tmp_path: Path,
) -> None:
    chats = [
        {"messages": [ASK, {**ANSWER, "content": "\ufeffso\0"}]},
        {"messages": [{"role": "nobody", "content": "\0"}]},
    ]
    built = build(chats=chats, out=tmp_path / "s", tokenizer="byte", on_bad="skip")
    assert built.report["dirt"] == dict.fromkeys(DIRT, 1)


def test_reasoning_that_no_template_renders_is_counted_and_said_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    thought = {**ANSWER, "reasoning_content": "hm"}
    chats = [{"messages": [ASK, thought, ASK, thought]}, {"messages": [ASK, ANSWER]}]
    path = write_jsonl(tmp_path / "c.jsonl", chats * 3)
    shown = said([path, "--out", tmp_path / "s", "--chat"], capsys)
    kind = "reasoning of messages (reasoning_content, thinking), not rendered"
    assert f"{kind}: in 3 records" in shown
    built = build(chats=chats, out=tmp_path / "t", tokenizer="byte")
    assert built.report["dirt"] == {kind: 1}
    assert [place["row"] for place in built.report["dirt_places"]] == [0]


def test_the_command_says_dirt_at_the_end_and_nothing_where_there_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_jsonl(tmp_path / "d.jsonl", DIRTY)
    shown = said([path, "--out", tmp_path / "s"], capsys)
    assert "byte order mark, removed: in 2 records" in shown and "NUL, kept: in 2 records" in shown
    clean = said([write_jsonl(path, DIRTY[:1]), "--out", tmp_path / "t"], capsys)
    assert "NUL" not in clean and "mark" not in clean and "nothing" not in clean


@pytest.mark.parametrize(
    ("policy", "untrained", "reason"),
    [
        ("assistant", 2, "no assistant turn that is trained"),
        ("last_assistant", 2, "no assistant turn that is trained"),
        ("all", 0, None),
        ({"system": 1.0}, 3, "no turn that the policy trains"),
    ],
)
def test_chats_that_train_nothing_are_counted_by_the_policy(
    tmp_path: Path, policy: Any, untrained: int, reason: str | None
) -> None:
    weightless = {**ANSWER, "weight": 0}
    chats = [{"messages": [ASK]}, {"messages": [ASK, ANSWER]}, {"messages": [ASK, weightless]}]
    built = build(
        chats=chats, out=tmp_path / "s", tokenizer="byte", template="chatml", policy=policy
    )
    assert built.report["untrained_chats"] == untrained
    assert built.report["untrained_reason"] == reason


def test_a_store_of_documents_has_no_chats_that_train_nothing(tmp_path: Path) -> None:
    assert build(texts=["a"], out=tmp_path / "s", tokenizer="byte").report["untrained_chats"] == 0


def test_the_command_says_how_many_chats_train_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"messages": [ASK]}, {"messages": [ASK, ANSWER]}]
    path = write_jsonl(tmp_path / "c.jsonl", rows)
    words = [path, "--chat", "--template", "chatml", "--out"]
    shown = said([*words, tmp_path / "s"], capsys)
    assert "1 chat trains nothing: no assistant turn that is trained" in shown
    assert "trains nothing" not in said([*words, tmp_path / "t", "--policy", "all"], capsys)


def test_documents_bytes_and_tokens_are_counted_by_file_in_the_order_read(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "b.jsonl", [{"text": "é" * n} for n in (1, 20, 300)])
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "a.txt").write_text("four")
    built = build(
        [tmp_path / "b.jsonl", tmp_path / "z" / "a.txt"],
        out=tmp_path / "s",
        tokenizer="byte",
        chunk_bytes=50,
    )
    assert built.report["files"] == [["b.jsonl", 3, 642, 645], ["z/a.txt", 1, 4, 5]]
    memory = build(texts=["one"], out=tmp_path / "m", tokenizer="byte")
    assert memory.report["files"] == [["(memory)", 1, 3, 4]]


def test_files_beyond_the_two_hundredth_are_counted_together(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 30):
        (tmp_path / f"{number}.txt").write_text("ab")
    report = build(tmp_path, out=tmp_path / ".s", tokenizer="byte", chunk_bytes=60).report
    assert len(report["files"]) == MAX_FILES + 1
    assert report["files"][-1] == ["", 30, 60, 90, 30]
    assert sum(row[1] for row in report["files"]) == report["documents"]


def test_a_large_file_among_the_others_is_one_file() -> None:
    counts = FileCounts()
    for number in range(MAX_FILES):
        counts.add({str(number): (1, 1, 1)})
    for _ in range(3):
        counts.add({"large": (1, 2, 3)})
    again = FileCounts()
    again.add_rows(json.loads(json.dumps(counts.rows())))
    assert counts.rows()[-1] == ["", 3, 6, 9, 1] and again.rows() == counts.rows()
    assert counts.total() == again.total() == (MAX_FILES + 3, MAX_FILES + 6, MAX_FILES + 9)
