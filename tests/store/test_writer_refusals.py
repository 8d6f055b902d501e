"""Every refusal of the writer, word by word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.store.building import SMALL, build, leftovers, read_all, some_turns

from tokenreel import DocumentBatch, Provenance, StoreWriter, open_store
from tokenreel.errors import (
    ConfigError,
    EmptyError,
    InputError,
    LayoutError,
    UnfinishedError,
    WriteError,
)
from tokenreel.filesystem import FileSystem
from tokenreel.store import build_folder as target
from tokenreel.store import shard_writer
from tokenreel.text.turns import TURN


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 0}, "bad vocab_size (expected 1 to 2**32, got 0)"),
        ({"vocab_size": 2**32 + 1}, "bad vocab_size (expected 1 to 2**32, got 4,294,967,297)"),
        ({"vocab_size": True}, "bad vocab_size (expected 1 to 2**32, got True)"),
        ({"dtype": "int32"}, "bad token dtype (expected uint16 or uint32, got int32)"),
        (
            {"dtype": "uint16", "vocab_size": 65_537},
            "the vocabulary does not fit uint16 (expected <= 65,536, got 65,537)",
        ),
        ({"weights": "float64"}, "bad weights (expected uint8 or float32, got float64)"),
        ({"shard_bytes": 1}, "shard_bytes is too small (expected >= 4, got 1)"),
        (
            {"block_bytes": 12},
            "wrong value of facts.block_bytes (expected a multiple of 8, got 12)",
        ),
        ({"block_bytes": 0}, "wrong value of facts.block_bytes (expected an integer from 1 to "),
        ({"shard_bytes": 1e6}, "wrong value of facts.shard_bytes (expected an integer from 1 to "),
        ({"vocab_size": 1000.0}, "wrong value of facts.vocab_size (expected an integer from 1 to "),
        ({"tokenizer": {"a": float("nan")}}, "what is said about a store must be JSON"),
        ({"tokenizer": {"a": object()}}, "what is said about a store must be JSON"),
        ({"tokenizer": {"a": "\ud800"}}, "what is said about a store must be JSON"),
        ({"build": {"a": np.int64(1)}}, "what is said about a store must be JSON"),
        ({"build": {"a": {1, 2}}}, "what is said about a store must be JSON"),
        ({"build": {1: "a", "b": 2}}, "what is said about a store must be JSON"),
        ({"tokenizer": [1]}, "wrong value of facts.tokenizer (expected an object, got list)"),
        ({"turns": 1}, "wrong value of facts.turns (expected one of [True, False], got 1)"),
    ],
)
def test_what_could_not_be_read_again_is_never_begun(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        StoreWriter(tmp_path / "books", **{**SMALL, **options})
    assert message in str(caught.value)
    assert not (tmp_path / "books").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a.b", ".a", "-a", "ä", "a" * 65])
def test_a_bad_split_name_is_refused_and_the_writer_goes_on(tmp_path: Path, name: str) -> None:
    with StoreWriter(tmp_path / "books", **SMALL) as writer:
        with pytest.raises(ConfigError) as caught:
            writer.add([1], split=name)
        assert str(caught.value) == (
            f"bad split name (expected letters, digits, _ and -, got {name!r})"
        )
        writer.add([1])
    assert read_all(tmp_path / "books") == {"train": [[1]]}


@pytest.mark.parametrize(
    "add",
    [
        lambda writer: None,
        lambda writer: writer.add([]),
        lambda writer: (writer.add([]), writer.add([], split="val")),
    ],
)
def test_an_empty_store_is_an_error_and_leaves_nothing_to_continue(
    tmp_path: Path, add: Callable[[StoreWriter], Any]
) -> None:
    path = tmp_path / "books"
    with pytest.raises(EmptyError) as caught, StoreWriter(path, **SMALL) as writer:
        add(writer)
    assert str(caught.value) == (
        f"{path}: no tokens were added, so there is no store; "
        "look at the sources: they gave no document, or only empty ones"
    )
    with pytest.raises(UnfinishedError):
        open_store(path)
    with StoreWriter(path, **SMALL) as writer:
        assert writer.resume() == 0
        writer.add([1])
    assert read_all(path) == {"train": [[1]]}


def test_a_split_of_empty_documents_beside_a_full_one_is_fine(tmp_path: Path) -> None:
    path = build(tmp_path / "books", {"train": [[1]], "val": [[], []]})
    assert read_all(path) == {"train": [[1]], "val": [[], []]}


def test_a_writer_that_committed_is_closed(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "books", **SMALL) as writer:
        writer.add([1])
        writer.commit()
        before = (tmp_path / "books/manifest.json").read_bytes()
        for refused in (lambda: writer.add([2]), writer.commit, writer.resume):
            with pytest.raises(WriteError) as caught:
                refused()
            assert str(caught.value) == (
                f"{tmp_path / 'books'}: this writer is closed; "
                "open a new writer: stores are never changed, only replaced"
            )
        writer.abandon()  # may be called at any time
    assert (tmp_path / "books/manifest.json").read_bytes() == before
    assert read_all(tmp_path / "books") == {"train": [[1]]}
    assert leftovers(tmp_path / "books") == []


def test_a_writer_that_was_abandoned_commits_nothing(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "books", **SMALL) as writer:
        writer.add([1])
        writer.abandon()
    with pytest.raises(UnfinishedError) as caught:
        open_store(tmp_path / "books")
    assert str(caught.value) == (
        f"{tmp_path / 'books'}: a build was begun here and has not been finished; "
        "run the same build again: finished shards are kept"
    )


def test_resume_comes_before_the_first_document(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "books", **SMALL) as writer:
        assert writer.resume() == 0
        assert writer.resume() == 0
        writer.add([1])
        with pytest.raises(ConfigError, match="split train: resume comes before the first"):
            writer.resume()
        assert writer.resume("val") == 0
    assert read_all(tmp_path / "books") == {"train": [[1]]}


def documents(**changes: Any) -> DocumentBatch:
    """Two documents of three tokens with everything, but for the changes."""
    turns = np.concatenate((some_turns(3), some_turns(3)))
    parts: dict[str, Any] = {
        "ids": np.arange(6),
        "offsets": np.array([0, 3, 6]),
        "turns": turns,
        "turn_offsets": np.array([0, 2, 4]),
        "weights": np.ones(6),
        "provenance": [None, Provenance(file="a")],
    }
    return DocumentBatch(**{**parts, **changes})


def turns_with(field: str, value: Any, *, number: int = 1) -> np.ndarray:
    turns = np.concatenate((some_turns(3), some_turns(3)))
    turns[field][number] = value
    return turns


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": np.zeros((6, 1), int)}, "ids must be one row (expected 1 axis, got 2)"),
        ({"offsets": np.array([0, 6.0])}, "offsets must be one row of integers (got float64 of "),
        ({"offsets": np.array([0, 4, 3, 6])}, "offsets must not decrease"),
        (
            {"offsets": np.array([0, 3, 5])},
            "offsets do not cover what they divide (expected 0 to 6, got 0 to 5)",
        ),
        (
            {"turns": None},
            "turns were not given, but the store was declared with them; declare turns when the "
            "writer is made, and give them with every document",
        ),
        ({"weights": None}, "weights were not given, but the store was declared with them"),
        ({"turn_offsets": None}, "turn_offsets must be one row of integers"),
        (
            {"turn_offsets": np.array([0, 1, 2])},
            "turn_offsets do not cover what they divide (expected 0 to 4, got 0 to 2)",
        ),
        ({"turn_offsets": np.array([0, 3, 2, 4])}, "turn_offsets must not decrease"),
        ({"turn_offsets": np.array([0, 4])}, "wrong number of turn_offsets (expected 3, got (2,))"),
        ({"weights": np.ones(5)}, "wrong number of weights (expected 6, got (5,))"),
        ({"weights": np.ones((6, 2))}, "wrong number of weights (expected 6, got (6, 2))"),
        ({"provenance": [None]}, "wrong number of provenance (expected 2, got (1,))"),
        ({"turns": np.zeros(4, np.int64)}, "turns need the TURN dtype (got int64)"),
        ({"weights": np.array(["1"] * 6)}, "loss weights must be numbers (got <U1)"),
        (
            {"weights": np.array([1, 1, -1, 1, 1, 1.0])},
            "bad loss weight at token 2 of the batch (expected finite and >= 0, got -1.0)",
        ),
        ({"weights": np.array([1, np.nan] * 3)}, "bad loss weight at token 1 of the batch"),
        # Finite in 64 bits, infinite in the 32 that are stored.
        ({"weights": np.array([1e300] * 6)}, "bad loss weight at token 0 of the batch"),
        (
            {"turns": turns_with("length", 3)},
            "document 0 of the batch, turn 1: a turn lies outside",
        ),
        ({"turns": turns_with("start", 0)}, "document 0 of the batch, turn 1: a turn lies outside"),
        ({"turns": turns_with("start", 2**63 - 1)}, "document 0 of the batch, turn 1"),
        ({"turns": turns_with("start", 2**64 - 1)}, "document 0 of the batch, turn 1"),
        ({"turns": turns_with("head", 3, number=3)}, "document 1 of the batch, turn 1"),
        ({"turns": turns_with("weight", np.inf, number=3)}, "document 1 of the batch, turn 1"),
        ({"turns": turns_with("weight", -0.5, number=2)}, "document 1 of the batch, turn 0"),
    ],
)
def test_arrays_that_do_not_belong_together_are_refused_and_the_writer_goes_on(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    settings = {**SMALL, "turns": True, "weights": "float32", "provenance": True}
    with StoreWriter(tmp_path / "books", **settings) as writer:
        with pytest.raises(InputError) as caught:
            writer.add_batch(documents(**changes))
        assert message in str(caught.value)
        writer.add_batch(documents())
    assert read_all(tmp_path / "books") == {"train": [[0, 1, 2], [3, 4, 5]]}


def test_a_turn_must_start_inside_its_document(tmp_path: Path) -> None:
    # An empty turn at the end would be read as the first of the next document.
    turns = np.zeros(1, TURN)
    turns["start"] = 3
    with StoreWriter(tmp_path / "books", turns=True, **SMALL) as writer:
        with pytest.raises(InputError, match="a turn lies outside its document"):
            writer.add([1, 2, 3], turns=turns)
        turns["start"] = 2
        writer.add([1, 2, 3], turns=turns)
        writer.add([4], turns=some_turns(1))
    found = [document.turns for document in open_store(tmp_path / "books")["train"].documents()]
    assert [None if turns is None else turns["start"].tolist() for turns in found] == [[2], [0]]


def test_the_head_and_the_tail_of_a_turn_lie_in_it_side_by_side(tmp_path: Path) -> None:
    turns = np.zeros(1, TURN)
    turns["length"], turns["head"], turns["tail"] = 3, 2, 2
    with StoreWriter(tmp_path / "books", turns=True, **SMALL) as writer:
        with pytest.raises(InputError, match="a turn lies outside its document"):
            writer.add([1, 2, 3], turns=turns)
        turns["tail"] = 1
        writer.add([1, 2, 3], turns=turns)
    assert read_all(tmp_path / "books") == {"train": [[1, 2, 3]]}


@pytest.mark.parametrize("given", ["turns", "weights", "provenance"])
def test_what_was_not_declared_is_refused(tmp_path: Path, given: str) -> None:
    extra: dict[str, Any] = {
        "turns": some_turns(3),
        "weights": [1, 1, 1],
        "provenance": Provenance(file="a"),
    }
    with StoreWriter(tmp_path / "books", **SMALL) as writer:
        with pytest.raises(InputError, match="but the store was declared without"):
            writer.add([1, 2, 3], **{given: extra[given]})
        writer.add([1])


def test_weights_of_a_mask_are_zero_or_one(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "books", weights="uint8", **SMALL) as writer:
        for wrong in ([0.5], [2], [-1], [256], [float("nan")]):
            with pytest.raises(InputError, match=r"expected 0 or 1"):
                writer.add([1], weights=wrong)
        for right in ([1], [0.0], [True]):
            writer.add([1], weights=right)


def test_a_chat_larger_than_a_shard_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError) as caught,
        StoreWriter(tmp_path / "books", turns=True, **SMALL) as writer,
    ):
        writer.add([1], turns=some_turns(1))
        writer.add([2], turns=some_turns(1))
        writer.add([3] * 13, turns=some_turns(13))
    assert str(caught.value) == (
        "split train, document 2: a chat is larger than a shard "
        "(expected <= 12 tokens, got 13); use larger shards"
    )


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        (Provenance(row=-1), "bad row of a provenance (expected 0 to 2**64 - 2, got -1)"),
        (Provenance(row=2**64 - 1), "bad row of a provenance"),  # would read as unknown
        (Provenance(byte=2**64), "bad byte of a provenance"),
        (Provenance(row=1.5), "bad row of a provenance"),  # type: ignore[arg-type]
        (Provenance(row="7"), "bad row of a provenance"),  # type: ignore[arg-type]
        (Provenance(id=7), "file and id of a provenance must be strings (got 7)"),  # type: ignore[arg-type]
        (Provenance(file=Path("a")), "file and id of a provenance must be strings"),  # type: ignore[arg-type]
    ],
)
def test_provenance_that_cannot_be_kept_is_refused(
    tmp_path: Path, origin: Provenance, message: str
) -> None:
    with (
        pytest.raises(InputError) as caught,
        StoreWriter(tmp_path / "books", provenance=True, **SMALL) as writer,
    ):
        writer.add([1], provenance=origin)
    assert message in str(caught.value)


def test_a_row_counted_by_numpy_is_a_row(tmp_path: Path) -> None:
    row: Any = np.uint64(2**63)
    with StoreWriter(tmp_path / "books", provenance=True, **SMALL) as writer:
        writer.add([1], provenance=Provenance(row=row))
    assert open_store(tmp_path / "books").document(0).provenance == Provenance(row=2**63)


def test_a_manifest_that_could_not_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target, "MAX_JSON_BYTES", 1000)
    with pytest.raises(WriteError) as caught:
        build(tmp_path / "books")
    assert "the manifest would be too large to be read" in str(caught.value)
    assert caught.value.remedy == "use larger shards"
    assert not (tmp_path / "books/manifest.json").exists()


def test_a_record_that_could_not_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_writer, "MAX_JSON_BYTES", 500)
    with pytest.raises(WriteError) as caught:
        build(tmp_path / "books")
    assert "shard_00000.json: the record of the shard would be too large to be read" in str(
        caught.value
    )
    assert caught.value.remedy == "use larger blocks or smaller shards"


def test_a_record_and_a_manifest_of_just_the_size_that_can_be_read_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[str, int] = {}

    class Measuring(FileSystem):
        def write_whole(self, path: Path, data: bytes) -> None:
            written[path.name] = max(len(data), written.get(path.name, 0))
            super().write_whole(path, data)

    build(tmp_path / "books", filesystem=Measuring())
    records = [size for name, size in written.items() if name.startswith("shard_")]
    for module, largest in ((shard_writer, max(records)), (target, written["manifest.json"])):
        with monkeypatch.context() as limited:
            limited.setattr(module, "MAX_JSON_BYTES", largest)
            build(tmp_path / f"enough {module.__name__}")
            limited.setattr(module, "MAX_JSON_BYTES", largest - 1)
            with pytest.raises(WriteError, match="would be too large to be read"):
                build(tmp_path / f"too little {module.__name__}")


def test_a_file_in_the_place_of_the_target_is_refused(tmp_path: Path) -> None:
    (tmp_path / "books").write_text("a file")
    with pytest.raises(ConfigError) as caught:
        StoreWriter(tmp_path / "books", **SMALL)
    assert str(caught.value) == f"{tmp_path / 'books'}: the target is a file; choose a folder"


def test_folders_above_the_target_are_made(tmp_path: Path) -> None:
    build(tmp_path / "a/b/c/books")
    assert open_store(tmp_path / "a/b/c/books").num_tokens > 0


def test_a_folder_that_may_not_be_written_is_a_write_error(tmp_path: Path) -> None:
    import os

    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (tmp_path / "locked").mkdir(mode=0o555)
    with pytest.raises(WriteError, match="make dir failed: Permission denied"):
        build(tmp_path / "locked/books")


def test_what_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="there is no such file or folder"):
        open_store(tmp_path / "nothing")


def test_notes_that_are_no_json_are_refused_before_the_end(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "books", **SMALL) as writer:
        writer.add([1])
        writer.notes["when"] = object()
        with pytest.raises(ConfigError, match="must be JSON"):
            writer.commit()
        writer.notes.clear()
    assert read_all(tmp_path / "books") == {"train": [[1]]}


def test_a_split_that_is_not_there_is_named(tmp_path: Path) -> None:
    store = open_store(build(tmp_path / "books"))
    with pytest.raises(ConfigError) as caught:
        store["test"]
    assert str(caught.value) == f"{tmp_path / 'books'}: no split 'test' (expected train or val)"


def test_an_unknown_read_mode_is_named(tmp_path: Path) -> None:
    path = build(tmp_path / "books")
    with pytest.raises(ConfigError) as caught:
        open_store(path, mode="rw")
    assert str(caught.value) == "unknown read mode (expected mmap or pread, got 'rw')"
