"""What people see: reprs of a few lines with numbers, and HTML in notebooks that nothing breaks."""

from __future__ import annotations

import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.feed.making import recipe_of, write_store

import tokenreel
from tokenreel.display import KINDS, Token, printed, table, token_rows
from tokenreel.errors import MismatchError
from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Source
from tokenreel.store.document_batch import DocumentBatch

HOSTILE = "</span><script>alert('x')</script>\u202e&\"\x00"


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    write_store(tmp_path / "a", [100, 7, 30])
    write_store(tmp_path / "b", [9, 12, 40], sidecar="turns", first_token=1000)
    sources = [
        Source(name="a", path=tmp_path / "a", weight=3),
        Source(name="b", path=tmp_path / "b", rows="packed"),
    ]
    phase = Phase(start_step=9, weights={"b": 1})
    return Feed(recipe_of(*sources, phases=[phase], steps=50))


def test_a_feed_tells_step_shape_and_what_each_source_gives(feed: Feed) -> None:
    feed.step = 4
    first, a, b = repr(feed).splitlines()
    assert first == "Feed(step 4 of 50, global batch of 4 rows of 8 tokens, seed 0)"
    assert a == f"  a: share 75.0%, 17 rows (windows), 0.71 epochs so far, {feed.stores[0].path}"
    assert b.startswith("  b: share 25.0%, 2 rows (packed), 2.00 epochs so far, ")
    feed.step = 9
    assert "  b: share 100.0%" in repr(feed)


def test_a_feed_of_many_sources_tells_of_a_few(tmp_path: Path) -> None:
    write_store(tmp_path / "a", [100])
    sources = [Source(name=f"s{number}", path=tmp_path / "a") for number in range(30)]
    shown = repr(Feed(recipe_of(*sources, passes=2)))
    assert len(shown.splitlines()) == 10
    assert shown.endswith("… and 22 more sources")
    assert "passes 2" in shown


def test_a_store_and_its_splits_and_documents_tell_their_counts(feed: Feed) -> None:
    store = feed.stores[1]
    assert repr(store) == (
        f"Store('{store.path}', native, uint16, vocabulary of 65,536)\n"
        "  train: 3 documents, 61 tokens, turns"
    )
    assert repr(store["train"]) == "Split('train', 3 documents, 61 tokens, 1 shard, turns)"
    document, count = repr(store.document(2)).split("\n  turns: ")
    assert document == "Document(train 2, 40 tokens, b.jsonl:3)"
    assert re.fullmatch(r"((system|user|assistant|tool) \d+( \(\d+ trained\))?(, )?)+", count)


def test_where_documents_are_not_known_the_repr_says_so(tmp_path: Path) -> None:
    np.arange(50, dtype="<u2").tofile(tmp_path / "train.bin")
    store = tokenreel.open_store(tmp_path / "train.bin", dtype="uint16")
    assert "train: documents unknown, 50 tokens" in repr(store)
    assert "documents unknown, 50 tokens" in repr(store["train"])


def test_a_build_tells_where_the_tokens_went_and_the_store(tmp_path: Path) -> None:
    chats = [[{"role": "user", "content": "a?"}, {"role": "assistant", "content": "b"}]] * 3
    told: dict[str, Any] = {"chats": chats, "out": tmp_path / "s", "tokenizer": "byte"}
    built = tokenreel.build(**told, progress=False)
    ledger = built.report["ledger"]
    counts = f"tokens: {ledger['trained']} trained, {ledger['masked']} masked"
    assert repr(built) == f"Built(3 documents, {counts})\n  " + repr(built.store).replace(
        "\n", "\n  "
    )
    again = tokenreel.build(**told, progress=False)
    assert repr(again).startswith(f"Built(already there, 3 documents, {counts})")
    assert built._repr_html_() == built.store._repr_html_()


def test_a_batch_of_documents_tells_what_it_has() -> None:
    batch = DocumentBatch(ids=np.arange(9), offsets=np.array([0, 4, 9]), weights=np.ones(9))
    assert repr(batch) == "DocumentBatch(2 documents, 9 tokens, weights)"


