"""Conversion: whatever a store holds comes through every layout that has a place for it."""

from __future__ import annotations

import errno
import json
import logging
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenreel import Provenance, Store, StoreWriter, open_store
from tokenreel.cli.main import main
from tokenreel.errors import (
    ConfigError,
    EmptyError,
    ExistsError,
    MismatchError,
    NoStoreError,
    VocabularyError,
    WriteError,
)
from tokenreel.filesystem import LOCAL, FileSystem
from tokenreel.layouts import convert as convert_module
from tokenreel.layouts import split_batches as batches
from tokenreel.layouts.convert import TARGETS, convert
from tokenreel.layouts.megatron_writer import MegatronWriter
from tokenreel.text.turns import TURN

DOCUMENTS = {"train": [[1, 2, 3], [], [4], [5, 6]], "val": [[7, 8], [9]]}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("xdg")))


Splits = dict[str, list[list[int]]]


def build(
    path: Path,
    documents: Splits = DOCUMENTS,
    *,
    vocab_size: int = 1000,
    weights: dict[str, list[list[float]]] | None = None,
    **options: Any,
) -> Store:
    kind = None if weights is None else options.pop("kind", "float32")
    with StoreWriter(path, vocab_size=vocab_size, weights=kind, **options) as writer:
        for split, some in documents.items():
            for number, ids in enumerate(some):
                given = None if weights is None else weights[split][number]
                writer.add(ids, split=split, weights=given)
    return open_store(path)


def texts(store: Store) -> dict[str, list[list[int]]]:
    return {name: [d.tokens.tolist() for d in store[name].documents()] for name in store}


def weights_of(store: Store) -> dict[str, list[list[float]]]:
    return {name: [d.loss_weights.tolist() for d in store[name].documents()] for name in store}


def with_end(documents):
    """Documents that an end token finds again."""
    return {s: [[*ids, 0] for ids in some] for s, some in documents.items()}


KEEPS_DOCUMENTS = ("native", "episodes", "megatron")


@pytest.mark.parametrize("first", KEEPS_DOCUMENTS)
@pytest.mark.parametrize("second", KEEPS_DOCUMENTS)
def test_documents_survive_every_pair_of_layouts(tmp_path, first, second):
    store = build(tmp_path / "store")
    convert(store, tmp_path / "a", to=first)
    convert(open_store(tmp_path / "a"), tmp_path / "b", to=second, vocab_size=1000)
    convert(open_store(tmp_path / "b"), tmp_path / "c", vocab_size=1000)
    assert open_store(tmp_path / "a").layout == first
    for name in "abc":
        assert texts(open_store(tmp_path / name)) == DOCUMENTS


@pytest.mark.parametrize("first", TARGETS)
@pytest.mark.parametrize("second", TARGETS)
@pytest.mark.parametrize("file_format", ["npy", pytest.param("bin", marks=pytest.mark.soak)])
def test_documents_survive_flat_shards_by_their_end_token(tmp_path, first, second, file_format):
    documents = with_end(DOCUMENTS)
    source = build(tmp_path / "store", documents)
    for number, to in enumerate((first, second, "flat", "native")):
        convert(source, tmp_path / str(number), to=to, file_format=file_format, vocab_size=1000)
        source = open_store(tmp_path / str(number), eos_id=0)
        assert (source.layout, texts(source)) == (to, documents)


@pytest.mark.parametrize("kind", ["uint8", "float32"])
@pytest.mark.parametrize("route", [["episodes"], ["native", "episodes", "native"]])
def test_weights_survive(tmp_path, kind, route):
    weights = {
        split: [[float(i % 2) for i in range(len(ids))] for ids in some]
        for split, some in DOCUMENTS.items()
    }
    source = build(tmp_path / "store", weights=weights, kind=kind)
    for number, to in enumerate(route):
        convert(source, tmp_path / str(number), to=to)
        source = open_store(tmp_path / str(number))
        assert weights_of(source) == weights
    convert(source, tmp_path / "end")
    assert weights_of(open_store(tmp_path / "end")) == weights
    assert texts(open_store(tmp_path / "end")) == DOCUMENTS


