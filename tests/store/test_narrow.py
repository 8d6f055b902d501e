"""The kernel and the numpy reference of narrow are the same function."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import native
from tokenreel.errors import VocabularyError
from tokenreel.store.narrow import (
    OutOfVocabularyError,
    narrow,
    narrow_ended,
    narrow_reference,
)

SOURCES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
TARGETS = ("<u2", "<u4")
EDGES = [0, 1, 2, 126, 127, 128, 254, 255, 256, 32767, 32768, 65534, 65535, 65536, 65537]
EDGES += [2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 1]
EDGES += [-value for value in EDGES if value]


@pytest.fixture
def kernel() -> ModuleType:
    extension = native.extension()
    if extension is None:
        pytest.skip("the extension is not built or not wanted")
    return extension


def by_kernel(
    kernel: ModuleType, ids: np.ndarray, target: str, limit: int
) -> tuple[np.ndarray, int]:
    narrowed = np.zeros(len(ids), target)
    kind = f"{ids.dtype.kind}{ids.dtype.itemsize}"
    return narrowed, kernel.narrow(ids, kind, narrowed, narrowed.itemsize, limit)


def by_reference(ids: np.ndarray, target: str, limit: int) -> tuple[np.ndarray, int]:
    narrowed = np.zeros(len(ids), target)
    return narrowed, narrow_reference(ids, narrowed, limit)


def by_python(ids: list[int], limit: int) -> int:
    """The oracle of both: the first id outside, by integers that have no width."""
    return next((i for i, value in enumerate(ids) if not 0 <= value < limit), -1)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_kernel_and_reference_agree_on_every_edge(
    kernel: ModuleType, source: str, target: str
) -> None:
    info = np.iinfo(source)
    values = [value for value in EDGES if info.min <= value <= info.max]
    largest = np.iinfo(target).max + 1
    for limit in sorted({edge for edge in EDGES if 1 <= edge <= largest} | {largest}):
        for value in values:
            ids = np.array([0, value, 0], source)
            expected = by_python([0, value, 0], limit)
            narrowed, bad = by_kernel(kernel, ids, target, limit)
            reference, reference_bad = by_reference(ids, target, limit)
            assert bad == reference_bad == expected, (value, limit)
            if bad < 0:
                assert narrowed.tolist() == reference.tolist() == [0, value, 0]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_kernel_and_reference_agree_on_anything(data: st.DataObject) -> None:
    kernel = native.extension()
    if kernel is None:
        pytest.skip("the extension is not built or not wanted")
    source = data.draw(st.sampled_from(SOURCES))
    target = data.draw(st.sampled_from(TARGETS))
    info = np.iinfo(source)
    limit = data.draw(st.integers(1, np.iinfo(target).max + 1))
    inside = st.integers(0, min(limit - 1, int(info.max)))
    anything = st.integers(int(info.min), int(info.max))
    values = data.draw(st.lists(st.one_of(inside, inside, anything), max_size=50))
    ids = np.array(values, source)
    narrowed, bad = by_kernel(kernel, ids, target, limit)
    reference, reference_bad = by_reference(ids, target, limit)
    assert bad == reference_bad == by_python(values, limit)
    if bad < 0:
        assert narrowed.tolist() == reference.tolist() == values


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("length", [0, 1, 31, 4095, 4096, 4097, 3 * 4096, 10_001])
def test_the_first_of_many_is_found_in_runs_of_any_length(
    kernel: ModuleType, source: str, length: int
) -> None:
    ids = (np.arange(length) % 100).astype(source)
    narrowed, bad = by_kernel(kernel, ids, "<u2", 100)
    assert bad == -1
    assert narrowed.tolist() == ids.tolist()
    for position in sorted({0, length // 2, length - 2, length - 1} & set(range(length))):
        wrong = ids.copy()
        wrong[position:] = 100
        assert by_kernel(kernel, wrong, "<u2", 100)[1] == position
        assert by_reference(wrong, "<u2", 100)[1] == position


@pytest.mark.parametrize("reference", [False, True])
def test_narrow_takes_arrays_as_they_come(monkeypatch: pytest.MonkeyPatch, reference: bool) -> None:
    if reference:
        monkeypatch.setattr(native, "extension", lambda: None)
    base = np.arange(60, dtype=np.int64)
    unaligned = np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view(np.int64)
    frozen = base.copy()
    frozen.flags.writeable = False
    for ids in (base, base[::3], base[::-1], unaligned, frozen, base.astype(">i8"), base[:0]):
        assert narrow(ids, np.dtype("<u2"), limit=60).tolist() == ids.tolist()
    with pytest.raises(OutOfVocabularyError) as caught:
        narrow(base[::-1], np.dtype("<u2"), limit=59)
    assert (caught.value.token, caught.value.position, caught.value.limit) == (59, 0, 59)
    with pytest.raises(VocabularyError, match=r"token ids must be integers \(got float64\)"):
        narrow(base.astype(float), np.dtype("<u2"), limit=60)


def test_a_limit_beyond_the_dtype_is_the_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    for forget in (False, True):
        if forget:
            monkeypatch.setattr(native, "extension", lambda: None)
        with pytest.raises(OutOfVocabularyError) as caught:
            narrow(np.array([65_535, 65_536]), np.dtype("<u2"), limit=2**40)
        assert caught.value.expected == "0 to 65,535"


def test_the_kernel_refuses_buffers_that_do_not_fit(kernel: ModuleType) -> None:
    ids, target = np.arange(8, dtype=np.int32), np.zeros(8, np.uint16)
    with pytest.raises(ValueError, match="buffer sizes do not fit"):
        kernel.narrow(ids, "i4", target[:7], 2, 100)
    with pytest.raises(ValueError, match="buffer sizes do not fit"):
        kernel.narrow(np.zeros(7, np.uint8), "i4", target, 2, 100)
    for kind, itemsize in (("f4", 2), ("i3", 2), ("i4", 1), ("i4", 8), ("", 2), ("i", 2)):
        with pytest.raises(ValueError, match="no kernel from"):
            kernel.narrow(ids, kind, target, itemsize, 100)
    with pytest.raises((BufferError, ValueError)):
        kernel.narrow(ids[::2], "i4", target, 2, 100)
    with pytest.raises((BufferError, TypeError)):
        kernel.narrow(ids, "i4", bytes(16), 2, 100)
    with pytest.raises(TypeError):
        kernel.narrow(ids, "i4", target, 2)
    assert target.tolist() == [0] * 8


def test_the_environment_asks_for_the_reference() -> None:
    program = (
        "import numpy as np\n"
        "from tokenreel import native\n"
        "from tokenreel.store.narrow import narrow\n"
        "print(native.extension(), native.status())\n"
        "print(narrow(np.array([1, 2, 3]), np.dtype('<u2'), limit=4).tolist())\n"
        "try: narrow(np.array([1, -1]), np.dtype('<u2'), limit=4)\n"
        "except Exception as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "TOKENREEL_NATIVE": "0"},
    )
    assert done.stdout.splitlines() == [
        "None numpy (TOKENREEL_NATIVE=0)",
        "[1, 2, 3]",
        "token id at position 1 is outside the vocabulary (expected 0 to 3, got -1); "
        "use the tokenizer the store was declared with, or a larger vocab_size",
    ], done.stderr


def test_a_missing_extension_is_said_once_and_numpy_serves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "tokenreel._native", None)
    monkeypatch.delenv("TOKENREEL_NATIVE", raising=False)
    native.extension.cache_clear()
    try:
        assert native.extension() is None
        assert native.extension() is None
        assert native.status().startswith("numpy (the C extension was not built")
        assert len([r for r in caplog.records if "numpy serves instead" in r.message]) == 1
        assert narrow(np.array([1]), np.dtype("<u2"), limit=2).tolist() == [1]
    finally:
        native.extension.cache_clear()


documents = st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=6)


@settings(max_examples=50, deadline=None)
@given(
    found=documents,
    source=st.sampled_from(["u4", "i8", ">u2"]),
    target=st.sampled_from(TARGETS),
    limit=st.integers(8, 120),
)
def test_documents_are_narrowed_and_ended_as_in_plain_python(
    found: list[list[int]], source: str, target: str, limit: int
) -> None:
    ids = np.array([token for row in found for token in row], source)
    offsets = np.cumsum([0, *map(len, found)])
    bad = by_python(ids.tolist(), limit)
    if bad >= 0:
        with pytest.raises(OutOfVocabularyError) as caught:
            narrow_ended(ids, offsets, np.dtype(target), limit=limit, end_id=7)
        assert (caught.value.position, caught.value.token) == (bad, ids[bad])
        return
    ended = narrow_ended(ids, offsets, np.dtype(target), limit=limit, end_id=7)
    assert ended.dtype == target
    assert ended.tolist() == [token for row in found for token in (*row, 7)]


def test_documents_of_ids_that_are_no_integers_are_refused() -> None:
    for ids in (np.array([1.0, 2.5]), np.array([True, False])):
        with pytest.raises(VocabularyError, match=f"must be integers.*got {ids.dtype}"):
            narrow_ended(ids, np.array([0, 2]), np.dtype("<u2"), limit=9, end_id=7)


def test_an_end_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(OutOfVocabularyError, match="expected 0 to 6, got 7"):
        narrow_ended(np.array([1]), np.array([0, 1]), np.dtype("<u2"), limit=7, end_id=7)


@pytest.mark.parametrize("offsets", [[0, 3], [-1, 1], [1, 0], [0, 2**40]])
def test_offsets_that_point_elsewhere_are_refused(kernel: ModuleType, offsets: list[int]) -> None:
    ids, target = np.array([1, 2], "u4"), np.zeros(9, "<u2")
    with pytest.raises(ValueError, match="point outside the ids"):
        kernel.narrow_ended(ids, "u4", np.array(offsets), target, 2, 9, 7)
    with pytest.raises(ValueError, match="sizes do not fit"):
        kernel.narrow_ended(ids, "u4", np.array(offsets), target[:2], 2, 9, 7)
