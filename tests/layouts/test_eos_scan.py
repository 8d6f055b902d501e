"""Documents by their end token: found once, kept, and never believed when stale or damaged."""

from __future__ import annotations

import errno
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import open_store
from tokenreel.errors import ConfigError, WriteError
from tokenreel.filesystem import FileSystem
from tokenreel.layouts import eos_scan
from tokenreel.layouts.eos_scan import index_file, open_sidecar
from tokenreel.store.file_arrays import ArrayFile


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "tokenreel"


def put(folder: Path, tokens: list[int]) -> ArrayFile:
    folder.mkdir(exist_ok=True)
    array = np.array(tokens, "<u2")
    array.tofile(folder / "t.bin")
    return ArrayFile(path=folder / "t.bin", dtype=array.dtype, count=len(array))


def documents(folder: Path, eos_id: int = 0) -> list[list[int]]:
    store = open_store(folder, dtype="uint16", eos_id=eos_id)
    return [document.tokens.tolist() for document in store["train"].documents()]


def sidecar_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".tokenreel").iterdir())


def test_the_sidecar_is_n_plus_1_offsets_and_a_record(tmp_path):
    put(tmp_path / "d", [5, 0, 6, 7, 0, 8])
    assert documents(tmp_path / "d") == [[5, 0], [6, 7, 0], [8]]
    assert sidecar_files(tmp_path / "d") == ["t.bin.eos0.docs", "t.bin.eos0.json"]
    docs = np.fromfile(tmp_path / "d" / ".tokenreel" / "t.bin.eos0.docs", "<u8")
    assert docs.tolist() == [0, 2, 5, 6]
    record = json.loads((tmp_path / "d" / ".tokenreel" / "t.bin.eos0.json").read_text())
    assert (record["documents"], record["ends"], record["eos_id"]) == (3, 2, 0)


def test_it_is_built_once(tmp_path, monkeypatch):
    put(tmp_path / "d", [5, 0, 6])
    first = documents(tmp_path / "d")
    monkeypatch.setattr(eos_scan, "scan_ends", None)  # a second scan would fail
    assert documents(tmp_path / "d") == first


def test_another_end_token_has_another_sidecar(tmp_path):
    put(tmp_path / "d", [5, 0, 6])
    assert documents(tmp_path / "d", 5) == [[5], [0, 6]]
    assert documents(tmp_path / "d", 0) == [[5, 0], [6]]
    assert len(sidecar_files(tmp_path / "d")) == 4


def test_a_stale_sidecar_is_made_anew(tmp_path):
    put(tmp_path / "d", [5, 0, 6])
    documents(tmp_path / "d")
    put(tmp_path / "d", [0, 5, 6])
    os.utime(tmp_path / "d" / "t.bin", ns=(1, 1))
    assert documents(tmp_path / "d") == [[0], [5, 6]]
    assert len(sidecar_files(tmp_path / "d")) == 2


@pytest.mark.parametrize("name", ["t.bin.eos0.docs", "t.bin.eos0.json"])
def test_every_flipped_byte_of_a_sidecar_is_noticed(tmp_path, monkeypatch, name):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # hundreds of them, for nothing
    put(tmp_path / "d", [5, 0, 6, 7, 7, 7, 0, 8])
    whole = documents(tmp_path / "d")
    path = tmp_path / "d" / ".tokenreel" / name
    data = path.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        path.write_bytes(bytes(damaged))
        assert documents(tmp_path / "d") == whole
        assert path.read_bytes() == data


@pytest.mark.parametrize("name", ["t.bin.eos0.docs", "t.bin.eos0.json"])
@pytest.mark.parametrize("size", [None, 0, 8])
def test_a_cut_or_lost_half_of_a_sidecar_is_made_anew(tmp_path, name, size):
    put(tmp_path / "d", [5, 0, 6])
    whole = documents(tmp_path / "d")
    path = tmp_path / "d" / ".tokenreel" / name
    if size is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:size])
    assert documents(tmp_path / "d") == whole


def test_a_sidecar_damaged_after_opening_is_made_anew_before_it_is_used(tmp_path):
    tokens = put(tmp_path / "d", [5, 0, 6])
    index = index_file(open_sidecar(tokens, 0), mode="mmap")
    index.path.write_bytes(np.array([0, 1, 3], "<u8").tobytes())
    starts, stops = index.load().bounds(np.arange(2))
    assert (starts.tolist(), stops.tolist()) == ([0, 2], [2, 3])


def test_a_folder_that_cannot_be_written_to_uses_the_cache(tmp_path, own_cache):
    put(tmp_path / "d", [5, 0, 6])
    (tmp_path / "d" / ".tokenreel").write_text("a file, so no folder can be made here")
    assert documents(tmp_path / "d") == [[5, 0], [6]]
    assert len(list(own_cache.rglob("*.docs"))) == 1


class Failing(FileSystem):
    def __init__(self, error: int, where: Path, operation: str) -> None:
        self.error, self.where, self.operation = error, where, operation

    def observe(self, operation, path, *, target=None):
        if operation == self.operation and path.is_relative_to(self.where):
            raise OSError(self.error, os.strerror(self.error))