def chat_store(path: Path) -> Store:
    with StoreWriter(path, vocab_size=100, turns=True, provenance=True) as writer:
        for number in range(3):
            turns = np.zeros(2, TURN)
            turns["start"], turns["length"], turns["head"] = [0, 3], [3, number + 2], [1, 1]
            turns["weight"], turns["role"] = [0, 1 + number / 2], [1, 2]
            origin = Provenance(file="chats.jsonl", row=number, byte=99 * number, id=f"c{number}")
            ids = list(range(number + 5))
            writer.add(ids, turns=turns, provenance=origin if number != 1 else None)
    return open_store(path)


def test_turns_and_provenance_survive_into_a_store_and_become_the_mask_of_episodes(tmp_path):
    source = chat_store(tmp_path / "chats")
    convert(source, tmp_path / "again")
    again = open_store(tmp_path / "again")
    for number in range(3):
        before, after = source.document(number), again.document(number)
        assert after.turns.tolist() == before.turns.tolist()
        assert after.provenance == before.provenance
    assert again.document(2).provenance == Provenance(file="chats.jsonl", row=2, byte=198, id="c2")
    convert(source, tmp_path / "episodes", to="episodes")
    assert weights_of(open_store(tmp_path / "episodes")) == weights_of(source)
    assert weights_of(source)["train"][1] == [0, 0, 0, 0, 1.5, 1.5]


@pytest.mark.parametrize(
    ("to", "left_out"),
    [
        ("native", ()),
        ("episodes", ("provenance",)),
        ("megatron", ("provenance", "turns")),
        ("flat", ("documents", "provenance", "turns")),
    ],
)
def test_what_has_no_place_is_left_out_and_said(tmp_path, caplog, to, left_out):
    source = chat_store(tmp_path / "chats")
    with caplog.at_level(logging.WARNING):
        assert convert(source, tmp_path / "out", to=to).left_out == left_out
    assert ("has no place for" in caplog.text) == bool(left_out)


def test_unknown_documents_become_one_per_file_and_that_is_said(tmp_path, caplog):
    (tmp_path / "flat").mkdir()
    for number in (1, 2):
        np.save(tmp_path / "flat" / f"t_{number}.npy", np.array([number, 9], "<u4"))
    convert(open_store(tmp_path / "flat"), tmp_path / "store")
    store = open_store(tmp_path / "store")
    assert texts(store) == {"train": [[1, 9], [2, 9]]}
    assert store.vocab_size == 2**32
    assert "each file becomes one document" in caplog.text


def test_tokens_of_no_document_are_left_out_counted_and_said(tmp_path, caplog):
    folder = tmp_path / "episodes"
    folder.mkdir()
    np.arange(10, dtype="<u4").tofile(folder / "tokens.bin")
    np.arange(10, dtype="<u1").astype(bool).tofile(folder / "mask.bin")
    (folder / "episodes.idx").write_bytes(struct.pack("<6Q", 1, 2, 5, 0, 6, 3))
    result = convert(open_store(folder), tmp_path / "store", vocab_size=10)
    assert result.tokens_left_out == 5
    assert "5 tokens belong to no document" in caplog.text
    assert texts(open_store(tmp_path / "store")) == {"train": [[1, 2], [], [6, 7, 8]]}
    assert open_store(tmp_path / "store")["train"].document(2).loss_weights.tolist() == [1, 1, 1]


def test_a_split_without_a_mask_gets_ones_where_another_has_one(tmp_path):
    for split, mask in (("train", True), ("val", False)):
        (tmp_path / "e" / split).mkdir(parents=True)
        np.array([1, 2], "<u4").tofile(tmp_path / "e" / split / "tokens.bin")
        (tmp_path / "e" / split / "episodes.idx").write_bytes(struct.pack("<2Q", 0, 2))
        if mask:
            (tmp_path / "e" / split / "mask.bin").write_bytes(b"\0\1")
    source = open_store(tmp_path / "e")
    convert(source, tmp_path / "store", vocab_size=10)
    assert weights_of(open_store(tmp_path / "store")) == weights_of(source)


