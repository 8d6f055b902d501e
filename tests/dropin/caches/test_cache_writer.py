"""Writing the cache layouts from stores: by links, by copies, and never the wrong dtype."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from tokenreel import StoreWriter, open_store
from tokenreel.dropin.caches.cache_writer import SftCacheWriter, write_meta, write_pretrain_shards
from tokenreel.errors import FormatError, VocabularyError, WriteError
from tokenreel.filesystem import LOCAL, FileSystem
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.store.store import Store


def store(folder: Path, *, vocab_size: int = 1000) -> Store:
    with StoreWriter(folder, vocab_size=vocab_size, shard_bytes=400) as writer:
        for number in range(30):
            writer.add(np.arange(20) + number, split="val" if number == 7 else "train")
    return open_store(folder)


class WithoutLinks(FileSystem):
    def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
        if operation == "link":
            raise OSError(errno.EXDEV, "another file system")


@pytest.mark.parametrize(("filesystem", "links"), [(LOCAL, 2), (WithoutLinks(), 1)])
def test_shards_are_linked_or_else_copied(
    tmp_path: Path, filesystem: FileSystem, links: int
) -> None:
    source = store(tmp_path / "store")
    out = tmp_path / "cache"
    write_pretrain_shards(out, source.splits, filesystem=filesystem)
    write_meta(out, {"token_dtype": "uint16-le", "vocab_size": 1000}, filesystem=filesystem)
    shards = sorted((out / "train").iterdir())
    assert len(shards) > 1 and {shard.stat().st_nlink for shard in shards} == {links}
    opened = open_store(out)
    assert opened.layout == "cache-pretrain"
    for split in ("train", "val"):
        count = source[split].num_tokens
        assert np.array_equal(opened[split].read(0, count), source[split].read(0, count))
        assert opened[split].num_tokens == count


def test_a_disk_that_is_full_is_said(tmp_path: Path) -> None:
    class Full(WithoutLinks):
        def observe(self, operation: str, path: Path, *, target: Path | None = None) -> None:
            super().observe(operation, path, target=target)
            if operation == "write":
                raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(WriteError, match=r"shard_00000\.bin: write failed: No space left"):
        write_pretrain_shards(
            tmp_path / "cache", store(tmp_path / "store").splits, filesystem=Full()
        )


def test_uint32_is_refused(tmp_path: Path) -> None:
    source = store(tmp_path / "store", vocab_size=70_000)
    with pytest.raises(FormatError, match=r"expected uint16, got uint32.*convert"):
        write_pretrain_shards(tmp_path / "cache", source.splits, filesystem=LOCAL)


def test_chats_are_written_in_parts_and_open_as_one(tmp_path: Path) -> None:
    writer = SftCacheWriter(tmp_path, vocab_size=100, filesystem=LOCAL)
    writer.add(DocumentBatch(ids=np.arange(5), offsets=np.array([0, 2, 5])), split="train")
    writer.add(DocumentBatch(ids=np.arange(9, 12), offsets=np.array([0, 3])), split="train")
    writer.finish()
    writer.close()
    assert np.load(tmp_path / "train_idx.npy").tolist() == [0, 2, 5]
    assert np.load(tmp_path / "val_idx.npy").tolist() == []
    documents = [document.tokens.tolist() for document in open_store(tmp_path)["train"].documents()]
    assert documents == [[0, 1], [2, 3, 4], [9, 10, 11]]


def test_an_id_outside_the_vocabulary_is_not_written(tmp_path: Path) -> None:
    writer = SftCacheWriter(tmp_path, vocab_size=100, filesystem=LOCAL)
    documents = DocumentBatch(ids=np.array([5, 100]), offsets=np.array([0, 2]))
    with pytest.raises(VocabularyError, match="100"):
        writer.add(documents, split="train")
    writer.close()