def test_a_read_only_file_system_uses_the_cache_and_finds_it_again(tmp_path, own_cache):
    tokens = put(tmp_path / "d", [5, 0, 6])
    read_only = Failing(errno.EROFS, tmp_path / "d", "make_dir")
    first = open_sidecar(tokens, 0, filesystem=read_only)
    assert first.path.is_relative_to(own_cache)
    assert open_sidecar(tokens, 0, filesystem=read_only) == first


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_full_or_failing_disk_is_an_error_and_leaves_nothing(tmp_path, operation, error):
    tokens = put(tmp_path / "d", [5, 0, 6])
    with pytest.raises(WriteError, match=r"t\.bin\.eos0\.docs"):
        open_sidecar(tokens, 0, filesystem=Failing(error, tmp_path / "d", operation))
    assert sidecar_files(tmp_path / "d") == []
    assert open_sidecar(tokens, 0).num_documents == 2


class StopsAt(FileSystem):
    """A crash at the k-th operation: nothing after it happens, not even tidying up."""

    def __init__(self, count: int) -> None:
        self.left = count

    def observe(self, operation, path, *, target=None):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def test_a_crash_at_every_operation_leaves_an_absent_or_a_whole_sidecar(tmp_path):
    tokens = put(tmp_path / "d", [5, 0, 6, 0, 7])
    for crash_at in range(100):
        try:
            open_sidecar(tokens, 0, filesystem=StopsAt(crash_at))
        except KeyboardInterrupt:
            assert documents(tmp_path / "d") == [[5, 0], [6, 0], [7]]
            for path in (tmp_path / "d" / ".tokenreel").iterdir():
                path.unlink()
        else:
            break
    assert 5 < crash_at < 100


def test_many_at_once_end_equal(tmp_path):
    tokens = put(tmp_path / "d", [5, 0, 6] * 1000)
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(open_sidecar(tokens, 0))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(sidecar == found[0] for sidecar in found)
    assert len(sidecar_files(tmp_path / "d")) == 2


def test_an_end_token_that_never_occurs_is_said(tmp_path, caplog):
    put(tmp_path / "d", [5, 6])
    assert documents(tmp_path / "d", 9) == [[5, 6]]
    assert "the end token 9 occurs nowhere" in caplog.text


@pytest.mark.parametrize("eos_id", [-1, 100, 2**63])
def test_an_end_token_outside_the_vocabulary_is_refused(tmp_path, eos_id):
    put(tmp_path / "d", [5, 6])
    with pytest.raises(ConfigError, match="bad eos_id"):
        open_store(tmp_path / "d", dtype="uint16", vocab_size=100, eos_id=eos_id)


@settings(max_examples=50, deadline=None)
@given(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=40), piece=st.integers(1, 7))
def test_pieces_of_any_size_give_the_same_documents(tmp_path_factory, tokens, piece):
    folder = tmp_path_factory.mktemp("scan")
    array = put(folder / "d", tokens)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eos_scan, "SCAN_TOKENS", piece)
        sidecar = open_sidecar(array, 0)
    offsets = np.fromfile(sidecar.path, "<u8").tolist()
    ends = [i + 1 for i, token in enumerate(tokens) if token == 0]
    assert offsets == [0, *ends] + ([len(tokens)] if tokens[-1] else [])
    assert (sidecar.num_documents, sidecar.num_ends) == (len(offsets) - 1, len(ends))


class Counting(FileSystem):
    def __init__(self) -> None:
        self.operations: list[str] = []

    def observe(self, operation, path, *, target=None):
        self.operations.append(operation)


def test_of_processes_that_open_a_store_at_once_one_scans_and_the_others_wait(tmp_path):
    tokens = put(tmp_path / "d", [5, 0, 6] * 1000)
    disk = Counting()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: open_sidecar(tokens, 0, filesystem=disk), range(4)))
    assert [sidecar.num_documents for sidecar in found] == [1001] * 4
    assert disk.operations.count("create") == 2  # offsets and record, once


def test_what_a_killed_scan_left_is_removed_by_the_next(tmp_path):
    tokens = put(tmp_path / "d", [5, 0, 6])
    (tmp_path / "d" / ".tokenreel").mkdir()
    for name in (".t.bin.eos0.docs.0123abcd.tmp", "t.bin.eos0.docs.0123456789abcdef.tmp"):
        (tmp_path / "d" / ".tokenreel" / name).write_bytes(b"half")
    open_sidecar(tokens, 0)
    assert sidecar_files(tmp_path / "d") == ["t.bin.eos0.docs", "t.bin.eos0.json"]


def test_a_damaged_sidecar_that_cannot_be_replaced_is_scanned_once_into_the_cache(
    tmp_path, own_cache
):
    tokens = put(tmp_path / "d", [5, 0, 6])
    damaged = open_sidecar(tokens, 0).path
    damaged.write_bytes(np.array([0, 1, 3], "<u8").tobytes())
    read_only = Failing(errno.EROFS, tmp_path / "d", "create")
    written = []
    for _ in range(2):
        index = index_file(open_sidecar(tokens, 0, filesystem=read_only), mode="mmap")
        starts, stops = index.load().bounds(np.arange(2))
        assert (starts.tolist(), stops.tolist()) == ([0, 2], [2, 3])
        (kept,) = own_cache.rglob("*.docs")
        written.append(kept.stat().st_ino)
    assert written[0] == written[1]