def test_a_batch_counts_its_slots_and_never_prints_arrays(feed: Feed) -> None:
    batch = feed.batch(12)  # of b alone
    told = re.fullmatch(
        r"Batch\(step 12, 4 rows of 8 tokens, (\d+) trained, (\d+) masked, (\d+) padding, "
        r"(\d+) segments\)",
        repr(batch),
    )
    assert told is not None
    trained, masked, padding, segments = map(int, told.groups())
    assert trained == np.count_nonzero(batch.loss_weights)
    assert padding == np.count_nonzero(batch.segment_ids == 0)
    assert trained + masked + padding == 32
    assert segments == sum(len(np.unique(row[row > 0])) for row in batch.segment_ids)


def test_an_explained_step_tells_rows_and_documents(feed: Feed) -> None:
    explained = feed.explain(3)
    shown = repr(explained).splitlines()
    assert shown[0] == "Explained(step 3, 4 rows)"
    assert re.fullmatch(r"  row 0: '[ab]' epoch \d, \d+ trained, documents [\d, ]+", shown[1])
    row = explained.rows[0]
    assert repr(row).startswith(f"ExplainedRow(0, '{row.source}', epoch {row.epoch}, ")
    assert repr(row.segments[0]) in repr(row)
    assert re.fullmatch(
        r"Segment\('[ab]' document \d, tokens \d+ to \d+, \d+ trained, [ab]\.jsonl:\d\)",
        repr(row.segments[0]),
    )


@pytest.mark.parametrize(
    "kind", [Feed, Batch, tokenreel.Store, tokenreel.Document, tokenreel.Split]
)
def test_the_repr_of_what_is_half_made_does_not_raise(kind: Any) -> None:
    assert kind.__name__ in repr(object.__new__(kind))


