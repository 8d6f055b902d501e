"""Records: what else is known of a document is kept to the letter, checked, carried along."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.write_stores import write_plain
from tests.store.independent import edit_manifest, read_manifest, seal

from tokenreel import StoreWriter, open_store
from tokenreel.cli.main import main
from tokenreel.errors import DamageError, FormatError, InputError, MismatchError
from tokenreel.inspect.repair import repair_store
from tokenreel.inspect.verify import verify_store
from tokenreel.layouts.convert import convert
from tokenreel.store.document_batch import DocumentBatch, join_documents
from tokenreel.store.document_records import (
    MAX_RECORD_BYTES,
    MAX_RECORD_DEPTH,
    Records,
    record_json,
)

RECORDS: list[dict[str, Any]] = [
    {"answer": "4", "verifier": {"tolerance": 1e-9, "kinds": ["int", None, True]}},
    {},
    {"größe": 2**70, "a": -0.5, "": "\n\u2028"},
    {"answer": [[], {}, [[1]]]},
]
SMALL: dict[str, Any] = {"vocab_size": 100, "shard_bytes": 20, "block_bytes": 16, "records": True}


def write(path: Path, records: list[Any] = RECORDS, **options: Any) -> Path:
    with StoreWriter(path, **{**SMALL, **options}) as writer:
        for number, record in enumerate(records):
            writer.add(range(number + 3), record=record)
    return path


def read(path: Path, **options: Any) -> list[Any]:
    return [document.record for document in open_store(path, **options)["train"].documents()]


@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_records_come_back_as_they_were_given(tmp_path: Path, mode: str) -> None:
    write(tmp_path / "s")
    assert read(tmp_path / "s", mode=mode) == RECORDS
    split = open_store(tmp_path / "s", mode=mode)["train"]
    assert len(split.shards) > 1 and split.has_records
    assert [split.record(number) for number in range(4)] == RECORDS
    assert verify_store(tmp_path / "s").ok


def test_a_document_without_a_record_in_a_store_with_them_has_an_empty_one(tmp_path: Path) -> None:
    write(tmp_path / "s", [None, {"a": 1}])
    assert read(tmp_path / "s") == [{}, {"a": 1}]


def test_a_store_without_records_has_none_and_says_nothing_of_them(tmp_path: Path) -> None:
    write_plain(tmp_path / "s")
    assert set(read(tmp_path / "s")) == {None}
    assert "records" not in read_manifest(tmp_path / "s")["facts"]


def test_records_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    first = open_store(write(tmp_path / "a", [{"answer": 1}])).fingerprint
    assert open_store(write(tmp_path / "b", [{"answer": 2}])).fingerprint != first
    assert open_store(write(tmp_path / "c", [{"answer": 1}])).fingerprint == first


def test_keys_come_back_in_their_order(tmp_path: Path) -> None:
    record = {"y": {"q": 2, "p": 1}, "x": [{"b": 1, "a": 2}]}
    path = write(tmp_path / "s", [record])
    assert json.dumps(read(path)[0]) == json.dumps(record)
    assert verify_store(path).ok
    convert(path, tmp_path / "t")
    assert json.dumps(read(tmp_path / "t")[0]) == json.dumps(record)


def test_a_document_on_several_shards_has_its_record_once(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", **SMALL) as writer:
        writer.add(range(50), record={"answer": 50})
        writer.add([1], record={"answer": 1})
    assert read(tmp_path / "s") == [{"answer": 50}, {"answer": 1}]
    objects = [file.read_bytes() for file in sorted((tmp_path / "s/train").glob("*.objects"))]
    assert list(filter(None, objects)) == [b'{"answer":50}', b'{"answer":1}']
    assert len(objects) > 2
    assert verify_store(tmp_path / "s").ok
    convert(tmp_path / "s", tmp_path / "t")
    assert read(tmp_path / "t") == [{"answer": 50}, {"answer": 1}]


def test_an_unfinished_build_goes_on_with_the_same_records_and_refuses_others(
    tmp_path: Path,
) -> None:
    whole = write(tmp_path / "whole")
    for again, fits in ((RECORDS, True), ([{"answer": "other"}, *RECORDS[1:]], False)):
        path = tmp_path / f"resumed {fits}"
        writer = StoreWriter(path, **SMALL)
        for number in range(3):
            writer.add(range(number + 3), record=RECORDS[number])
        assert writer.num_safe() > 0
        writer.abandon()
        if fits:
            assert open_store(write(path, again)).fingerprint == open_store(whole).fingerprint
        else:
            with pytest.raises(MismatchError, match="not those that the unfinished build"):
                write(path, again)


def test_conversion_keeps_records_and_says_where_there_is_no_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "s")
    assert convert(tmp_path / "s", tmp_path / "native").left_out == ()
    assert read(tmp_path / "native") == RECORDS
    assert convert(tmp_path / "s", tmp_path / "pair", to="megatron").left_out == ("records",)
    assert "has no place for records" in caplog.text


@pytest.mark.parametrize("kind", ["records", "objects"])
def test_a_flipped_bit_is_found_by_verify(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "s")
    file = path / f"train/shard_00000.{kind}"
    data = bytearray(file.read_bytes())
    data[8] ^= 1
    file.write_bytes(data)
    (problem,) = verify_store(path).problems
    assert f"shard_00000.{kind}" in str(problem) and "fail their checksum" in str(problem)


def damaged(path: Path, kind: str, data: bytes) -> Path:
    """Write a store whose file of records says something else, under valid checksums."""
    write(path, RECORDS[:2], shard_bytes=1000)
    (path / f"train/shard_00000.{kind}").write_bytes(data)
    seal(path)
    return path


@pytest.mark.parametrize("offsets", [[0, 5, 4], [1, 3, 75], [0, 70, 2**63]])
def test_offsets_that_lead_astray_are_damage(tmp_path: Path, offsets: list[int]) -> None:
    path = damaged(tmp_path / "s", "records", np.array(offsets, "<u8").tobytes())
    with pytest.raises(DamageError, match="not in order or not inside the objects"):
        read(path)
    assert not verify_store(path).ok


def test_objects_that_are_no_json_are_damage(tmp_path: Path) -> None:
    size = len(record_json(RECORDS[0])) + 2
    path = damaged(tmp_path / "s", "objects", b"x" * size)
    with pytest.raises(DamageError, match="record of document 0 of the shard is no JSON object"):
        read(path)


def test_another_spelling_of_a_record_is_found_by_verify(tmp_path: Path) -> None:
    size = len(record_json(RECORDS[0]))
    path = damaged(tmp_path / "s", "objects", b'{ "a":' + b" " * (size - 8) + b"1}" + b"{}")
    (problem,) = verify_store(path).problems
    assert "not in its canonical spelling" in str(problem)


def test_a_cut_off_file_of_records_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = write(tmp_path / "s")
    split = open_store(path)["train"]
    assert split.record(0) == RECORDS[0]
    (path / "train/shard_00000.objects").write_bytes(b"")
    with pytest.raises(DamageError, match=r"shard_00000\.objects: the file was cut off"):
        split.record(0)


def test_a_lost_manifest_and_a_lost_shard_record_are_made_again(tmp_path: Path) -> None:
    path = write(tmp_path / "s")
    fingerprint = open_store(path).fingerprint
    (path / "train/shard_00000.json").unlink()
    repair_store(path)
    (path / "manifest.json").unlink()
    repair_store(path)
    assert open_store(path).fingerprint == fingerprint
    assert read(path) == RECORDS


def test_a_manifest_that_says_records_are_not_kept_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "s")
    edit_manifest(path, lambda manifest: manifest["facts"].update(records=False))
    with pytest.raises(FormatError, match=r"facts\.records"):
        open_store(path)
    edit_manifest(path, lambda manifest: manifest["facts"].pop("records"))
    with pytest.raises(FormatError, match=r"unknown.*records_bytes"):
        open_store(path)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"a": float("nan")}, "field 'a' cannot be written as JSON"),
        ({"a": {1: 2}}, "field 'a' has a key that is not a string"),
        ({"a": {None: 2}}, "field 'a' has a key that is not a string"),
        ({1: "a"}, "the record of a document has a key that is not a string"),
        ({(1, 2): "a"}, "the record of a document has a key that is not a string"),
        ({"": {2: 3}}, "field '' has a key that is not a string .*got 2, int"),
        ({"b": 1, "a": 10**5000}, "field 'a' cannot be written as JSON"),
        ({"a": b"bytes"}, "field 'a' cannot be written as JSON"),
        ({"a": "\ud800"}, "field 'a' cannot be written as JSON"),
        ([1], "the record of a document is not an object"),
        ({"a": "x" * MAX_RECORD_BYTES}, "too large.*1,048,576 bytes.*most of them in 'a'"),
    ],
)
def test_what_json_cannot_say_is_refused_with_the_name_of_the_field(
    record: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        record_json(record)


def nested(depth: int) -> dict[str, Any]:
    """Return a record of so many objects and lists in each other."""
    value: Any = 7
    for _ in range(depth - 1):
        value = [value]
    return {"a": value}


def test_a_record_is_kept_only_if_it_can_be_read_where_calls_are_deep(tmp_path: Path) -> None:
    def below(calls: int, act: Callable[[], Any]) -> Any:
        return act() if calls == 0 else below(calls - 1, act)

    path = write(tmp_path / "s", [nested(MAX_RECORD_DEPTH)])
    assert below(500, lambda: read(path)) == [nested(MAX_RECORD_DEPTH)]
    for depth in (MAX_RECORD_DEPTH + 1, 900, 100_000):
        with pytest.raises(InputError, match=r"field 'a'.*(too deeply|recursion depth)"):
            record_json(nested(depth))


def test_a_record_of_the_largest_size_is_kept() -> None:
    assert len(record_json({"a": "x" * (MAX_RECORD_BYTES - 8)})) == MAX_RECORD_BYTES


def test_records_that_were_not_declared_or_are_too_few_are_refused(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=9) as writer:
        with pytest.raises(InputError, match=r"declared without them.*records=True"):
            writer.add([1], record={})
        writer.add([1])
    ids, offsets = np.arange(2), np.array([0, 1, 2])
    with StoreWriter(tmp_path / "t", vocab_size=9, records=True) as writer:
        with pytest.raises(InputError, match="wrong number of records"):
            writer.add_batch(DocumentBatch(ids=ids, offsets=offsets, records=[{}]))
        writer.add([1])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)  # fmt: skip
OBJECTS = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), JSON)


@given(st.lists(st.none() | OBJECTS, min_size=1, max_size=6), st.data())
def test_taking_cutting_and_joining_records_is_that_of_lists(
    values: list[Any], data: st.DataObject
) -> None:
    def safe(value: Any) -> bool:
        try:
            record_json(value or {})
        except InputError:
            return False
        return True

    values = [value for value in values if safe(value)]
    plain = [{} if value is None else value for value in values]
    records = Records.of(values)
    assert list(records) == plain
    start, stop = data.draw(st.integers(-7, 7)), data.draw(st.integers(-7, 7) | st.none())
    step = data.draw(st.sampled_from([None, 1, 2, -1, -3]))
    assert list(records[start:stop:step]) == plain[start:stop:step]
    assert len(records[start:stop:step]) == len(plain[start:stop:step])
    order = data.draw(st.lists(st.integers(0, max(len(values) - 1, 0)), max_size=5))
    if values:
        assert list(records.take(np.array(order, np.int64))) == [plain[i] for i in order]
        joined = Records.join([records[start:stop], records])
        assert list(joined) == plain[start:stop] + plain


def test_parts_and_joins_of_a_batch_carry_its_records() -> None:
    batch = DocumentBatch(
        ids=np.arange(3), offsets=np.arange(4), records=[{"n": 0}, None, {"n": 2}]
    )
    joined = join_documents([batch.part(1, 3), batch.take(np.array([2, 0]))])
    assert joined.records is not None
    assert list(joined.records) == [{}, {"n": 2}, {"n": 2}, {"n": 0}]
    assert "records" in repr(joined)


def test_show_prints_the_first_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(write(tmp_path / "s"))]) == 0
    shown = capsys.readouterr().out
    assert "with records" in shown
    assert 'record: {"answer":"4","verifier":' in " ".join(shown.split())
