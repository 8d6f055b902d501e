"""What goes into a store comes out, and the bytes do not depend on how it went in."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.building import SMALL, corpus_of, read_all
from tests.store.independent import contents, find_damage, read_documents

from tokenreel import DocumentBatch, Provenance, StoreWriter, open_store
from tokenreel.errors import FormatError
from tokenreel.store.split import Split
from tokenreel.text.turns import TURN

documents_strategy = st.lists(
    st.one_of(
        st.lists(st.integers(0, 999), max_size=9),
        st.integers(0, 40).map(lambda length: list(range(length))),
    ),
    min_size=1,
    max_size=12,
).filter(any)
sizes = st.fixed_dictionaries(
    {
        "shard_bytes": st.integers(4, 64),
        "block_bytes": st.sampled_from([8, 16, 24, 64, 1024]),
        "dtype": st.sampled_from(["uint16", "uint32"]),
    }
)


@pytest.fixture(scope="module")
def place() -> Any:
    """A function that gives a fresh folder in memory, so that examples do not wait for a disk."""
    base = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    root = Path(tempfile.mkdtemp(prefix="tokenreel-", dir=base))
    counter = iter(range(10**9))
    yield lambda: root / f"{next(counter)}"
    shutil.rmtree(root, ignore_errors=True)


def batch_of(documents: list[list[int]], dtype: str = "i8") -> DocumentBatch:
    lengths = [len(document) for document in documents]
    flat = [token for document in documents for token in document]
    return DocumentBatch(
        ids=np.array(flat, dtype), offsets=np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    )


def write(path: Path, documents: list[list[int]], **options: Any) -> Path:
    with StoreWriter(path, vocab_size=1000, **options) as writer:
        writer.add_batch(batch_of(documents))
    return path


def write_in_calls(path: Path, documents: list[list[int]], cuts: list[int], **options: Any) -> Path:
    """Write the same documents, divided into calls at `cuts`; a call of one document is `add`."""
    borders = sorted({0, len(documents), *(cut % (len(documents) + 1) for cut in cuts)})
    with StoreWriter(path, vocab_size=1000, **options) as writer:
        for start, stop in itertools.pairwise(borders):
            if stop - start == 1:
                writer.add(documents[start])
            else:
                writer.add_batch(batch_of(documents[start:stop], "u4"))
    return path


@settings(max_examples=20, deadline=None)
@given(documents=documents_strategy, options=sizes, cuts=st.lists(st.integers(0, 12)))
def test_the_bytes_do_not_depend_on_the_division_into_calls(
    place: Any, documents: list[list[int]], options: dict[str, Any], cuts: list[int]
) -> None:
    whole = write(place(), documents, **options)
    divided = write_in_calls(place(), documents, cuts, **options)
    assert contents(whole) == contents(divided)
    assert (whole / "manifest.json").read_bytes() == (divided / "manifest.json").read_bytes()


@settings(max_examples=20, deadline=None)
@given(documents=documents_strategy, options=sizes)
def test_documents_are_read_back_by_both_readers_and_in_both_modes(
    place: Any, documents: list[list[int]], options: dict[str, Any]
) -> None:
    path = write(place(), documents, **options)
    assert read_documents(path) == documents
    assert find_damage(path) == []
    for mode in ("mmap", "pread"):
        assert read_all(path, mode=mode) == {"train": documents}
    store = open_store(path)
    assert store.num_documents == len(documents)
    assert store.num_tokens == sum(map(len, documents))


@settings(max_examples=20, deadline=None)
@given(documents=documents_strategy, options=sizes, data=st.data())
def test_any_stretch_of_tokens_is_read_across_shards(
    place: Any, documents: list[list[int]], options: dict[str, Any], data: st.DataObject
) -> None:
    split = open_store(write(place(), documents, **options))["train"]
    flat = [token for document in documents for token in document]
    start = data.draw(st.integers(0, len(flat)))
    stop = data.draw(st.integers(start, len(flat)))
    assert split.read(start, stop).tolist() == flat[start:stop]
    assert split.read(start, stop).dtype == np.dtype(options["dtype"])
    for outside in ((-1, 0), (0, len(flat) + 1), (len(flat) + 1, len(flat) + 1)):
        with pytest.raises(IndexError, match="no tokens"):
            split.read(*outside)


@settings(max_examples=20, deadline=None)
@given(documents=documents_strategy, options=sizes)
def test_the_documents_of_a_split_lie_end_to_end_and_none_is_behind_the_last(
    place: Any, documents: list[list[int]], options: dict[str, Any]
) -> None:
    split = open_store(write(place(), documents, **options))["train"]
    begins, ends = split.document_bounds(0, len(documents))
    stops = np.cumsum([len(document) for document in documents])
    assert ends.tolist() == stops.tolist() and begins.tolist() == [0, *stops[:-1].tolist()]
    for outside in (-1, len(documents)):
        with pytest.raises(IndexError, match="no document"):
            split.document(outside)


def shard_documents(split: Split) -> list[tuple[int, bool]]:
    return [(shard.num_tokens, shard.continues) for shard in split.shards]


@settings(max_examples=20, deadline=None)
@given(documents=documents_strategy, options=sizes)
def test_only_a_document_larger_than_a_shard_straddles(
    place: Any, documents: list[list[int]], options: dict[str, Any]
) -> None:
    capacity = options["shard_bytes"] // np.dtype(options["dtype"]).itemsize
    store = open_store(write(place(), documents, **options))
    assert all(tokens <= capacity for tokens, _ in shard_documents(store["train"]))
    num_more = sum(shard.continues for shard in store["train"].shards)
    assert num_more == sum(max(0, -(-len(d) // capacity) - 1) for d in documents)
    # No shard could have taken the first document of the next.
    for left, right in itertools.pairwise(store["train"].shards):
        if not left.continues:
            start, stop = right.documents.bounds(np.array([0]))
            assert left.num_tokens + int(stop[0] - start[0]) > capacity or right.continues


def interrupt(path: Path, documents: list[list[int]], count: int, **options: Any) -> None:
    with pytest.raises(KeyboardInterrupt), StoreWriter(path, vocab_size=1000, **options) as writer:
        for document in documents[:count]:
            writer.add(document)
        raise KeyboardInterrupt


@settings(max_examples=20, deadline=None)
@given(documents=documents_strategy, options=sizes, data=st.data())
def test_an_interrupted_build_run_again_gives_the_same_bytes(
    place: Any, documents: list[list[int]], options: dict[str, Any], data: st.DataObject
) -> None:
    whole = contents(write(place(), documents, **options))
    path = place()
    for _ in range(data.draw(st.integers(1, 3))):
        interrupt(path, documents, data.draw(st.integers(0, len(documents))), **options)
    write_in_calls(path, documents, data.draw(st.lists(st.integers(0, 12))), **options)
    assert contents(path) == whole


@settings(max_examples=20, deadline=None)
@given(documents=documents_strategy, options=sizes, data=st.data())
def test_an_interrupted_build_taken_over_gives_the_same_bytes(
    place: Any, documents: list[list[int]], options: dict[str, Any], data: st.DataObject
) -> None:
    whole = contents(write(place(), documents, **options))
    path = place()
    interrupt(path, documents, data.draw(st.integers(0, len(documents))), **options)
    with StoreWriter(path, vocab_size=1000, **options) as writer:
        done = writer.resume()
        assert 0 <= done <= len(documents)
        for document in documents[done:]:
            writer.add(document)
    assert contents(path) == whole


def test_a_build_can_be_taken_over_after_any_number_of_documents(place: Any) -> None:
    documents = [[number] * (number % 5 + 8) for number in range(12)]
    whole = contents(write(place(), documents, **options_of(SMALL)))
    safe = []
    for count in range(len(documents) + 1):
        path = place()
        interrupt(path, documents, count, **options_of(SMALL))
        with StoreWriter(path, **SMALL) as writer:
            safe.append(writer.resume())
            for document in documents[safe[-1] :]:
                writer.add(document)
        assert contents(path) == whole
    # Each shard holds one of them: all but the last added are safe.
    assert safe == [0, *range(len(documents))]


@pytest.mark.parametrize("kind", ["bin", "docs", "json"])
@pytest.mark.parametrize("damage", ["lost", "shortened"])
def test_a_finished_shard_that_lost_a_file_is_written_again(
    tmp_path: Path, kind: str, damage: str
) -> None:
    documents = [[number] * 12 for number in range(5)]
    whole = contents(write(tmp_path / "whole", documents, **options_of(SMALL)))
    path = tmp_path / "books"
    interrupt(path, documents, 5, **options_of(SMALL))
    file = path / f"train/shard_00001.{kind}"
    if damage == "lost":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    if kind == "json" and damage == "shortened":
        with pytest.raises(FormatError, match="not in its canonical spelling"):
            write(path, documents, **options_of(SMALL))
        return
    with StoreWriter(path, **SMALL) as writer:
        assert writer.resume() == 1
        for document in documents[1:]:
            writer.add(document)
    assert contents(path) == whole


def options_of(settings_: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings_.items() if key != "vocab_size"}


turn_tables = st.lists(st.integers(1, 6), max_size=4)


@settings(max_examples=30, deadline=None)
@given(
    chats=st.lists(turn_tables, min_size=1, max_size=6).filter(any),
    weights=st.sampled_from([None, "uint8", "float32"]),
    data=st.data(),
)
def test_turns_and_weights_are_read_back(
    place: Any, chats: list[list[int]], weights: str | None, data: st.DataObject
) -> None:
    path = place()
    expected = []
    with StoreWriter(
        path, vocab_size=1000, shard_bytes=48, block_bytes=16, turns=True, weights=weights
    ) as writer:
        for lengths in chats:
            turns = np.zeros(len(lengths), TURN)
            turns["length"] = lengths
            turns["start"] = np.cumsum([0, *lengths])[:-1]
            turns["role"] = data.draw(
                st.lists(st.integers(0, 3), min_size=len(lengths), max_size=len(lengths))
            )
            turns["head"] = [min(1, length) for length in lengths]
            turns["weight"] = 0.25
            ids = np.arange(sum(lengths))
            stored = None if weights is None else (ids % 2).astype(weights)
            writer.add(ids, turns=turns, weights=stored)
            expected.append((ids, turns, stored))
    for mode in ("mmap", "pread"):
        for (ids, turns, stored), document in zip(
            expected, open_store(path, mode=mode)["train"].documents(), strict=True
        ):
            assert document.tokens.tolist() == ids.tolist()
            assert document.turns is not None
            for name in TURN.names or ():
                assert document.turns[name].tolist() == turns[name].tolist()
            if stored is None:
                assert document.weights is None
            else:
                assert document.weights is not None
                assert document.weights.dtype == np.dtype(weights)
                assert document.weights.tolist() == stored.tolist()
                assert document.loss_weights.tolist() == stored.tolist()


text = st.text(
    st.characters(exclude_categories=()), max_size=8
)  # surrogates included: file names can hold them
provenances = st.none() | st.builds(
    Provenance,
    file=st.none() | text,
    row=st.none() | st.integers(0, 2**64 - 2),
    byte=st.none() | st.integers(0, 2**64 - 2),
    id=st.none() | text,
)


@settings(max_examples=30, deadline=None)
@given(origins=st.lists(provenances, min_size=1, max_size=8), length=st.integers(1, 30))
def test_provenance_is_read_back_whatever_it_is(
    place: Any, origins: list[Provenance | None], length: int
) -> None:
    path = place()
    with StoreWriter(path, provenance=True, **SMALL) as writer:
        for origin in origins:
            writer.add([1] * length, provenance=origin)
    for mode in ("mmap", "pread"):
        found = [d.provenance for d in open_store(path, mode=mode)["train"].documents()]
        assert found == [origin or Provenance() for origin in origins]


def test_a_straddling_document_keeps_its_weights_and_provenance(tmp_path: Path) -> None:
    origin = Provenance(file="giant.txt", row=0)
    weights = np.arange(50) % 2
    with StoreWriter(tmp_path / "books", weights="uint8", provenance=True, **SMALL) as writer:
        writer.add([1], weights=[1])
        writer.add(np.arange(50), weights=weights, provenance=origin)
        writer.add([2], weights=[0])
    split = open_store(tmp_path / "books")["train"]
    document = split.document(1)
    assert document.tokens.tolist() == list(range(50))
    assert document.weights is not None
    assert document.weights.tolist() == weights.tolist()
    assert document.provenance == origin
    assert document.number == 1
    assert split.document(2).tokens.tolist() == [2]


def test_the_fingerprint_does_not_depend_on_the_folder_or_its_history(tmp_path: Path) -> None:
    documents = [[1, 2, 3], [4] * 12, [5]]
    first = open_store(write(tmp_path / "a", documents)).fingerprint
    shutil.move(tmp_path / "a", tmp_path / "elsewhere")
    assert open_store(tmp_path / "elsewhere").fingerprint == first
    write(tmp_path / "elsewhere", documents, replace=True)
    assert open_store(tmp_path / "elsewhere").fingerprint == first
    assert open_store(tmp_path / "elsewhere")["train"].shards[0].name.startswith("train.2/")


@settings(max_examples=20, deadline=None)
@given(documents=documents_strategy, options=sizes, data=st.data())
def test_the_fingerprint_depends_on_every_token_and_border(
    place: Any, documents: list[list[int]], options: dict[str, Any], data: st.DataObject
) -> None:
    before = open_store(write(place(), documents, **options)).fingerprint
    changed = [list(document) for document in documents]
    number = data.draw(st.sampled_from([i for i, d in enumerate(documents) if d]))
    match data.draw(st.sampled_from(["token", "border", "empty document"])):
        case "token":
            position = data.draw(st.integers(0, len(changed[number]) - 1))
            changed[number][position] = (changed[number][position] + 1) % 1000
        case "border":
            token = changed[number].pop()
            changed.insert(number + 1, [token])
        case _:
            changed.insert(number, [])
    assert (
        changed == documents or open_store(write(place(), changed, **options)).fingerprint != before
    )


@pytest.mark.parametrize(
    "other",
    [
        {"tokenizer": {"sha256": "00"}},
        {"build": {"recipe": 2}},
        {"vocab_size": 1001},
        {"shard_bytes": 26},
        {"block_bytes": 24},
    ],
)
def test_the_fingerprint_depends_on_every_fact(tmp_path: Path, other: dict[str, Any]) -> None:
    for name, options in (("a", SMALL), ("b", {**SMALL, **other})):
        with StoreWriter(tmp_path / name, **options) as writer:
            writer.add([1, 2, 3])
    assert open_store(tmp_path / "a").fingerprint != open_store(tmp_path / "b").fingerprint


def test_notes_are_kept_and_do_not_count(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with StoreWriter(tmp_path / name, **SMALL) as writer:
            writer.add([1])
            writer.notes["engine"] = name
    first, second = open_store(tmp_path / "a"), open_store(tmp_path / "b")
    assert first.fingerprint == second.fingerprint
    assert first.manifest is not None
    assert first.manifest.notes == {"engine": "a"}


def test_a_build_that_is_forgotten_leaves_what_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for name in ("new", "there", "full"):
        writer = StoreWriter(tmp_path / name, **SMALL)
        for _ in range(9):
            writer.add([1] * 12)
        assert writer.has_finished_work
        if name == "full":
            (tmp_path / "full/notes.txt").write_text("mine")
        writer.forget()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "full",
        "full/notes.txt",
        "there",
    ]


def test_a_document_is_a_view_of_the_file_in_mode_mmap(tmp_path: Path) -> None:
    path = write(tmp_path / "books", [[1, 2, 3]])
    document = open_store(path).document(0)
    assert not document.tokens.flags.owndata
    assert not document.tokens.flags.writeable
    assert open_store(path, mode="pread").document(0).tokens.flags.owndata


def test_memory_is_bounded_by_blocks_whatever_the_shard(tmp_path: Path) -> None:
    import tracemalloc

    ids = np.zeros(1_000_000, np.uint16)
    tracemalloc.start()
    with StoreWriter(tmp_path / "books", vocab_size=9, block_bytes=65536) as writer:
        for _ in range(8):
            writer.add(ids)  # 16 MB in one shard
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 1024 * 1024
    assert corpus_sizes(tmp_path / "books") == [8_000_000]


def corpus_sizes(path: Path) -> list[int]:
    return [shard.num_tokens for shard in open_store(path)["train"].shards]


def test_ids_may_lie_anywhere_in_memory(tmp_path: Path) -> None:
    base = np.arange(40, dtype=np.int32)
    raw = np.frombuffer(b"\0" + base.tobytes(), np.uint8)[1:].view(np.int32)  # not aligned
    readonly = base.copy()
    readonly.flags.writeable = False
    arrays = [base[::2], base[::-1], raw, readonly, base.astype(">i4"), base.astype(">u8")]
    with StoreWriter(tmp_path / "books", **SMALL) as writer:
        for array in arrays:
            writer.add(array)
    assert corpus_of(open_store(tmp_path / "books"))["train"] == [a.tolist() for a in arrays]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.int32, np.uint64, ">i8"])
def test_offsets_of_any_integer_type_count_the_same(tmp_path: Path, dtype: Any) -> None:
    # Offsets that are added up in their own type would wrap in the second batch.
    offsets = np.array([0, 100, 250], dtype)
    documents = DocumentBatch(ids=np.arange(250), offsets=offsets)
    with StoreWriter(tmp_path / "books", vocab_size=1000) as writer:
        writer.add_batch(documents)
        writer.add_batch(documents)
    found = [len(document) for document in open_store(tmp_path / "books")["train"].documents()]
    assert found == [100, 150, 100, 150]


def test_what_is_added_may_change_afterwards(tmp_path: Path) -> None:
    ids = np.arange(30)
    facts = {"sources": ["a"]}
    with StoreWriter(tmp_path / "books", build=facts, **SMALL) as writer:
        writer.add(ids)
        ids[:] = 7
        facts["sources"].append("b")
        writer.add(ids)
    store = open_store(tmp_path / "books")
    assert store.document(0).tokens.tolist() == list(range(30))
    assert store.manifest is not None
    assert store.manifest.facts.build == {"sources": ["a"]}
    assert find_damage(tmp_path / "books") == []