class Shown(HTMLParser):
    """Reads what a browser would: elements with their titles, and the text of each kind."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.tokens: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = dict(attrs)
        self.open.append(str(found.get("class")) if "title" in found else "")

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1]:
            self.tokens.append((self.open[-1].split()[0].removeprefix("tokenreel-"), data))


def test_a_notebook_shows_each_token_by_what_becomes_of_it(feed: Feed) -> None:
    batch = feed.batch(12)
    shown = Shown(batch._repr_html_())
    assert shown.open == [], "every element is closed"
    kinds = [kind for kind, _ in shown.tokens]
    # The last label of a row is no token of it, and the first token of a segment no label.
    targets = np.count_nonzero(batch.loss_weights[:, :-1])
    assert kinds.count("trained") == targets
    assert kinds.count("trained") + kinds.count("masked") == np.count_nonzero(batch.segment_ids)
    ids = [int(text) for kind, text in shown.tokens if kind != "padding"]
    assert ids == batch.input_ids[batch.segment_ids > 0].tolist()
    padding = [int(text.split()[0]) for kind, text in shown.tokens if kind == "padding"]
    assert sum(padding) == np.count_nonzero(batch.segment_ids == 0)


def text_store(path: Path, texts: list[str]) -> Source:
    """Write texts, byte by byte, and return them as a source in their order."""
    with tokenreel.StoreWriter(path, vocab_size=256) as writer:
        for text in texts:
            writer.add(list(text.encode()))
    return Source(name="a", path=path, rows="packed", shuffle=False)


def test_text_is_shown_whole_characters_and_escaped(tmp_path: Path) -> None:
    source = text_store(tmp_path / "s", ["naïve ✓ 🎲", HOSTILE])
    feed = Feed(recipe_of(source, seq_len=80, global_batch_size=1))
    page = feed.show(0, tokenizer="byte")._repr_html_()
    shown = Shown(page)
    text = "".join(text for kind, text in shown.tokens if kind != "padding")
    assert text == "naïve ✓ 🎲" + HOSTILE.replace("\u202e", "\\u202e").replace("\x00", "␀")
    assert "script" not in shown.tags
    assert "<script" not in page
    assert ("trained", "🎲") in shown.tokens
    assert "[aïve ✓ 🎲]" in repr(feed.show(0, tokenizer="byte"))


def test_bytes_that_are_no_character_are_shown_four_at_a_time(tmp_path: Path) -> None:
    with tokenreel.StoreWriter(tmp_path / "s", vocab_size=256) as writer:
        writer.add([0x80] * 11)
    source = Source(name="a", path=tmp_path / "s", rows="packed", shuffle=False)
    feed = Feed(recipe_of(source, seq_len=11, global_batch_size=1))
    page = feed.show(0, tokenizer="byte")._repr_html_()
    assert [told.count("128") for told in re.findall(r'title="([^"]*)"', page)] == [4, 4, 3]


def test_a_character_cut_off_by_the_end_of_what_is_shown_is_shown_as_far_as_it_goes(
    tmp_path: Path,
) -> None:
    feed = Feed(recipe_of(text_store(tmp_path / "s", ["na🎲"]), seq_len=5, global_batch_size=1))
    shown = Shown(feed.show(0, tokenizer="byte", tokens=4)._repr_html_())
    assert [text for _, text in shown.tokens] == ["n", "a", "\ufffd"]


def test_ids_that_a_tokenizer_lacks_are_shown_as_numbers(feed: Feed) -> None:
    shown = Shown(feed.batch(12).show("byte")._repr_html_())
    assert ("⟨" in shown.tokens[0][1]) and shown.open == []


def test_a_tokenizer_that_is_not_the_stores_is_refused(tmp_path: Path) -> None:
    built = tokenreel.build(texts=["abc" * 30], out=tmp_path / "s", tokenizer="byte")
    recorded = {**(built.store.tokenizer or {}), "fingerprint": "of another"}
    with tokenreel.StoreWriter(tmp_path / "t", vocab_size=300, tokenizer=recorded) as writer:
        writer.add(range(90))
    feed = Feed(recipe_of(Source(name="t", path=tmp_path / "t")))
    with pytest.raises(MismatchError, match="of another tokenizer"):
        feed.show(0, tokenizer="byte")


def test_a_large_batch_makes_a_small_page_that_says_what_is_left(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [60_000])
    feed = Feed(
        recipe_of(Source(name="s", path=tmp_path / "s"), seq_len=1000, global_batch_size=64)
    )
    page = feed.batch(0)._repr_html_()
    assert len(page) < 150_000
    assert "… and 56 more rows" in page
    assert "… and 872 more tokens" in page
    assert "… and 56 more rows" in repr(feed.show(0))
    assert len(Shown(feed.show(0, rows=2, tokens=5)._repr_html_()).tokens) == 10


def test_a_batch_of_microbatches_is_shown_row_by_row(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [97])  # twelve windows, none of them padded
    feed = Feed(recipe_of(Source(name="s", path=tmp_path / "s"), grad_accum=2))
    assert repr(feed.batch(0)).startswith("Batch(step 0, 2 x 2 rows of 8 tokens, 32 trained, ")
    assert "row 3, source 0" in repr(feed.show(0))


def test_tables_of_stores_and_feeds_are_whole_and_escaped(feed: Feed, tmp_path: Path) -> None:
    for page in (feed._repr_html_(), feed.stores[1]._repr_html_()):
        assert Shown(page).open == []
    assert "<td" in feed._repr_html_()
    rows = [[HOSTILE, number, 0.5, True] for number in range(20)]
    page = table(HOSTILE, ["a", "b", "c", "d"], rows)
    assert "<script" not in page
    assert "… and 12 more" in page
    assert Shown(page).tags == {"div", "b", "table", "tr", "td", "th"}


@given(st.text(), st.sampled_from(KINDS), st.text())
def test_no_text_breaks_out_of_its_token(text: str, kind: str, told: str) -> None:
    token = Token(text=text, kind=kind, told=told, begins=True)
    shown = Shown(token_rows(text, [(told, [token], 0)], 0))
    assert shown.tags == {"style", "div", "b", "span"}
    assert shown.open == []
    assert shown.tokens == [(kind, "".join(part for _, part in shown.tokens))]
    # No control, no mark of direction, nothing else that would change what stands around it.
    assert not {unicodedata.category(character)[0] for character in printed(text)} & {"C"}
