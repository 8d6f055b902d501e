"""Fault 12: an index that is changed in place, of the same size, where nobody takes a sample."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.feed.making import recipe_of

from tokenreel.errors import MismatchError
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Source
from tokenreel.inspect.verify import verify_store
from tokenreel.layouts import fingerprint
from tokenreel.layouts.open_store import open_store
from tokenreel.testing import equal

LENGTHS = [7, 12] * 20_000  # an index of 320 KB to 800 KB
CHANGED = 50


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep the user's cache folder out of it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "tokenreel" / "plans"


def put_pair(folder: Path, lengths: list[int]) -> Path:
    """Write a Megatron pair of documents of one sequence each."""
    folder.mkdir()
    starts = np.cumsum([0, *lengths])
    (np.arange(starts[-1]) % 60_000).astype("<u2").tofile(folder / "p.bin")
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, len(lengths), len(lengths) + 1)
    arrays = (
        np.array(lengths, "<i4"),
        (2 * starts[:-1]).astype("<i8"),
        np.arange(len(lengths) + 1, dtype="<i8"),
    )
    (folder / "p.idx").write_bytes(head + b"".join(array.tobytes() for array in arrays))
    return folder / "p.idx"


def put_cache(folder: Path, lengths: list[int]) -> Path:
    folder.mkdir()
    starts = np.cumsum([0, *lengths])
    np.full(starts[-1], 5, "<u2").tofile(folder / "train_tokens.bin")
    np.save(folder / "train_idx.npy", starts[:-1])
    return folder / "train_idx.npy"


def put_folder(folder: Path, lengths: list[int]) -> Path:
    place = folder / "train"
    place.mkdir(parents=True)
    starts = np.cumsum([0, *lengths])
    np.full(starts[-1], 5, "<u4").tofile(place / "tokens.bin")
    np.stack((starts[:-1], lengths), axis=1).astype("<u8").tofile(place / "episodes.idx")
    return place / "episodes.idx"


LAYOUTS = {"megatron": put_pair, "cache-sft": put_cache, "episodes": put_folder}


def changed(lengths: list[int]) -> list[int]:
    """Move a token from one document to the next, 50 times, where no sample is taken."""
    others = list(lengths)
    for number in range(CHANGED):
        at = 13_000 + 2 * number
        others[at], others[at + 1] = others[at] - 1, others[at + 1] + 1
    return others


def sampled(data: bytes) -> list[bytes]:
    return [data[start : start + length] for start, length in fingerprint._pieces(len(data))]


@pytest.fixture(params=LAYOUTS)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, bytes]:
    """An index, and what another one of the same size would be that has the same samples."""
    put = LAYOUTS[request.param]
    path = put(tmp_path / "s", LENGTHS)
    other = put(tmp_path / "other", changed(LENGTHS)).read_bytes()
    return path, other


def packed(tmp_path: Path) -> Feed:
    source = Source(name="a", path=tmp_path / "s", rows="packed")
    return Feed(recipe_of(source, seq_len=64, global_batch_size=500))


def test_another_index_of_the_same_size_is_another_store_with_a_plan_of_its_own(
    tmp_path: Path, index: tuple[Path, bytes]
) -> None:
    path, other = index
    whole, times = path.read_bytes(), path.stat()
    assert len(whole) == len(other) and whole != other
    feed = packed(tmp_path)
    state = feed.state_dict()
    path.write_bytes(other)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # not even the time tells
    again = packed(tmp_path)
    assert again.stores[0].fingerprint != feed.stores[0].fingerprint
    source = Source(name="a", path=tmp_path / "other", rows="packed")
    fresh = Feed(recipe_of(source, seq_len=64, global_batch_size=500))
    assert equal([again.batch(s) for s in range(8)], [fresh.batch(s) for s in range(8)])
    with pytest.raises(MismatchError, match="stores"):
        again.load_state_dict(state)


def test_samples_alone_would_not_have_told(tmp_path: Path) -> None:
    one = put_folder(tmp_path / "one", LENGTHS).read_bytes()
    other = put_folder(tmp_path / "other", changed(LENGTHS)).read_bytes()
    assert one != other and sampled(one) == sampled(other)


def test_the_fingerprint_is_what_the_format_says(tmp_path: Path) -> None:
    index = put_pair(tmp_path / "s", LENGTHS)
    tokens = (tmp_path / "s" / "p.bin").read_bytes()
    kib = 1024
    step = (len(tokens) - 128 * kib) // 16
    pieces = [(0, 64 * kib), *((64 * kib + step * i, 4 * kib) for i in range(16))]
    pieces.append((len(tokens) - 64 * kib, 64 * kib))
    samples = b"".join(tokens[start : start + size] for start, size in pieces)
    files = {
        "p.bin": [len(tokens), sha256(samples).hexdigest()],
        "p.idx": [index.stat().st_size, sha256(index.read_bytes()).hexdigest()],
    }
    facts = {"layout": "megatron", "dtype": "uint16"}
    document = {"version": 2, "facts": facts, "files": files}
    data = json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n"
    assert open_store(tmp_path / "s").fingerprint == sha256(data.encode()).hexdigest()


def test_the_fingerprint_does_not_depend_on_times(tmp_path: Path) -> None:
    path = put_pair(tmp_path / "s", LENGTHS[:10])
    before = open_store(tmp_path / "s").fingerprint
    os.utime(path, (1, 1))
    assert open_store(tmp_path / "s").fingerprint == before


def test_a_plan_of_foreign_files_is_made_again_after_any_write(tmp_path: Path) -> None:
    """What is trained is told by a mask, of which samples are all that the fingerprint knows."""
    put_folder(tmp_path / "s", LENGTHS)
    mask = tmp_path / "s" / "train" / "mask.bin"
    mask.write_bytes(b"\1" * sum(LENGTHS))
    feed = packed(tmp_path)
    data = bytearray(mask.read_bytes())
    first = 70_000  # behind the samples at its start, of 64 KiB
    data[first : first + 100] = bytes(100)
    assert sampled(bytes(data)) == sampled(mask.read_bytes())
    mask.write_bytes(data)
    os.utime(mask, (10**9, 10**9))  # as another time than that of the build, whatever the clock
    again = packed(tmp_path)
    assert again.plans[0].ledger["trained"] < feed.plans[0].ledger["trained"]


@pytest.mark.parametrize("place", ["beside", "cache"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_verify_checks_the_plans_of_every_layout(
    tmp_path: Path, layout: str, place: str, own_cache: Path
) -> None:
    LAYOUTS[layout](tmp_path / "s", [7, 12, 30, 4])
    packed(tmp_path)
    folder = tmp_path / "s" / ".plans"
    if place == "cache":
        own_cache.parent.mkdir(parents=True)
        folder.rename(own_cache)
        folder = own_cache
    assert verify_store(tmp_path / "s").ok
    (plan,) = folder.iterdir()
    damage(plan / "lengths")
    (problem,) = verify_store(tmp_path / "s").problems
    assert problem.where == str(plan / "lengths")


def test_plans_of_another_store_in_the_cache_are_not_this_ones_problem(
    tmp_path: Path, own_cache: Path
) -> None:
    put_pair(tmp_path / "s", [7, 12])
    packed(tmp_path)
    own_cache.parent.mkdir(parents=True)
    (tmp_path / "s" / ".plans").rename(own_cache)
    put_pair(tmp_path / "t", [8, 13])
    damage(next(own_cache.iterdir()) / "lengths")
    (own_cache / "half").mkdir()
    (own_cache / "half" / "plan.json").write_bytes(b"{")
    assert verify_store(tmp_path / "t").ok


def damage(file: Path) -> None:
    data: Any = bytearray(file.read_bytes())
    data[0] ^= 1
    file.write_bytes(data)
