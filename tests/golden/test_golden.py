"""Golden stores: today's writer gives exactly these bytes, today's reader reads them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from tests.golden.write_stores import STORES
from tests.store.independent import find_damage, read_documents

from tokenreel import Provenance, open_store
from tokenreel.inspect.verify import verify_store

VERSION_1 = Path(__file__).parent / "version_1"
# Of all files of a store, by name and content. Whoever changes one of these has changed the
# format: FORMAT.md, the version number and new golden stores beside these go with it.
DIGESTS = {
    "plain": "582035db657728ac6dfdc11b3ff129937b942e08855e32379cd427804ac7653a",
    "chats": "7d57737997f38c64d40b3c688a15fecc2f36ed99cc0c5ac0757647a9d209d039",
    "straddling": "fba8f0c4a77363fd6b2b20f52f27cdd3fcd326b77c7f855f9735b3da37ea3ed8",
    "prompts": "7323e997a78953d1a010ed83d51b23f7f840b746994b89fb25c8328d8deef4b0",
    "pairs": "f64e245d558c0198011fa33921031be03d6015a0ed90d4f5e4179dee694699cb",
}


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


def digest_of(root: Path) -> str:
    whole = hashlib.sha256()
    for name, data in files_of(root).items():
        whole.update(f"{name}\n{len(data)}\n".encode() + data)
    return whole.hexdigest()


@pytest.mark.parametrize("name", STORES)
def test_the_golden_bytes_are_as_they_were_committed(name: str) -> None:
    assert digest_of(VERSION_1 / name) == DIGESTS[name]


@pytest.mark.parametrize("name", STORES)
def test_the_writer_gives_the_golden_bytes(tmp_path: Path, name: str) -> None:
    STORES[name](tmp_path / name)
    assert files_of(tmp_path / name) == files_of(VERSION_1 / name)


@pytest.mark.parametrize("name", STORES)
def test_the_golden_stores_are_whole(name: str) -> None:
    assert verify_store(VERSION_1 / name).ok
    assert find_damage(VERSION_1 / name) == []


@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_the_plain_store_is_read(mode: str) -> None:
    store = open_store(VERSION_1 / "plain", mode=mode)
    expected = [[1, 2, 3, 4, 5], [], [6, 7, 8, 9, 10, 11], [999] * 9, []]
    assert [d.tokens.tolist() for d in store["train"].documents()] == expected
    assert read_documents(VERSION_1 / "plain") == expected
    assert store.document(0, split="val").tokens.tolist() == [500, 501]
    assert store.dtype == np.dtype("<u2")
    assert len(store["train"].shards) == 2


@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_the_chats_are_read(mode: str) -> None:
    store = open_store(VERSION_1 / "chats", mode=mode)
    assert store.tokenizer == {"kind": "bytes", "sha256": "0" * 64, "name": "größe"}
    assert store.vocab_size == 100_000
    document = store.document(2)
    assert document.tokens.tolist() == list(range(70_000, 70_009))
    assert document.turns is not None
    assert document.turns["start"].tolist() == [0, 2]
    assert document.turns["length"].tolist() == [2, 7]
    assert document.turns["head"].tolist() == [1, 1]
    assert document.turns["weight"].tolist() == [0, 0.5]
    assert document.turns["role"].tolist() == [1, 2]
    assert document.loss_weights.tolist() == (np.arange(9) / 8).tolist()
    assert document.provenance == Provenance(file="chats.jsonl", row=2, byte=200, id="№1")
    assert len(store.document(3)) == 0
    assert store.manifest is not None
    assert store.manifest.facts.build == {"recipe": [1, 2.5, None, True, {"a": "b"}]}
    assert store.manifest.notes == {"engine": "golden"}


@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_the_straddling_document_is_read(mode: str) -> None:
    store = open_store(VERSION_1 / "straddling", mode=mode)
    assert [shard.continues for shard in store["train"].shards] == [False, True, True, False]
    document = store.document(1)
    assert document.tokens.tolist() == list(range(25))
    assert document.weights is not None
    assert document.weights.tolist() == [number % 2 for number in range(25)]
    assert document.provenance == Provenance(row=2**63, id="")
    first = store.document(0).provenance
    assert first == Provenance(file="a\ud800")
    assert store.document(2).tokens.tolist() == [3]


@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_the_records_of_the_prompts_are_read(mode: str) -> None:
    split = open_store(VERSION_1 / "prompts", mode=mode)["train"]
    assert len(split.shards) == 3
    assert [document.record for document in split.documents()] == [
        {"answer": "π", "verifier": {"at": [1, 2.5, None, True]}},
        {},
        {},
        {"n": 2**70},
    ]


@pytest.mark.parametrize("mode", ["mmap", "pread"])
def test_the_answers_of_the_pairs_are_read(mode: str) -> None:
    split = open_store(VERSION_1 / "pairs", mode=mode)["train"]
    assert split.has_groups and len(split.shards) == 2
    tables = [document.turns for document in split.documents()]
    assert [table["answer"].tolist() for table in tables if table is not None] == [
        [0, 0, 1, 1],
        [0, 0],
        [0, 0, 1, 1, 2, 2],
    ]
    assert [set(table["label"].tolist()) for table in tables if table is not None] == [
        {1, 2},
        {2},
        {0},
    ]