@pytest.mark.parametrize("to", TARGETS)
def test_giant_documents_that_continue_over_shards_come_whole(tmp_path, to):
    giant = list(range(1, 41))
    documents = {"train": [[1, 0], [*giant, 0], [2, 0], [*giant, *giant, 0]]}
    weights = {"train": [[float(i % 3) for i in range(len(ids))] for ids in documents["train"]]}
    source = build(tmp_path / "store", documents, weights=weights, shard_bytes=32)
    assert any(shard.continues for shard in source["train"].shards)
    convert(source, tmp_path / "out", to=to)
    result = open_store(tmp_path / "out", eos_id=0)
    assert texts(result) == documents
    if to in ("native", "episodes"):
        assert weights_of(result) == weights


def test_flat_shards_never_cut_a_document(tmp_path):
    source = build(tmp_path / "store", {"train": [[1, 1], [2], [3, 3, 3, 3, 3], [4], [5]]})
    convert(source, tmp_path / "out", to="flat", shard_size=6, file_format="bin")
    shards = [s.tokens.tolist() for s in open_store(tmp_path / "out")["train"].shards]
    assert shards == [[1, 1, 2], [3, 3, 3, 3, 3], [4, 5]]


def test_the_metadata_of_flat_shards_has_the_shape_that_tatm_reads(tmp_path):
    source = build(tmp_path / "store", tokenizer={"name": "t5-base"})
    convert(source, tmp_path / "out", to="flat", file_format="bin")
    metadata = yaml.safe_load((tmp_path / "out" / "metadata.yaml").read_text())
    for key in ("name", "description", "date_downloaded", "download_source", "data_content"):
        assert isinstance(metadata[key], str)
    assert metadata["tokenized_info"] == {
        "tokenizer": "t5-base",
        "file_prefix": "shard",
        "dtype": "uint16",
        "file_extension": "bin",
        "vocab_size": 1000,
        "parent_datasets": [],
    }
    assert open_store(tmp_path / "out").tokenizer == {"name": "t5-base"}


def test_flat_npy_shards_are_plain_numpy(tmp_path):
    convert(build(tmp_path / "store"), tmp_path / "out", to="flat")
    assert np.load(tmp_path / "out" / "train" / "shard_00000.npy").tolist() == [1, 2, 3, 4, 5, 6]
    assert np.load(tmp_path / "out" / "val" / "shard_00000.npy").dtype == np.uint16


def test_flat_shards_refuse_a_split_they_cannot_name(tmp_path):
    source = build(tmp_path / "store", {"train": [[1]], "books": [[2]]})
    with pytest.raises(ConfigError, match="no place for a split named 'books'"):
        convert(source, tmp_path / "out", to="flat")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("vocab_size", [1000, 70000])
def test_megatron_files_are_byte_for_byte_what_the_description_says(tmp_path, vocab_size):
    documents = {"train": [[1, 2, vocab_size - 1], [], [4]]}
    source = build(tmp_path / "store", documents, vocab_size=vocab_size)
    convert(source, tmp_path / "out", to="megatron")
    code, kind, width = (8, "H", 2) if vocab_size == 1000 else (4, "i", 4)
    index = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, code, 3, 4)
    index += struct.pack("<3i", 3, 0, 1) + struct.pack("<3q", 0, 3 * width, 3 * width)
    index += struct.pack("<4q", 0, 1, 2, 3)
    assert (tmp_path / "out" / "train.idx").read_bytes() == index
    tokens = struct.pack(f"<4{kind}", 1, 2, vocab_size - 1, 4)
    assert (tmp_path / "out" / "train.bin").read_bytes() == tokens
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["train.bin", "train.idx"]


