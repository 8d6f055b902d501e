"""Episode folders of contract 000."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenreel import open_store
from tokenreel.errors import DamageError, FormatError, VocabularyError
from tokenreel.layouts.episode_files import mask_faults, open_for_loader, records_of
from tokenreel.store.open_options import OpenOptions

DOCUMENTS = [[1, 2, 70000], [4], [5, 6]]
MASKS = [[0, 1, 1], [0], [1, 1]]


def test_train_and_val_open_in_place(tmp_path, episodes, texts):
    episodes(tmp_path / "train", DOCUMENTS)
    episodes(tmp_path / "val", [[9]])
    store = open_store(tmp_path)
    assert (store.layout, list(store)) == ("episodes", ["train", "val"])
    assert texts(store) == DOCUMENTS
    assert (store.dtype, store.dtype_source) == (np.uint32, "layout")
    assert not store["train"].shards[0].tokens.flags.owndata


def test_a_bare_folder_is_the_split_train(tmp_path, episodes, texts):
    episodes(tmp_path, DOCUMENTS)
    assert texts(open_store(tmp_path)) == DOCUMENTS


@pytest.mark.parametrize("kind", ["B", "f"])
@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_the_mask_comes_out_as_weights(tmp_path, episodes, kind, mode):
    masks = MASKS if kind == "B" else [[0.5 * value for value in mask] for mask in MASKS]
    episodes(tmp_path / "train", DOCUMENTS, masks, mask=kind)
    split = open_store(tmp_path, mode=mode)["train"]
    assert [document.loss_weights.tolist() for document in split.documents()] == masks


def test_shard_folders_come_in_natural_order_and_none_is_lost(tmp_path, episodes, texts):
    for number in (10, 9, 2):
        episodes(tmp_path / "train" / f"shard_{number}", [[number]], [[1]])
    assert texts(open_store(tmp_path)) == [[2], [9], [10]]
    assert texts(open_store(tmp_path / "train")) == [[2], [9], [10]]


@pytest.mark.parametrize("lost", ["tokens.bin", "episodes.idx", "mask.bin"])
def test_a_shard_folder_that_lacks_a_file_is_damage(tmp_path, episodes, lost):
    for number in range(3):
        episodes(tmp_path / "train" / f"shard_{number}", [[number]], [[1]])
    (tmp_path / "train" / "shard_1" / lost).unlink()
    with pytest.raises(DamageError, match=rf"shard_1.{lost}.*missing"):
        open_store(tmp_path)


def test_an_empty_shard_folder_is_damage(tmp_path, episodes):
    episodes(tmp_path / "train" / "shard_0", [[1]])
    (tmp_path / "train" / "shard_1").mkdir()
    with pytest.raises(DamageError, match="shard_1"):
        open_store(tmp_path)


@pytest.mark.parametrize("lost", ["tokens.bin", "episodes.idx"])
def test_a_split_that_lacks_a_file_is_damage(tmp_path, episodes, lost):
    episodes(tmp_path / "train", DOCUMENTS, MASKS)
    (tmp_path / "train" / lost).unlink()
    with pytest.raises(DamageError, match=lost):
        open_store(tmp_path)


def test_files_beside_shard_folders_are_refused(tmp_path, episodes):
    episodes(tmp_path / "train", [[1]])
    episodes(tmp_path / "train" / "shard_0", [[1]])
    with pytest.raises(FormatError, match="both here and in shard_0"):
        open_store(tmp_path)


@pytest.mark.parametrize("size", [0, 5, 7, 23, 25, 12])
def test_a_mask_of_neither_size_is_damage(tmp_path, episodes, size):
    episodes(tmp_path / "train", DOCUMENTS)
    (tmp_path / "train" / "mask.bin").write_bytes(bytes(size))
    with pytest.raises(DamageError, match=r"6 bytes \(uint8\) or 24 bytes \(float32\)"):
        open_store(tmp_path)


@pytest.mark.parametrize(("name", "size"), [("tokens.bin", 23), ("episodes.idx", 40)])
def test_a_cut_file_is_damage(tmp_path, episodes, name, size):
    path = episodes(tmp_path / "train", DOCUMENTS) / name
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DamageError, match=rf"{name}.*{size} bytes"):
        open_store(tmp_path)


def test_tokens_between_episodes_belong_to_no_document(tmp_path, episodes, texts):
    episodes(tmp_path / "train", [[1, 2], [3, 4]])
    (tmp_path / "train" / "episodes.idx").write_bytes(struct.pack("<4Q", 0, 1, 3, 1))
    store = open_store(tmp_path)
    assert texts(store) == [[1], [4]]
    assert [store["train"].document_span(number) for number in range(2)] == [(0, 1), (3, 4)]


def test_a_declared_vocabulary_is_checked(tmp_path, episodes):
    episodes(tmp_path / "train", DOCUMENTS)
    with pytest.raises(VocabularyError, match=r"uint32 \(dtype from layout\).*70,000"):
        open_store(tmp_path, vocab_size=50257)


documents_with_masks = st.lists(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 1)), max_size=5), min_size=1
)


@settings(max_examples=20, deadline=None)
@given(pairs=documents_with_masks)
def test_any_episodes_come_back(tmp_path_factory, episodes, texts, pairs):
    folder = tmp_path_factory.mktemp("episodes")
    documents = [[token for token, _ in document] for document in pairs]
    masks = [[weight for _, weight in document] for document in pairs]
    episodes(folder / "train", documents, masks)
    store = open_store(folder)
    assert texts(store) == documents
    assert [d.loss_weights.tolist() for d in store["train"].documents()] == masks


@settings(max_examples=20, deadline=None)
@given(data=st.data(), sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_a_loader_reads_an_index_in_any_order_and_knows_its_records(
    tmp_path_factory, episodes, texts, data, sizes
):
    folder = tmp_path_factory.mktemp("episodes")
    expected = []  # as the records of all shards list them
    for number, size in enumerate(sizes):
        lengths = data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
        documents = [[100 * number + i] * length for i, length in enumerate(lengths)]
        shard = episodes(folder / "train" / f"shard_{number}", documents)
        turned = data.draw(st.permutations(range(size)))
        pairs = np.fromfile(shard / "episodes.idx", "<u8").reshape(-1, 2)
        pairs[turned].tofile(shard / "episodes.idx")
        expected += [documents[record] for record in turned]
    store = open_for_loader(folder, OpenOptions(), masks=[])
    records = records_of(store["train"])
    assert sorted(records) == list(range(len(expected)))
    assert [expected[record] for record in records] == texts(store)


def test_an_index_that_is_not_sorted_is_damage_to_all_but_a_loader(tmp_path, episodes):
    episodes(tmp_path / "train", [[1, 2], [3, 4]])
    (tmp_path / "train" / "episodes.idx").write_bytes(struct.pack("<4Q", 2, 2, 0, 2))
    with pytest.raises(DamageError, match="document 1 of the index is not in order"):
        open_store(tmp_path)


def test_a_loader_opens_the_masks_it_names_and_is_told_which_are_damaged(tmp_path, episodes):
    for split in ("train", "val", "test"):
        episodes(tmp_path / split, DOCUMENTS, MASKS)
    (tmp_path / "val" / "mask.bin").write_bytes(bytes(5))
    (tmp_path / "test" / "mask.bin").unlink()
    faults = mask_faults(tmp_path, OpenOptions())
    assert (faults["train"], faults["test"]) == (None, None)
    assert "val/mask.bin: the mask does not fit" in str(faults["val"])
    store = open_for_loader(tmp_path, OpenOptions(), masks=["train", "test"])
    with_weights = {name: split.has_weights for name, split in store.splits.items()}
    assert with_weights == {"train": True, "val": False, "test": False}
