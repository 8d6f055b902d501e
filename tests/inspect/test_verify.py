"""verify: every byte, every index, an exact verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tokenreel import StoreWriter, open_store
from tokenreel.errors import ConfigError
from tokenreel.inspect.verify import verify, verify_store

MakeStore = Callable[..., Path]
Flip = Callable[[Path, int], None]


def test_a_store_as_it_was_written_is_whole(make_store: MakeStore) -> None:
    verdict = verify_store(make_store())
    assert verdict.ok and verdict.has_checksums and not verdict.notes
    assert verdict.num_tokens == open_store(verdict.path).num_tokens


@pytest.mark.parametrize("threads", [1, 3])
def test_a_flipped_bit_anywhere_is_found(make_store: MakeStore, flip: Flip, threads: int) -> None:
    root = make_store(num_documents=12)
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    step = 11 if threads == 1 else 37  # every bit: tests/faults/test_10_flipped_bits.py
    for path in files:
        for byte in range(0, path.stat().st_size, step):
            flip(path, 8 * byte + byte % 8)
            verdict = verify_store(root, threads=threads)
            flip(path, 8 * byte + byte % 8)
            assert not verdict.ok, (path, byte)
    assert verify_store(root, threads=threads).ok


def test_the_damaged_block_is_named(make_store: MakeStore, flip: Flip) -> None:
    root = make_store()
    shard = root / "train" / "shard_00000.bin"
    flip(shard, 8 * 300)
    (problem,) = verify_store(root).problems
    assert problem.where == str(shard)
    assert "256 bytes at offset 256 fail their checksum" in str(problem)
    assert "build the store again" in str(problem)


def test_all_damage_is_reported_at_once(make_store: MakeStore, flip: Flip) -> None:
    root = make_store()
    flip(root / "train" / "shard_00000.bin", 0)
    flip(root / "train" / "shard_00001.weights", 0)
    (root / "val" / "shard_00000.docs").unlink()
    (root / "train" / "shard_00000.origins").write_bytes(b"")
    found = {Path(problem.where or "").name for problem in verify_store(root).problems}
    assert found == {
        "shard_00000.bin",
        "shard_00001.weights",
        "shard_00000.docs",
        "shard_00000.origins",
    }


def test_damage_is_never_raised(tmp_path: Path) -> None:
    (problem,) = verify_store(tmp_path / "nothing").problems
    assert "no such file or folder" in str(problem)


def test_what_is_not_part_of_the_store_is_noted(make_store: MakeStore) -> None:
    root = make_store()
    (root / "train" / "shard_00099.bin").write_bytes(b"")
    (root / "old").mkdir()
    verdict = verify_store(root)
    assert verdict.ok
    assert any("train/shard_00099.bin is not part" in note for note in verdict.notes)
    assert any("old/ is not part" in note for note in verdict.notes)


def test_a_layout_without_checksums_is_checked_as_far_as_it_goes(tmp_path: Path) -> None:
    np.arange(100, dtype="<u2").tofile(tmp_path / "train.bin")
    verdict = verify_store(tmp_path)
    assert verdict.ok and not verdict.has_checksums
    assert "no checksums" in verdict.notes[0]


def test_ids_outside_the_vocabulary_of_a_foreign_layout_are_found(tmp_path: Path) -> None:
    ids = np.zeros(300_000, "<u2")
    ids[150_000] = 500
    ids.tofile(tmp_path / "shard_0.bin")
    (tmp_path / "meta.json").write_text('{"dtype": "uint16", "vocab_size": 300}')
    (problem,) = verify_store(tmp_path).problems
    assert "token 150,000 is outside the vocabulary" in str(problem)


def test_a_replaced_generation_is_noted(make_store: MakeStore) -> None:
    root = make_store()
    make_store(replace=True, num_documents=20)
    verdict = verify_store(root)
    assert verdict.ok
    assert any(note.startswith("train/ is not part") for note in verdict.notes)


def test_an_unfinished_build_is_no_store(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "s", vocab_size=9)
    writer.add([1])
    writer.abandon()
    (problem,) = verify_store(tmp_path / "s").problems
    assert "has not been finished" in str(problem)


@pytest.mark.parametrize("progress", [True, False])
def test_progress_is_shown_or_not(make_store: MakeStore, progress: bool) -> None:
    assert verify(make_store(), progress=progress).ok


def test_wrong_arguments_are_raised_and_name_the_nearest(make_store: MakeStore) -> None:
    path, call = make_store(), cast(Any, verify)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"thread": 2}, "verify.* has no keyword 'thread'; did you mean 'threads'"),
        ({"threads": 0}, r"bad threads \(expected >= 1, got 0\)"),
        ({"threads": "2"}, r"bad threads \(expected a whole number or None, got '2'\)"),
        ({"layout": "nativ"}, "unknown layout"),
        ({"progress": "no"}, r"bad progress \(expected True, False, or an object with start"),
    ]
    for wrong, message in cases:
        with pytest.raises(ConfigError, match=message):
            call(path, **wrong)
