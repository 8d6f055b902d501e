"""Stores of groups: answers to one prompt in one document, told apart by the turn table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden.write_stores import write_plain
from tests.store.independent import edit_manifest, read_manifest, seal

from tokenreel import StoreWriter, open_store
from tokenreel.errors import ConfigError, FormatError, InputError
from tokenreel.inspect.verify import verify_store
from tokenreel.layouts.convert import convert
from tokenreel.text.turns import PREFERRED, REJECTED, TURN, told_turns


def group(*answers: tuple[int, int, int]) -> tuple[np.ndarray, int]:
    """Return the turns of answers of (prompt tokens, answer tokens, label), and their tokens."""
    turns, start = np.zeros(2 * len(answers), TURN), 0
    for number, (asked, answered, label) in enumerate(answers):
        for turn, length, role in ((2 * number, asked, 1), (2 * number + 1, answered, 2)):
            turns[turn] = (start, length, 1, 0, float(role == 2), role, number, label)
            start += length
    return turns, start


PAIR = group((3, 4, PREFERRED), (3, 2, REJECTED))
RANKED = group((2, 2, 0), (2, 3, 0), (2, 4, 0))
SMALL: dict[str, Any] = {"vocab_size": 100, "turns": True, "groups": True, "shard_bytes": 60}


def write(path: Path, **options: Any) -> Path:
    with StoreWriter(path, **{**SMALL, **options}) as writer:
        for turns, num_tokens in (PAIR, RANKED, PAIR):
            writer.add(range(num_tokens), turns=turns)
    return path


@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_answers_and_labels_come_back_as_they_were_given(tmp_path: Path, mode: str) -> None:
    split = open_store(write(tmp_path / "s"), mode=mode)["train"]
    assert split.has_groups and len(split.shards) == 2
    documents = list(split.documents())
    for document, (turns, num_tokens) in zip(documents, (PAIR, RANKED, PAIR), strict=True):
        assert document.turns is not None and len(document) == num_tokens
        assert (document.turns == turns).all()
    assert verify_store(tmp_path / "s").ok


def test_bytes_21_and_22_of_a_turn_are_its_answer_and_its_label(tmp_path: Path) -> None:
    write(tmp_path / "s")
    records = np.fromfile(tmp_path / "s/train/shard_00000.turns", np.uint8).reshape(-1, 24)
    assert records[:4, 21].tolist() == [0, 0, 1, 1]
    assert records[:4, 22].tolist() == [1, 1, 2, 2]
    assert not records[:, 23].any()


def test_only_a_store_of_groups_says_so(tmp_path: Path) -> None:
    write(tmp_path / "s")
    assert read_manifest(tmp_path / "s")["facts"]["groups"] is True
    write_plain(tmp_path / "plain")
    assert "groups" not in read_manifest(tmp_path / "plain")["facts"]
    assert not open_store(tmp_path / "plain")["train"].has_groups


def test_groups_need_turns(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="groups"):
        StoreWriter(tmp_path / "s", vocab_size=9, groups=True)
    write_plain(tmp_path / "plain")
    edit_manifest(tmp_path / "plain", lambda m: m["facts"].update(groups=True))
    with pytest.raises(FormatError, match=r"facts\.groups"):
        open_store(tmp_path / "plain")


def changed(**fields: tuple[int, int]) -> np.ndarray:
    turns = PAIR[0].copy()
    for name, (turn, value) in fields.items():
        turns[name][turn] = value
    return turns


BAD = {
    "begins with answer 1": changed(answer=(0, 1)),
    "leaves out a number": changed(answer=(3, 3)),
    "goes back": changed(answer=(3, 0)),
    "two labels in an answer": changed(label=(1, 2)),
    "no such label": changed(label=(3, 3)),
    "tokens before the first answer": changed(start=(0, 1), length=(0, 2)),
}


@pytest.mark.parametrize("turns", BAD.values(), ids=list(BAD))
def test_turns_that_make_no_group_are_refused(tmp_path: Path, turns: np.ndarray) -> None:
    with (
        pytest.raises(InputError, match=r"document 0 of the batch, turn \d.*answers 0, 1, 2"),
        StoreWriter(tmp_path / "s", **SMALL) as writer,
    ):
        writer.add(range(PAIR[1]), turns=turns)


@pytest.mark.parametrize("turns", BAD.values(), ids=list(BAD))
def test_verify_names_the_turn_that_fits_into_no_group(tmp_path: Path, turns: np.ndarray) -> None:
    path = write(tmp_path / "s")
    turns.tofile(path / "train/shard_00000.turns")
    with (path / "train/shard_00000.turns").open("ab") as file:
        moved = RANKED[0].copy()
        moved["start"] += np.uint64(PAIR[1])
        moved.tofile(file)
    seal(path)
    result = verify_store(path)
    assert any("fits into no group" in str(problem) for problem in result.problems)


def test_an_empty_answer_and_a_group_without_turns_are_refused(tmp_path: Path) -> None:
    turns = np.zeros(2, TURN)
    turns["answer"], turns["length"] = [0, 1], [0, 4]
    for bad, message in ((turns, "does not fit"), (turns[:0], "without turns")):
        with (
            pytest.raises(InputError, match=message),
            StoreWriter(tmp_path / message, **SMALL) as writer,
        ):
            writer.add(range(4), turns=bad)


def test_a_store_without_groups_takes_no_turns_of_answers(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="declared without groups"),
        StoreWriter(tmp_path / "s", vocab_size=100, turns=True) as writer,
    ):
        writer.add(range(PAIR[1]), turns=PAIR[0])


def test_groups_convert_to_the_native_layout_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "s")
    for layout in ("flat", "episodes", "megatron"):
        with pytest.raises(ConfigError, match="cannot tell a preferred answer from a rejected one"):
            convert(path, tmp_path / layout, to=layout)
    convert(path, tmp_path / "copy")
    copied = open_store(tmp_path / "copy")["train"]
    assert copied.has_groups
    documents = zip(copied.documents(), open_store(path)["train"].documents(), strict=True)
    assert all(np.array_equal(a.turns, b.turns) for a, b in documents)  # type: ignore[arg-type]


def test_a_document_says_which_answer_each_turn_is_of() -> None:
    assert told_turns(PAIR[0]) == [
        "answer 1, preferred: user 3",
        "answer 1, preferred: assistant 4 (3 trained)",
        "answer 2, rejected: user 3",
        "answer 2, rejected: assistant 2 (1 trained)",
    ]
    assert told_turns(RANKED[0])[2] == "answer 2: user 2"
