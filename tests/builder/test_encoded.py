"""A batch as arrays: by columns as by records; the reference looks at a stretch of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builder.making import documents, tree, write_jsonl
from tests.text.tokenizers.test_engine import WrongAt, bytes_with

from tokenreel.builder.build import build
from tokenreel.builder.encoded import column_origins
from tokenreel.errors import MismatchError
from tokenreel.store.origins import Origins
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources import InMemory
from tokenreel.text.sources.jsonl_columns import Columns
from tokenreel.text.sources.record import Record

places = st.builds(
    Provenance,
    file=st.just("a/ü.jsonl"),
    row=st.integers(0, 2**40),
    byte=st.integers(0, 2**62),
    id=st.none() | st.text(max_size=4),
)


@settings(max_examples=80, deadline=None)
@given(found=st.lists(places, min_size=1, max_size=9), halves=st.booleans())
def test_columns_keep_every_provenance(found: list[Provenance], halves: bool) -> None:
    columns = Columns(file="a/ü.jsonl")
    first = found[: len(found) // 2] if halves else []
    # As a kernel gives them, and then one by one.
    names = [place.id for place in first]
    columns.extend(
        [b""] * len(first),
        [place.row or 0 for place in first],
        [place.byte or 0 for place in first],
        names if any(name is not None for name in names) else [],
    )
    for place in found[len(first) :]:
        columns.add(Record(text="", provenance=place))
    records, strings = column_origins(columns)
    assert list(Origins(records, strings)) == found
    assert [columns.provenance(number) for number in range(len(columns))] == found


@pytest.mark.parametrize("choices", [{}, {"end_token": None}, {"deduplicate": True}])
def test_a_file_gives_the_tokens_of_the_same_documents_in_memory(
    choices: dict[str, Any], tmp_path: Path
) -> None:
    rows = documents(80)
    small: dict[str, Any] = {"tokenizer": "byte", "provenance": False, "chunk_bytes": 500}
    path = write_jsonl(tmp_path / "docs.jsonl", rows)
    build([path], out=tmp_path / "file", **small, **choices)
    texts = InMemory([row["text"] for row in rows])
    build(texts, out=tmp_path / "memory", **small, **choices)
    kinds = (".bin", ".docs")
    by_file, by_memory = (
        {name: data for name, data in tree(tmp_path / which).items() if name.endswith(kinds)}
        for which in ("file", "memory")
    )
    assert by_file == by_memory and by_file


@pytest.mark.parametrize("is_file", [True, False])
def test_an_engine_that_differs_from_the_reference_stops_the_build(
    is_file: bool, tmp_path: Path
) -> None:
    tokenizer = bytes_with(lambda: WrongAt(lambda text: text.endswith("Xyzzy")))
    texts = ["Xyzzy"] * 3
    path = write_jsonl(tmp_path / "docs.jsonl", [{"text": text} for text in texts])
    source = [path] if is_file else InMemory(texts)
    with pytest.raises(MismatchError, match=r"wrong 1\.0 and the reference encode") as caught:
        build(source, out=tmp_path / "s", tokenizer=tokenizer, end_token="<end>")
    assert str(caught.value.where).startswith("docs.jsonl:" if is_file else "(memory):")


def test_a_stretch_of_multibyte_text_is_cut_between_characters(tmp_path: Path) -> None:
    right = bytes_with(lambda: WrongAt(lambda text: False))
    assert right.engine == "wrong 1.0"
    text = "日本é" * 999
    path = write_jsonl(tmp_path / "docs.jsonl", [{"text": text}])
    built = build([path], out=tmp_path / "s", tokenizer=right, end_token="<end>")
    assert np.array_equal(
        built.store["train"].document(0).tokens, [*text.encode(), right.control_ids["<end>"]]
    )