def test_a_document_longer_than_int32_can_say_becomes_several_sequences(tmp_path):
    source = build(tmp_path / "store", {"train": [[1, 2, 3, 4, 5], [6]]})
    (tmp_path / "out").mkdir()
    writer = MegatronWriter(tmp_path / "out", vocab_size=10, filesystem=LOCAL, sequence_tokens=2)
    for batch in batches.document_batches(source["train"], batches.Carried()):
        writer.add(batch, split="train")
    writer.finish()
    assert texts(open_store(tmp_path / "out")) == {"train": [[1, 2, 3, 4, 5], [6]]}
    assert open_store(tmp_path / "out")["train"].shards[0].documents.lengths.tolist() == [
        2,
        2,
        1,
        1,
    ]


def test_episodes_are_byte_for_byte_what_the_contract_says(tmp_path):
    weights = {"train": [[0.0, 1.0], [0.5]]}
    source = build(
        tmp_path / "store", {"train": [[1, 70000], [3]]}, vocab_size=70001, weights=weights
    )
    convert(source, tmp_path / "out", to="episodes")
    files = {p.name: p.read_bytes() for p in (tmp_path / "out" / "train").iterdir()}
    assert files == {
        "tokens.bin": struct.pack("<3I", 1, 70000, 3),
        "mask.bin": struct.pack("<3f", 0, 1, 0.5),
        "episodes.idx": struct.pack("<4Q", 0, 2, 2, 1),
    }


@pytest.mark.parametrize("to", TARGETS)
def test_an_id_outside_the_vocabulary_is_refused_and_nothing_appears(tmp_path, to):
    (tmp_path / "flat").mkdir()
    tokens = np.zeros(400_000, "<u4")
    tokens[200_000] = 77
    np.save(tmp_path / "flat" / "a.npy", tokens)
    source = open_store(tmp_path / "flat", vocab_size=50)
    with pytest.raises(VocabularyError, match=r"position 200,000 .*0 to 49, got 77"):
        convert(source, tmp_path / "out", to=to)
    assert not (tmp_path / "out").exists() or to == "native"
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".out")]


def test_negative_ids_never_wrap(tmp_path):
    (tmp_path / "flat").mkdir()
    np.save(tmp_path / "flat" / "a.npy", np.array([1, -1], "<i4"))
    with pytest.raises(VocabularyError, match="got -1"):
        convert(open_store(tmp_path / "flat"), tmp_path / "out", to="episodes")


@pytest.mark.parametrize("to", TARGETS)
def test_an_existing_target_is_refused_and_left_as_it_is(tmp_path, to):
    source = build(tmp_path / "store")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("here")
    with pytest.raises(ExistsError, match="out"):
        convert(source, tmp_path / "out", to=to)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["precious"]


