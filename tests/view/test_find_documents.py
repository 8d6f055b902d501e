"""A search finds documents by number, by place and by text, tells its progress, and can be left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.view.looking import TEXTS, opened

from tokenreel import Provenance, StoreWriter, open_store
from tokenreel.errors import ConfigError, DamageError
from tokenreel.store.origins import ORIGIN
from tokenreel.view import find_documents as searching
from tokenreel.view import place_search
from tokenreel.view.answers import Answers
from tokenreel.view.find_documents import MOST_FOUND


def search(answers: Answers, query: str, **options: object) -> list[dict[str, Any]]:
    """Return the hits of a search, which ends by saying how many there were."""
    asked = [("q", query), *((name, str(value)) for name, value in options.items())]
    *told, end = answers.search(asked)
    hits = [item for item in told if "document" in item]
    progress = [item["progress"] for item in told if "progress" in item]
    assert progress == sorted(progress)
    assert end["done"]
    assert end["found"] == len(hits)
    return hits


def test_a_number_is_a_document_of_each_source(recipe: Path) -> None:
    hits = search(opened(recipe), " 50 ")
    assert [(hit["source"], hit["document"]) for hit in hits] == [(0, 50)]  # there are 40 chats
    assert [hit["source"] for hit in search(opened(recipe), "#7")] == [0, 1]
    assert [hit["source"] for hit in search(opened(recipe), "7", source=1)] == [1]
    assert search(opened(recipe), "999") == []


@pytest.mark.parametrize("place", ["texts.jsonl:5", "t4"])
def test_a_place_or_an_id_is_the_document_that_came_from_there(recipe: Path, place: str) -> None:
    (hit,) = search(opened(recipe), place)
    assert (hit["source"], hit["document"]) == (0, 4)
    assert hit["provenance"] == "texts.jsonl:5 [t4]"


def test_places_are_found_in_any_number_of_shards(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(searching, "MOST_FOUND", 5)
    with StoreWriter(tmp_path / "s", vocab_size=9, provenance=True, shard_bytes=256) as writer:
        for row in range(40):
            writer.add([1] * 40, provenance=Provenance(file="web.jsonl", row=row))
    answers = opened(tmp_path / "s")
    shards = answers.answer("api/store/0")["splits"][0]["shards"]
    assert len(shards) > 5
    assert [hit["document"] for hit in search(answers, "web.jsonl:40")] == [39]
    with_text = opened(tmp_path / "s", tokenizer="byte")
    assert [hit["document"] for hit in search(with_text, "web.jsonl:40")] == [39]


def test_a_place_is_found_by_the_end_of_its_path_alone(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=9, provenance=True, shard_bytes=1024) as writer:
        for row in range(40):
            writer.add([1] * 40, provenance=Provenance(file=f"data/{row % 2}/web.jsonl", row=row))
    answers = opened(tmp_path / "s")
    assert [hit["document"] for hit in search(answers, "1/web.jsonl:8")] == [7]
    assert [hit["document"] for hit in search(answers, "0/web.jsonl")] == list(range(0, 40, 2))
    assert [hit["document"] for hit in search(answers, "web.jsonl:8")] == [7]


NAMES = st.text("ab/.", min_size=1, max_size=4) | st.sampled_from(["ü", "a:1", "b/a:1", "x/ü"])


def is_asked(place: Provenance, text: str) -> bool:
    """Tell whether a place is one that is searched for, by strings."""

    def names(asked: str) -> bool:
        file = place.file or ""
        return file == asked or file.endswith("/" + asked.lstrip("/"))

    file, _, line = text.rpartition(":")
    is_line = line.isascii() and line.isdigit() and file != ""
    return (
        place.id == text
        or (place.file is not None and names(text))
        or (place.file is not None and is_line and names(file) and place.line == int(line))
    )


@settings(max_examples=30, deadline=None)
@given(
    places=st.lists(
        st.builds(
            Provenance,
            file=st.none() | NAMES,
            row=st.none() | st.integers(0, 2),
            id=st.none() | NAMES,
        ),
        min_size=1,
        max_size=12,
    ),
    asked=NAMES | st.builds("{}:{}".format, NAMES, st.integers(0, 3)),
    compared=st.integers(1, 40),
)
def test_places_are_found_as_by_comparing_their_strings(
    places: list[Provenance], asked: str, compared: int
) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(place_search, "COMPARED_BYTES", compared)
        with StoreWriter(f"{folder}/s", vocab_size=9, provenance=True, shard_bytes=8) as writer:
            for place in places:
                writer.add([1, 2], provenance=place)
        shards = open_store(f"{folder}/s")["train"].shards
        found, before = [], 0
        for shard in shards:
            entries = place_search.entries_from(shard, place_search.asked_place(asked))
            found += [before + entry for some in entries for entry in some.tolist()]
            before += shard.num_documents or 0
    assert found == [number for number, place in enumerate(places) if is_asked(place, asked)]


def test_a_search_by_an_id_that_all_documents_have_is_quick(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=300, provenance=True) as writer:
        for number in range(60_000):
            writer.add([1], provenance=Provenance(file="f.jsonl", row=number, id="dup"))
    answers = opened(tmp_path / "s")
    begin = time.process_time()
    assert len(search(answers, "dup")) == MOST_FOUND
    assert time.process_time() - begin < 0.5


def test_a_search_among_documents_of_a_file_each_is_quick(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=300, provenance=True) as writer:
        for number in range(40_000):
            writer.add([1], provenance=Provenance(file=f"f{number}.txt", row=0))
    answers = opened(tmp_path / "s")
    begin = time.process_time()
    assert [hit["document"] for hit in search(answers, "f7.txt:1")] == [7]
    assert time.process_time() - begin < 0.8


def test_who_leaves_a_search_of_places_ends_it(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(searching, "PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(place_search, "COMPARED_BYTES", 100)
    with StoreWriter(tmp_path / "s", vocab_size=9, provenance=True) as writer:
        for number in range(500):
            writer.add([1], provenance=Provenance(file="f.jsonl", row=number))
    answers = opened(tmp_path / "s")
    found = answers.search([("q", "g.jsonl:7")])
    assert [next(found) for _ in range(10)] == [{"progress": 0.0}] * 10
    with pytest.raises(ConfigError, match="text cannot be searched without a tokenizer"):
        list(found)  # which is known when all places were compared


@pytest.mark.parametrize("field", ["id", "file"])
@pytest.mark.parametrize("offset", [0, 40, 2**32 - 2])
def test_a_place_that_is_damaged_is_told(tmp_path: Path, field: str, offset: int) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=9, provenance=True) as writer:
        for number in range(3):
            writer.add([1], provenance=Provenance(file="f", row=number, id=f"id {number}"))
    (file,) = (tmp_path / "s").rglob("*.origins")
    (strings,) = (tmp_path / "s").rglob("*.strings")
    records = np.fromfile(file, ORIGIN)
    records[field][1] = offset
    records.tofile(file)
    strings.write_bytes(b"\xff" * strings.stat().st_size)
    with pytest.raises(DamageError, match="points past the end"):
        list(opened(tmp_path / "s").search([("q", "id 2")]))


def test_text_is_found_in_any_case_with_its_token_and_surroundings(recipe: Path) -> None:
    hits = search(opened(recipe), "story 34. ein KÜHLER")
    (hit,) = hits
    assert (hit["source"], hit["document"], hit["at"]) == (0, 34, 0)
    start, stop = hit["match"]
    assert hit["snippet"][start:stop] == "Story 34. Ein kühler"
    (hit,) = search(opened(recipe), "It is 14.")
    document = opened(recipe).answer(f"api/document/1/{hit['document']}")
    assert "".join(t or "" for t in document["texts"][hit["at"] :]).startswith("It is 14.")


def test_text_is_found_over_a_border_of_chunks(stores: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(searching, "CHUNK_TOKENS", 32)
    for number in (6, 13, 48):
        text = TEXTS[number][20:50]
        found = [hit["document"] for hit in search(opened(stores / "texts"), text)]
        assert number in found


def test_a_file_without_documents_is_searched_by_position(stores: Path) -> None:
    answers = opened(stores / "flat.bin", options={"dtype": "uint16"}, tokenizer="byte")
    (hit,) = search(answers, "Story 33.")
    assert hit["document"] is None
    assert hit["at"] == "".join(TEXTS).encode().index(b"Story 33.")


def test_a_search_ends_with_the_most_that_a_page_shows(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=512) as writer:
        for _ in range(MOST_FOUND + 50):
            writer.add(list(b"the same"))
    answers = opened(tmp_path / "s", tokenizer="byte")
    *_, end = answers.search([("q", "same")])
    assert end == {"done": True, "found": MOST_FOUND, "more": True}


def test_who_leaves_a_search_ends_it(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(searching, "PROGRESS_SECONDS", 0.0)
    with StoreWriter(tmp_path / "s", vocab_size=512) as writer:
        for _ in range(500):
            writer.add(list(b"nothing to find"))
    answers = opened(tmp_path / "s", tokenizer="byte")
    found = answers.search([("q", "elsewhere")])
    assert isinstance(found, Iterator)
    seen = [next(found) for _ in range(10)]
    assert 0 < seen[-1]["progress"] < 0.1
    found.close()  # type: ignore[attr-defined]
    assert list(found) == []


def test_text_without_a_tokenizer_is_refused_with_the_remedy(stores: Path) -> None:
    answers = opened(stores / "nowhere")
    with pytest.raises(ConfigError, match=r"text cannot be searched.*give the tokenizer"):
        answers.search([("q", "Story")])
    assert [hit["document"] for hit in search(answers, "5")] == [5]


@pytest.mark.parametrize("query", [[], [("q", "")], [("q", "  ")], [("q", "x" * 1001)]])
def test_nothing_and_too_much_to_search_for_are_refused(
    recipe: Path, query: list[tuple[str, str]]
) -> None:
    with pytest.raises(ConfigError, match=r"nothing to search for|q is too long"):
        opened(recipe).search(query)
