"""Fault 23 at contract 003: an .npy with objects, or a pickle under another name, is refused."""

from __future__ import annotations

import inspect
import pickle

import pytest
from tests.faults.test_23_npy_with_objects import ROOT, Bomb, put_objects

from tokenreel import dropin
from tokenreel.dropin import MemoryMappedDataset
from tokenreel.errors import FormatError


def test_files_of_objects_are_refused_and_nothing_is_loaded(tmp_path):
    put_objects(tmp_path / "a.npy", tmp_path / "exploded")
    with pytest.raises(FormatError, match=r"a\.npy: the array holds Python objects"):
        MemoryMappedDataset(tmp_path, 4)
    assert not (tmp_path / "exploded").exists()


def test_a_pickle_called_npy_is_refused(tmp_path):
    (tmp_path / "a.npy").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    with pytest.raises(FormatError, match=r"a\.npy: not an \.npy header"):
        MemoryMappedDataset(tmp_path, 4)
    assert not (tmp_path / "exploded").exists()


def test_no_argument_asks_for_pickle_and_no_code_loads_one():
    for name in dropin.__all__:
        assert not any(
            "pickle" in word for word in inspect.signature(getattr(dropin, name)).parameters
        )
    for path in (ROOT / "src" / "tokenreel" / "dropin").rglob("*.py"):
        text = path.read_text()
        assert "import pickle" not in text and "np.load(" not in text and "torch.load" not in text
