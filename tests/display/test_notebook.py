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
from tokenreel.display import table
from tokenreel.display.escaped import printed, token_html, visible
from tokenreel.display.share_bands import MOST_BANDS, share_bands
from tokenreel.display.style_sheet import notebook_style
from tokenreel.display.token_chips import Chip, chips_html
from tokenreel.errors import MismatchError
from tokenreel.feed.batch import Batch
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Phase, Source
from tokenreel.feed.trace import Explained, ExplainedRow, Segment
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.text.tokenizers.id_texts import MOST_IDS

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
        r"Batch\(step 12, 4 rows of 8 tokens, (\d+) trained, (\d+) context, (\d+) padding, "
        r"(\d+) segments\)",
        repr(batch),
    )
    assert told is not None
    trained, context, padding, segments = map(int, told.groups())
    assert trained == np.count_nonzero(batch.loss_weights)
    assert padding == np.count_nonzero(batch.segment_ids == 0)
    assert trained + context + padding == 32
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
    """Reads what a browser would: tags, classes, and the text of each chip by its kinds."""

    def __init__(self, page: str | None) -> None:
        assert page is not None, "it was drawn"
        super().__init__()
        self.tags: set[str] = set()
        self.classes: set[str] = set()
        self.open: list[str] = []  # of each open element: whether it is a token, or padding
        self.tokens: list[tuple[set[str], str]] = []
        self.padding: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        found = {name: value or "" for name, value in attrs}
        self.classes |= set(found.get("class", "").split())
        kinds = {name.removeprefix("tokenreel-") for name in found.get("class", "").split()}
        if "chip" in kinds and "title" in found:
            self.tokens.append((kinds - {"chip"}, ""))
        self.open.append(
            "token" if "title" in found else "padding" if "padding" in kinds else "other"
        )

    def handle_endtag(self, tag: str) -> None:
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "token" in self.open:
            kinds, text = self.tokens[-1]
            self.tokens[-1] = (kinds, text + data)
        elif self.open and self.open[-1] == "padding" and data != "padding":  # the legend's
            self.padding.append(data)

    def texts(self, kind: str) -> list[str]:
        return [text for kinds, text in self.tokens if kind in kinds]


def test_a_notebook_shows_each_token_by_what_becomes_of_it(feed: Feed) -> None:
    batch = feed.batch(12)
    shown = Shown(batch._repr_html_())
    assert shown.open == [], "every element is closed"
    # The last label of a row is no token of it, and the first token of a segment no label.
    targets = np.count_nonzero(batch.loss_weights[:, :-1])
    assert len(shown.texts("trained")) == targets
    num_tokens = np.count_nonzero(batch.segment_ids)
    assert len(shown.texts("trained")) + len(shown.texts("context")) == num_tokens
    assert len(shown.texts("begins")) == sum(
        len(np.unique(row[row > 0])) - 1 for row in batch.segment_ids
    )
    ids = [int(text) for _, text in shown.tokens]
    assert ids == batch.input_ids[batch.segment_ids > 0].tolist()
    padding = [int(text.removesuffix(" padding")) for text in shown.padding]
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
    text = "".join(text for _, text in shown.tokens)
    assert text == "naïve ✓ 🎲" + HOSTILE.replace("\u202e", "\\u202e").replace("\x00", "␀")
    assert "script" not in shown.tags
    assert page is not None and "<script" not in page
    assert "🎲" in shown.texts("trained")
    assert "n⟦aïve ✓ 🎲⟧│ <" in repr(feed.show(0, tokenizer="byte"))


def test_a_control_id_is_a_pill_and_text_that_spells_it_is_not(tmp_path: Path) -> None:
    chat = [
        {"role": "user", "content": "<|im_end|>◆"},
        {"role": "assistant", "content": "yes"},
    ]
    tokenreel.build(chats=[chat], out=tmp_path / "s", tokenizer="byte", progress=False)
    source = Source(name="chat", path=tmp_path / "s", rows="packed")
    shown = Feed(recipe_of(source, seq_len=90, global_batch_size=1)).show(0, tokenizer="byte")
    page = Shown(shown._repr_html_())
    assert page.texts("control").count("im_end") == 2
    assert [text for kinds, text in page.tokens if kinds == {"control", "trained"}] == ["im_end"]
    assert 'title="258, &lt;|im_end|&gt;, segment 1' in (shown._repr_html_() or "")
    spelled = "".join(text for kinds, text in page.tokens if "control" not in kinds)
    assert "<|im_end|>" in spelled
    assert "<|im_end|>\\u25c6◆<|im_end|>⏎" in repr(shown)  # ours has the only diamond


def test_blanks_show_and_stay_blanks_for_who_copies_them() -> None:
    assert token_html("  if x") == "<i>  </i>if<i> </i>x"
    assert token_html("a\u3000\xa0·") == "a\\u3000\\u00a0·"
    assert Shown(chips_html([Chip(ids=(7,), text="  ")])).tokens == [({"context"}, "  ")]


