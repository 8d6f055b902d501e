"""Fault 1: the kernel itself is asked to make durable what a later name relies on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.faults.system_calls import Call, Disk, record_calls
from tests.rows.planning import LENGTHS, plan_folder, plan_of
from tests.store.building import LEAFLETS, OTHER_BOOKS, build, build_full

from tokenreel import open_store, train_tokenizer
from tokenreel.dropin.caches.cache_writer import write_meta, write_pretrain_shards
from tokenreel.filesystem import LOCAL
from tokenreel.layouts.convert import Target, convert
from tokenreel.layouts.eos_scan import open_sidecar
from tokenreel.store.file_arrays import ArrayFile

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="asks Linux what a descriptor is open on"
)


def files_of(folder: Path) -> set[Path]:
    """Return all files and folders in a folder, as they are now."""
    return set(folder.rglob("*"))


def check_durable_at(calls: list[Call], commit: Path, names: set[Path]) -> None:
    """Replay the calls: at the rename to `commit` all else is durable, at the end that too."""
    disk, num_commits = Disk(), 0
    for call in calls:
        if call.name == "rename":
            assert call.path not in disk.unsynced_bytes, f"{call.path} is renamed before its fsync"
        disk.apply(call)
        if call.target == commit:
            num_commits += 1
            assert disk.missing(names) == {commit}
    assert num_commits == 1
    assert disk.missing(names) == set()


def test_a_small_file_is_synced_before_its_name_and_its_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record_calls(tmp_path, monkeypatch)
    LOCAL.write_whole(tmp_path / "plan.json", b"{}")
    temporary = tmp_path / "plan.json.tmp"
    assert calls == [
        Call(name="create", path=temporary),
        Call(name="write", path=temporary),
        Call(name="fsync", path=temporary),
        Call(name="rename", path=temporary, target=tmp_path / "plan.json"),
        Call(name="fsync", path=tmp_path),
    ]


def test_a_trained_tokenizer_gets_its_name_when_all_of_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tokenizers")
    text = " ".join(f"word{number}" for number in range(300))
    calls = record_calls(tmp_path, monkeypatch)
    out = train_tokenizer(texts=[text], out=tmp_path / "new/t.json", vocab_size=300).path
    check_durable_at(calls, out, {out.parent, out})


def test_each_folder_that_is_made_is_synced_into_the_one_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record_calls(tmp_path, monkeypatch)
    LOCAL.make_dir(tmp_path / "a/b")
    assert calls == [
        Call(name="mkdir", path=tmp_path / "a"),
        Call(name="fsync", path=tmp_path),
        Call(name="mkdir", path=tmp_path / "a/b"),
        Call(name="fsync", path=tmp_path / "a"),
    ]


@pytest.mark.parametrize("make", [partial(build, corpus=LEAFLETS), build_full])
def test_a_manifest_gets_its_name_when_all_it_names_is_on_the_disk(
    memory_disk: Path, make: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = record_calls(memory_disk, monkeypatch)
    path = make(memory_disk / "books")
    check_durable_at(calls, path / "manifest.json", {path, *files_of(path)})


def test_a_manifest_replaces_another_when_all_it_names_is_on_the_disk(
    memory_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = build(memory_disk / "books", OTHER_BOOKS)
    calls = record_calls(memory_disk, monkeypatch)
    build(path, LEAFLETS, replace=True)
    check_durable_at(calls, path / "manifest.json", files_of(path))


def test_a_plan_gets_its_name_when_all_of_it_is_on_the_disk(
    memory_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [[7] * length for length in LENGTHS]
    store = open_store(build(memory_disk / "books", {"train": documents}))
    calls = record_calls(memory_disk, monkeypatch)
    plan_of(store)
    folder = plan_folder(store)
    assert len(files_of(folder)) == 7  # six columns and the header
    check_durable_at(calls, folder, {folder.parent, folder, *files_of(folder)})


@pytest.mark.parametrize("to", ["flat", "episodes", "megatron"])
def test_a_converted_store_gets_its_name_when_all_of_it_is_on_the_disk(
    memory_disk: Path, to: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(build_full(memory_disk / "books"))
    calls = record_calls(memory_disk, monkeypatch)
    out = convert(store, memory_disk / "out", to=to).path
    check_durable_at(calls, out, {out, *files_of(out)})


@pytest.mark.parametrize("links", [True, False])
def test_a_cache_gets_its_name_when_all_of_it_is_on_the_disk(
    memory_disk: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    splits = open_store(build(memory_disk / "books", LEAFLETS)).splits
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    calls = record_calls(memory_disk, monkeypatch)
    out = memory_disk / "cache"
    with LOCAL.whole_folder(out) as folder:
        write_pretrain_shards(folder, splits, filesystem=LOCAL)
        write_meta(folder, {"vocab_size": 1000}, filesystem=LOCAL)
    assert any(call.name == "link" for call in calls) == links
    check_durable_at(calls, out, {out, *files_of(out)})


def test_a_sidecar_of_documents_has_its_record_when_its_offsets_are_on_the_disk(
    memory_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = ArrayFile(path=memory_disk / "t.bin", dtype=np.dtype("<u2"), count=5)
    np.array([5, 0, 6, 0, 7], "<u2").tofile(tokens.path)
    calls = record_calls(memory_disk, monkeypatch)
    offsets = open_sidecar(tokens, 0).path
    record = offsets.with_suffix(".json")
    check_durable_at(calls, record, {offsets.parent, *files_of(offsets.parent)})
