"""Where two stores differ first: split, document, token; and what only their manifests tell."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.feed.making import scratch

from tokenreel import Provenance, StoreWriter, open_store
from tokenreel.errors import ConfigError
from tokenreel.inspect.comparison import compare
from tokenreel.inspect.store_comparison import compare_splits
from tokenreel.layouts.convert import convert
from tokenreel.store.store import Store
from tokenreel.text.turns import TURN

Content = tuple[tuple[int, ...], float, int]  # tokens, the weight of its turn, its record


def write(path: Path, documents: Sequence[Content], *, shard_tokens: int = 10**6) -> Store:
    options: dict[str, Any] = {"turns": True, "records": True, "provenance": True}
    with StoreWriter(path, vocab_size=1000, shard_bytes=2 * shard_tokens, **options) as writer:
        for number, (tokens, weight, record) in enumerate(documents):
            turns = np.zeros(1 if tokens else 0, TURN)
            turns["length"], turns["weight"] = len(tokens), weight
            origin = Provenance(file=f"{path.name}.jsonl", row=number)
            writer.add(tokens, turns=turns, record={"n": record}, provenance=origin)
    return open_store(path)


DOCUMENTS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2), max_size=5).map(tuple),
        st.sampled_from((0.0, 1.0, 1.0)),
        st.sampled_from((7, 7, 7, 8)),
    ),
    min_size=1,
    max_size=8,
).filter(lambda documents: any(tokens for tokens, *_ in documents))


@settings(max_examples=60, deadline=None)
@given(
    one=DOCUMENTS,
    other=DOCUMENTS,
    kept=st.integers(0, 8),
    shards=st.tuples(st.sampled_from((5, 100)), st.sampled_from((5, 7))),
)
def test_the_first_document_that_differs_is_that_of_all_documents_compared(
    one: list[Content], other: list[Content], kept: int, shards: tuple[int, int]
) -> None:
    mixed = [*one[:kept], *other[kept:]]  # alike up to some document
    other = mixed if any(tokens for tokens, *_ in mixed) else other
    pairs = enumerate(itertools.zip_longest(one, other))
    expected = next((number for number, (mine, its) in pairs if not is_same(mine, its)), None)
    with scratch() as folder:
        a, b = (
            write(folder / "a", one, shard_tokens=shards[0]),
            write(folder / "b", other, shard_tokens=shards[1]),
        )
        (found,) = compare_splits(a, b)
    assert (None if found.first is None else found.first.document) == expected
    assert found.is_complete


def is_same(one: Content | None, other: Content | None) -> bool:
    """An empty document has no turn, so no weight of one."""
    if one is None or other is None:
        return one is other
    return one == other or (not one[0] and not other[0] and one[2] == other[2])


def described(a: Store, b: Store) -> tuple[Any, ...]:
    (split,) = compare_splits(a, b)
    assert split.first is not None
    return split.first.document, split.first.token, list(split.first.fields)


def test_tokens_lengths_turns_and_records_are_told_apart(tmp_path: Path) -> None:
    base = [((5, 6, 7), 1.0, 0), ((8, 9), 1.0, 0), ((1,), 1.0, 0)]
    a = write(tmp_path / "a", base)
    changed = {
        "token": (((8, 4), 1.0, 0), (1, 1, ["tokens"])),
        "longer": (((8, 9, 9), 1.0, 0), (1, 2, ["tokens", "turns"])),
        "weight": (((8, 9), 0.0, 0), (1, None, ["turns"])),
        "record": (((8, 9), 1.0, 3), (1, None, ["records"])),
    }
    for name, (document, expected) in changed.items():
        b = write(tmp_path / name, [base[0], document, base[2]])
        assert described(a, b) == expected, name
    fewer = write(tmp_path / "fewer", base[:2])
    (found,) = compare_splits(a, fewer)
    assert found.first is not None and found.first.b is None and found.first.a is not None
    assert found.first.a.provenance == "a.jsonl:3" and found.first.document == 2


def test_ids_around_the_first_token_that_differs_are_shown(tmp_path: Path) -> None:
    tokens = list(range(100, 140))
    a = write(tmp_path / "a", [((1, 2), 1.0, 0), (tuple(tokens), 1.0, 0)])
    b = write(tmp_path / "b", [((1, 2), 1.0, 0), ((*tokens[:20], 9, *tokens[21:]), 1.0, 0)])
    first = compare_splits(a, b)[0].first
    assert first is not None and first.a is not None and first.b is not None
    assert (first.a.start, list(first.a.ids)) == (16, tokens[16:32])
    assert list(first.b.ids) == [*tokens[16:20], 9, *tokens[21:32]]


def test_other_shards_and_origins_are_the_same_content(tmp_path: Path) -> None:
    documents = [(tuple(range(n, n + 9)), 1.0, n) for n in range(30)]
    a = write(tmp_path / "a", documents)
    b = write(tmp_path / "b", documents, shard_tokens=20)
    assert a.fingerprint != b.fingerprint and len(b["train"].shards) > 3
    found = compare(a, b)
    assert found.is_same and found.why.startswith("the same tokens, documents and sidecars")
    assert {"fingerprint", "shard_bytes"} <= {item.field for item in found.differences.identity}


def test_equal_fingerprints_need_no_reading(tmp_path: Path) -> None:
    documents = [((1, 2, 3), 1.0, 0)]
    write(tmp_path / "x" / "s", documents)
    write(tmp_path / "y" / "s", documents)
    stores = [open_store(tmp_path / name / "s") for name in "xy"]
    for shard in stores[0]["train"].shards:
        Path(shard.token_file.path).unlink()
    found = compare(*stores)
    assert found.is_same and found.splits == [] and "fingerprints are equal" in found.why
    assert {item.field for item in found.differences.others} == {"path"}


def test_a_shard_of_equal_checksums_is_not_read(tmp_path: Path) -> None:
    documents = [(tuple(range(n, n + 8)), 1.0, 0) for n in range(6)]
    a = write(tmp_path / "a" / "s", documents, shard_tokens=16)
    b = write(tmp_path / "b" / "s", [*documents[:5], ((7, 7), 1.0, 0)], shard_tokens=16)
    (found,) = compare_splits(a, b)
    assert found.first is not None and found.first.document == 5
    assert found.first.a is not None and found.first.a.shard == 2


def test_the_search_is_bounded_and_says_so(tmp_path: Path) -> None:
    one, other = np.zeros(1000, np.uint16), np.zeros(1000, np.uint16)
    other[900] = 1
    stores = []
    for name, tokens in (("a", one), ("b", other)):
        tokens.tofile(tmp_path / f"{name}.bin")
        stores.append(open_store(tmp_path / f"{name}.bin", dtype="uint16"))
    (split,) = compare_splits(*stores, max_tokens=500)
    assert split.first is None and split.num_tokens == 500 and not split.is_complete
    bounded = compare(*stores, max_tokens=500)
    assert not bounded.is_same and bounded.why.startswith("the same in the tokens searched")
    first = compare_splits(*stores)[0].first
    assert first is not None and (first.document, first.token) == (None, 900)
    with pytest.raises(ConfigError, match="bad number of tokens"):
        compare_splits(*stores, max_tokens=-1)


def test_a_store_and_its_conversion_have_the_same_content(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "native", vocab_size=1000) as writer:
        for n in range(20):
            writer.add(range(n, n + 5))
    native = open_store(tmp_path / "native")
    convert(native, tmp_path / "megatron", to="megatron")
    foreign = open_store(tmp_path / "megatron" / "train")
    found = compare(native, foreign)
    assert found.is_same and found.splits[0].num_tokens == 100
    assert {"layout"} <= {item.field for item in found.differences.identity}


def test_splits_that_only_one_has_differ(tmp_path: Path) -> None:
    for name, splits in (("a", ("train", "val")), ("b", ("train",))):
        with StoreWriter(tmp_path / name, vocab_size=10) as writer:
            for split in splits:
                writer.add([1, 2], split=split)
    found = compare(open_store(tmp_path / "a"), open_store(tmp_path / "b"))
    assert not found.is_same and found.why == "split val is only in one of them"
