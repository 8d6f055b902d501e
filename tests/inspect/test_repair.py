"""repair: what can be made again is made again, exactly; nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tokenreel import StoreWriter
from tokenreel.errors import DamageError, StoreError
from tokenreel.inspect.repair import repair_store
from tokenreel.inspect.verify import verify_store

MakeStore = Callable[..., Path]
Flip = Callable[[Path, int], None]


def test_a_whole_store_is_left_alone(make_store: MakeStore) -> None:
    root = make_store()
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert repair_store(root) == []
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_a_manifest_is_rebuilt_to_the_byte(make_store: MakeStore, flip: Flip, how: str) -> None:
    root = make_store()
    manifest = root / "manifest.json"
    before = manifest.read_bytes()
    if how == "lost":
        manifest.unlink()
    else:
        flip(manifest, 99)
    (action,) = repair_store(root)
    assert "rebuilt from" in action and "compare the fingerprint" in action
    assert manifest.read_bytes() == before
    assert verify_store(root).ok


@pytest.mark.parametrize("how", ["lost", "damaged"])
def test_a_record_is_rebuilt_to_the_byte(make_store: MakeStore, flip: Flip, how: str) -> None:
    root = make_store()
    record = root / "train" / "shard_00001.json"
    before = record.read_bytes()
    if how == "lost":
        record.unlink()
    else:
        flip(record, 99)
    (action,) = repair_store(root)
    assert "record rebuilt" in action
    assert record.read_bytes() == before
    assert verify_store(root).ok


def test_a_lost_document_index_is_not_guessed(make_store: MakeStore) -> None:
    root = make_store()
    (root / "train" / "shard_00001.docs").unlink()
    (root / "train" / "shard_00001.json").unlink()
    with pytest.raises(DamageError, match="cannot be made again from others"):
        repair_store(root)


def test_a_record_is_not_rebuilt_over_damaged_tokens(make_store: MakeStore, flip: Flip) -> None:
    root = make_store()
    flip(root / "train" / "shard_00001.bin", 8)
    (root / "train" / "shard_00001.json").unlink()
    with pytest.raises(DamageError, match="not what it vouched for"):
        repair_store(root)
    assert not (root / "train" / "shard_00001.json").exists()


def test_a_manifest_is_not_rebuilt_over_damaged_tokens(make_store: MakeStore, flip: Flip) -> None:
    root = make_store()
    (root / "manifest.json").unlink()
    flip(root / "train" / "shard_00001.bin", 8)
    with pytest.raises(DamageError, match="fail their checksum"):
        repair_store(root)
    assert not (root / "manifest.json").exists()


def test_a_gap_among_the_shards_is_an_error(make_store: MakeStore) -> None:
    root = make_store()
    (root / "manifest.json").unlink()
    (root / "train" / "shard_00000.json").unlink()
    with pytest.raises(DamageError, match="records and token files do not match"):
        repair_store(root)


def test_two_versions_side_by_side_are_not_mixed(make_store: MakeStore) -> None:
    root = make_store()
    make_store(replace=True, num_documents=20)
    (root / "manifest.json").unlink()
    with pytest.raises(StoreError, match="two folders hold split"):
        repair_store(root)


def test_an_unfinished_build_is_not_a_damaged_store(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "s", vocab_size=9, shard_bytes=4)
    writer.add([1, 2])
    writer.add([3, 4])
    writer.abandon()
    with pytest.raises(StoreError, match="unfinished build"):
        repair_store(tmp_path / "s")