def test_a_token_that_weighs_little_is_pale(feed: Feed) -> None:
    half, whole = (Chip(ids=(1,), text="a", weight=weight) for weight in (0.5, 1.0))
    assert 'style="--weight:0.50"' in chips_html([half])
    assert "style" not in chips_html([whole])


def test_bytes_that_are_no_character_are_shown_some_at_a_time(tmp_path: Path) -> None:
    with tokenreel.StoreWriter(tmp_path / "s", vocab_size=256) as writer:
        writer.add([0x80] * (2 * MOST_IDS + 3))
    source = Source(name="a", path=tmp_path / "s", rows="packed", shuffle=False)
    feed = Feed(recipe_of(source, seq_len=2 * MOST_IDS + 3, global_batch_size=1))
    page = feed.show(0, tokenizer="byte")._repr_html_() or ""
    held = [told.count("128") for told in re.findall(r'title="([^"]*)"', page)]
    assert held == [MOST_IDS, MOST_IDS, 3]


def test_a_character_cut_off_by_the_end_of_what_is_shown_is_shown_as_far_as_it_goes(
    tmp_path: Path,
) -> None:
    feed = Feed(recipe_of(text_store(tmp_path / "s", ["na🎲"]), seq_len=5, global_batch_size=1))
    shown = Shown(feed.show(0, tokenizer="byte", tokens=4)._repr_html_())
    assert [text for _, text in shown.tokens] == ["n", "a", "\ufffd"]


def test_ids_that_a_tokenizer_lacks_are_shown_as_numbers(feed: Feed) -> None:
    shown = Shown(feed.batch(12).show("byte")._repr_html_())
    assert shown.open == []
    assert all(re.fullmatch(r"⟨\d+⟩", text) for _, text in shown.tokens)


def test_a_tokenizer_that_is_not_the_stores_is_refused(tmp_path: Path) -> None:
    built = tokenreel.build(texts=["abc" * 30], out=tmp_path / "s", tokenizer="byte")
    recorded = {**(built.store.tokenizer or {}), "fingerprint": "of another"}
    with tokenreel.StoreWriter(tmp_path / "t", vocab_size=300, tokenizer=recorded) as writer:
        writer.add(range(90))
    feed = Feed(recipe_of(Source(name="t", path=tmp_path / "t")))
    with pytest.raises(MismatchError, match="of another tokenizer"):
        feed.show(0, tokenizer="byte")


def large_batch(num_rows: int, seq_len: int) -> Batch:
    """Return a batch of rows that are one segment each, without a store behind it."""
    row = np.arange(seq_len)
    shape = (num_rows, seq_len)
    return Batch(
        step=0,
        input_ids=np.broadcast_to(row, shape),
        labels=np.broadcast_to(row + 1, shape),
        loss_weights=np.ones(shape, np.float32),
        segment_ids=np.ones(shape, np.int32),
        position_ids=np.broadcast_to(row.astype(np.int32), shape),
        source_ids=np.zeros(num_rows, np.int32),
    )


def test_a_large_batch_makes_a_small_page_that_says_what_is_left() -> None:
    batch = large_batch(512, 32_768)
    page = batch._repr_html_() or ""
    assert len(page) < 120_000
    assert "… and 504 more rows" in page
    assert "… and 32,640 more tokens" in page
    assert len(repr(batch.show())) < 8_000
    assert "… and 504 more rows" in repr(batch.show())
    assert len(Shown(batch.show(rows=2, tokens=5)._repr_html_()).tokens) == 10


def test_padding_in_front_of_a_prompt_is_shown_in_front() -> None:
    batch = large_batch(1, 8)
    batch.segment_ids = np.array([[0, 0, 0, 1, 1, 1, 1, 1]], np.int32)
    batch.position_ids = np.array([[0, 0, 0, 0, 1, 2, 3, 4]], np.int32)
    assert "row 0, source 0: ░3 padding 3 ⟦4 5 6 7 ⟧" in repr(batch.show())
    page = batch._repr_html_() or ""
    assert [text for _, text in Shown(page).tokens] == ["3", "4", "5", "6", "7"]
    assert page.index("3 padding</span>") < page.index('title="3, segment 1')


def test_a_step_of_many_rows_and_segments_is_explained_on_a_small_page() -> None:
    segment = Segment(
        source="a",
        document=7,
        start=0,
        stop=9,
        trained=8,
        provenance=None,
        text="ab" * 50_000,
        record={"k": "v" * 10_000},
    )
    row = ExplainedRow(row=0, source="a", epoch=0, segments=[segment] * 900)
    page = Explained(step=3, rows=[row] * 512)._repr_html_() or ""
    assert len(page) < 80_000
    assert "… and 504 more rows" in page and "… and 892 more segments" in page
    assert "… 99,680 characters …" in page