@pytest.mark.parametrize("to", TARGETS)
def test_an_empty_current_folder_may_be_the_target(tmp_path, monkeypatch, to):
    source = build(tmp_path / "store")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    convert(source, ".", to=to)
    assert open_store(tmp_path / "empty").layout == to


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "parquet"}, r"bad to \(expected 'native', 'flat', 'episodes' or 'megatron', got"),
        (
            {"to": "flat", "file_format": "txt"},
            r"bad file_format \(expected 'npy' or 'bin',",
        ),
        ({"to": "flat", "dtype": "int64"}, "bad token dtype"),
        ({"to": "megatron", "shard_size": 100}, "leave out dtype and shard_size"),
        ({"to": "episodes", "dtype": "uint16"}, "leave out dtype and shard_size"),
        ({"shard_size": 0}, "bad shard_size"),
        ({"shard_size": "128Q"}, "bad shard_size"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(tmp_path, options, message):
    source = build(tmp_path / "store")
    with pytest.raises(ConfigError, match=message):
        convert(source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_an_empty_source_is_refused(tmp_path):
    (tmp_path / "e").mkdir()
    for name in ("tokens.bin", "episodes.idx"):
        (tmp_path / "e" / name).write_bytes(b"")
    with pytest.raises(EmptyError, match="no tokens to convert"):
        convert(open_store(tmp_path / "e"), tmp_path / "out")


class FailsAt(FileSystem):
    """Fail the k-th operation with an error of the disk."""

    def __init__(self, count: int, error: int) -> None:
        self.left, self.error = count, error

    def observe(self, operation, path, *, target=None):
        self.left -= 1
        if self.left == 0:
            raise OSError(self.error, os.strerror(self.error))


@pytest.mark.parametrize("to", ["flat", "episodes", "megatron"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failure_at_every_operation_leaves_no_target_and_no_temporaries(tmp_path, to, error):
    source = build(tmp_path / "store")
    for fail_at in range(1, 200):
        target = tmp_path / f"out{fail_at}"
        try:
            convert(source, target, to=to, filesystem=FailsAt(fail_at, error))
        except WriteError as failure:
            assert os.strerror(error) in str(failure)
            # Only the very last step, making the new name durable, comes after the name is there.
            if target.exists():
                assert texts_or_tokens(open_store(target)) == texts_or_tokens(source)
        else:
            break
        assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    assert 10 < fail_at < 200


def texts_or_tokens(store: Store) -> dict[str, list[int]]:
    return {name: store[name].read(0, store[name].num_tokens).tolist() for name in store}


def test_what_a_killed_conversion_left_is_removed_by_the_next(tmp_path):
    source = build(tmp_path / "store")
    program = (
        "import os, sys\nfrom tokenreel import open_store\n"
        "from tokenreel.layouts.convert import convert\n"
        "from tokenreel.filesystem import FileSystem\n"
        "class Kills(FileSystem):\n"
        "    def observe(self, operation, path, *, target=None):\n"
        "        if operation == 'rename': os.kill(os.getpid(), 9)\n"
        "convert(open_store(sys.argv[1]), sys.argv[2], to='episodes', filesystem=Kills())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "store"), str(tmp_path / "out")]
    assert subprocess.run(command).returncode == -9
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".out.")]
    assert not (tmp_path / "out").exists()
    convert(source, tmp_path / "out", to="episodes")
    assert texts(open_store(tmp_path / "out")) == DOCUMENTS
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".out.")]


def test_batches_stay_small_whatever_the_shard(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "BATCH_TOKENS", 4)
    monkeypatch.setattr(batches, "BATCH_DOCUMENTS", 3)
    documents = [[i] * (i % 4) for i in range(40)]
    source = build(tmp_path / "store", {"train": documents})
    some = list(batches.document_batches(source["train"], batches.Carried()))
    assert max(len(batch.ids) for batch in some) == 4
    assert max(len(batch) for batch in some) == 3
    assert sum(len(batch) for batch in some) == 40


def test_progress_counts_every_token(tmp_path):
    class Counting:
        total = done = 0

        def start(self, task, *, total, unit=""):
            self.total += total

        def advance(self, amount=1):
            self.done += amount

    counting = Counting()
    convert(build(tmp_path / "store"), tmp_path / "out", progress=counting)
    assert counting.done == counting.total == 9


def test_where_a_store_came_from_is_recorded(tmp_path):
    source = build(tmp_path / "store")
    convert(source, tmp_path / "out")
    manifest = open_store(tmp_path / "out").manifest
    origin = {"layout": "native", "fingerprint": source.fingerprint}
    assert manifest.facts.build == {"converted_from": origin}


some_documents = st.lists(
    st.lists(st.tuples(st.integers(1, 65535), st.sampled_from([0.0, 0.5, 1.0])), max_size=6),
    min_size=1,
    max_size=8,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pairs=some_documents, shard_bytes=st.integers(2, 20), batch=st.integers(1, 9))
def test_any_documents_survive_every_layout(tmp_path_factory, pairs, shard_bytes, batch):
    folder = tmp_path_factory.mktemp("any")
    documents = {"train": [[*(token for token, _ in some), 0] for some in pairs]}
    weights = {"train": [[*(weight for _, weight in some), 1.0] for some in pairs]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "BATCH_TOKENS", batch)
        patch.setattr(os, "fsync", lambda descriptor: None)  # thousands of them, for nothing
        source = build(
            folder / "store", documents, vocab_size=2**16, weights=weights, shard_bytes=shard_bytes
        )
        for to in TARGETS:
            shards = {"shard_size": shard_bytes} if to in convert_module.SHARDED else {}
            convert(source, folder / to, to=to, **shards)
            result = open_store(folder / to, eos_id=0)
            assert result.layout == to
            assert texts(result) == documents
            if to in ("native", "episodes"):
                assert weights_of(result) == weights


def test_the_command_converts_and_prints_a_summary(tmp_path, capsys):
    build(tmp_path / "store")
    words = [str(tmp_path / "store"), str(tmp_path / "out")]
    assert main(["convert", *words, "--to", "flat", "--shard-size", "1K"]) == 0
    printed = capsys.readouterr().out
    assert "native to flat" in printed
    assert "train: 6 tokens in 4 documents" in printed
    assert "left out, for lack of a place: documents" in printed
    assert open_store(tmp_path / "out").num_tokens == 9


def test_the_command_prints_json_and_nothing_when_quiet(tmp_path, capsys):
    np.array([5, 0, 6], "<u2").tofile(tmp_path / "train.bin")
    words = [str(tmp_path / "train.bin"), str(tmp_path / "out"), "--dtype", "uint16"]
    assert main(["convert", *words, "--eos-id", "0", "--vocab-size", "7", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["source_layout"], result["target_layout"]) == ("bare", "native")
    assert (result["tokens"], result["documents"]) == ({"train": 3}, {"train": 2})
    assert texts(open_store(tmp_path / "out")) == {"train": [[5, 0], [6]]}
    words[1] = str(tmp_path / "quiet")
    assert main(["convert", *words, "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_the_command_says_what_is_wrong(tmp_path, capsys):
    build(tmp_path / "store")
    words = ["convert", str(tmp_path / "store"), str(tmp_path / "out")]
    assert main([*words, "--shard-size", "many"]) == 2
    assert "--shard-size: bad size (expected more than 0 bytes, such as" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "gone"), str(tmp_path / "out")]) == 1
    assert "no such file or folder" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [str, Path])
