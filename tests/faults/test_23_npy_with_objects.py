"""Fault 23: an .npy with objects, any pickle: refused; no switch turns that on."""

from __future__ import annotations

import inspect
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from tokenreel import open_store
from tokenreel.errors import FormatError

ROOT = Path(__file__).resolve().parents[2]


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (os.mkdir, (str(self.target),))


def put_objects(path: Path, target: Path) -> None:
    bomb = np.empty(3, object)
    bomb[:] = [Bomb(target)] * 3
    np.save(path, bomb, allow_pickle=True)


def test_the_bomb_of_this_test_is_real(tmp_path):
    put_objects(tmp_path / "a.npy", tmp_path / "exploded")
    np.load(tmp_path / "a.npy", allow_pickle=True)
    assert (tmp_path / "exploded").exists()


def test_a_shard_of_objects_is_refused(tmp_path):
    put_objects(tmp_path / "a.npy", tmp_path / "exploded")
    with pytest.raises(FormatError, match=r"a\.npy: the array holds Python objects"):
        open_store(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_an_index_of_objects_is_refused(tmp_path):
    (tmp_path / "train_tokens.bin").write_bytes(bytes(6))
    put_objects(tmp_path / "train_idx.npy", tmp_path / "exploded")
    with pytest.raises(FormatError, match=r"train_idx\.npy: the array holds Python objects"):
        open_store(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_a_structured_dtype_with_objects_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3, [("a", "O"), ("b", "<u2")]), allow_pickle=True)
    with pytest.raises(FormatError, match="Python objects"):
        open_store(tmp_path)


@pytest.mark.parametrize("name", ["a.npy", "train_idx.npy"])
def test_a_pickle_with_another_name_is_refused(tmp_path, name):
    (tmp_path / "train_tokens.bin").write_bytes(bytes(6))
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    with pytest.raises(FormatError):
        open_store(
            tmp_path,
            file_pattern="*.npy" if name == "a.npy" else None,
            layout="flat" if name == "a.npy" else None,
        )
    assert not (tmp_path / "exploded").exists()


def test_the_pickle_beside_bare_tokens_is_not_loaded(tmp_path):
    (tmp_path / "train.bin").write_bytes(bytes(8))
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert open_store(tmp_path).num_tokens == 2
    assert not (tmp_path / "exploded").exists()


def test_no_argument_asks_for_pickle_and_no_code_of_the_store_loads_one():
    assert not any("pickle" in name for name in inspect.signature(open_store).parameters)
    for path in (ROOT / "src" / "tokenreel" / "store").rglob("*.py"):
        for line in path.read_text().splitlines():
            assert "import pickle" not in line, path
            assert "np.load(" not in line, path
            assert "allow_pickle=True" not in line, path