def test_an_explained_step_draws_rows_documents_and_where_they_come_from(tmp_path: Path) -> None:
    source = text_store(tmp_path / "s", [HOSTILE, "two"])
    feed = Feed(recipe_of(source, seq_len=60, global_batch_size=1))
    explained = feed.explain(0, tokenizer="byte")
    page = explained._repr_html_() or ""
    assert Shown(page).open == [] and "<script" not in page
    text = re.sub(r"<[^>]*>", " ", page.split("</style>")[1])
    for told in ("Explained", "row 0", "epoch 0", "2 segments", "document 1", "tokens 0–3"):
        assert told in text, told
    assert printed(HOSTILE) in page and "two" in text


def test_a_feed_draws_its_shares_with_phases_and_where_it_stands(feed: Feed) -> None:
    feed.step = 4
    page = feed._repr_html_() or ""
    shown = Shown(page)
    assert {"svg", "path", "line", "circle", "table"} <= shown.tags
    # Until step 9 of 50 a has three quarters, then nothing: two corners on its lower edge.
    assert 'class="tokenreel-hue-0" d="M0 0L50 0L50 0L9 0L9 750L0 750Z"' in page
    assert "step 9: b 1" in page
    assert 'cx="8.00%"' in page
    feed.change_weights({"a": 1, "b": 1})
    assert "step 4: changed to a 1, b 1" in (feed._repr_html_() or "")


def test_shares_of_a_thousand_sources_are_a_few_bands_that_fill_the_drawing() -> None:
    shares = np.random.default_rng(7).dirichlet(np.full(1000, 0.1), size=120).T
    drawn = share_bands(range(121), shares)
    assert drawn.count("<path ") == MOST_BANDS and len(drawn) < 150_000
    assert re.findall(r"L120 (\d+)(?=L)", drawn)[-1] == "1000", "the last band ends at the bottom"


def test_a_feed_without_end_or_of_one_pass_is_drawn(tmp_path: Path) -> None:
    write_store(tmp_path / "a", [100])
    source = Source(name=HOSTILE, path=tmp_path / "a")
    for end in (None, 1):
        page = Feed(recipe_of(source, passes=end))._repr_html_() or ""
        assert Shown(page).open == [] and "<script" not in page


def test_a_batch_of_microbatches_is_shown_row_by_row(tmp_path: Path) -> None:
    write_store(tmp_path / "s", [97])  # twelve windows, none of them padded
    feed = Feed(recipe_of(Source(name="s", path=tmp_path / "s"), grad_accum=2))
    assert repr(feed.batch(0)).startswith("Batch(step 0, 2 x 2 rows of 8 tokens, 32 trained, ")
    assert "row 3, s: " in repr(feed.show(0))


def test_tables_of_stores_and_feeds_are_whole_and_escaped(feed: Feed, tmp_path: Path) -> None:
    for page in (feed._repr_html_(), feed.stores[1]._repr_html_()):
        assert Shown(page).open == []
        assert page is not None and "<td" in page
    rows = [[HOSTILE, number, 0.5, True] for number in range(20)]
    page = table(HOSTILE, ["a", "b", "c", "d"], rows, facts=[HOSTILE])
    assert "<script" not in page
    assert "… and 12 more" in page
    assert Shown(page).tags == {"div", "style", "b", "span", "table", "tr", "td", "th"}


def test_a_card_styles_nothing_but_itself(feed: Feed) -> None:
    css = notebook_style().removeprefix("<style>").removesuffix("</style>")
    assert ":root" not in css and "url(" not in css and "@import" not in css
    selectors = re.findall(r"([^{}]+)\{", css)
    assert len(selectors) > 40
    for selector in selectors:
        for part in selector.split(","):
            assert ".tokenreel" in part or part.startswith("@media"), part
    pages = (feed._repr_html_(), feed.batch(12)._repr_html_(), feed.explain(3)._repr_html_())
    for page in pages:
        shown = Shown(page)
        assert {name for name in shown.classes if not name.startswith("tokenreel")} == set()
        assert "script" not in shown.tags


@pytest.mark.parametrize("kind", [Feed, Batch, tokenreel.Store, Explained])
def test_what_is_half_made_is_not_drawn_and_does_not_raise(kind: Any) -> None:
    assert object.__new__(kind)._repr_html_() is None


@given(st.text(), st.booleans(), st.floats(0, 2), st.text())
def test_no_text_breaks_out_of_its_token(
    text: str, is_control: bool, weight: float, told: str
) -> None:
    chip = Chip(ids=(1,), text=text, is_control=is_control, weight=weight, told=told, begins=True)
    shown = Shown(chips_html([chip]))
    assert shown.tags <= {"span", "i"}
    assert shown.open == []
    ((kinds, drawn),) = shown.tokens
    assert kinds == {"begins", "trained" if weight > 0 else "context"} | (
        {"control"} if is_control else set()
    )
    # No control, no mark of direction, nothing else that would change what stands around it.
    for safe in (printed(text), visible(text), drawn):
        assert not {unicodedata.category(character)[0] for character in safe} & {"C"}