def test_a_source_may_be_named_by_its_path(tmp_path: Path, kind: type) -> None:
    store = build(tmp_path / "store")
    by_path = convert(kind(tmp_path / "store"), kind(tmp_path / "pair"), to="megatron")
    assert by_path.num_tokens == convert(store, tmp_path / "again", to="megatron").num_tokens
    assert texts(open_store(tmp_path / "pair")) == texts(open_store(tmp_path / "again"))
    with pytest.raises(NoStoreError, match="none: there is no such file or folder"):
        convert(tmp_path / "none", tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_an_unknown_target_names_the_nearest(tmp_path: Path) -> None:
    target: Any = "megatorn"
    with pytest.raises(ConfigError, match=r"got 'megatorn'\); did you mean 'megatron'\?$"):
        convert(build(tmp_path / "store"), tmp_path / "out", to=target)


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_shown_or_not(tmp_path: Path, progress: bool) -> None:
    assert convert(build(tmp_path / "store"), tmp_path / "out", progress=progress).num_tokens


def test_an_unfinished_conversion_of_something_else_names_what_convert_can_do(
    tmp_path: Path,
) -> None:
    other = StoreWriter(tmp_path / "out", vocab_size=77, shard_bytes=4)
    for _ in range(4):
        other.add([1, 2, 3])
    other.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    with pytest.raises(MismatchError) as caught:
        convert(build(tmp_path / "store"), tmp_path / "out")
    assert str(caught.value).endswith("; choose another folder, or remove this one")


@pytest.mark.parametrize(("call", "right"), [(convert, "shard_size"), (open_store, "vocab_size")])
def test_a_misspelt_keyword_names_the_nearest(tmp_path: Path, call: Any, right: str) -> None:
    with pytest.raises(ConfigError, match=rf"did you mean '{right}'\?$"):
        call(tmp_path / "store", **{right.replace("_", ""): 3})
