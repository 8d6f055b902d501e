"""The page of a build: what it shows, and that nothing in it comes from outside or gets out."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import documents, write_jsonl

from tokenreel.builder.build import Built, build
from tokenreel.builder.page import report_page, sample_html
from tokenreel.builder.report import Account
from tokenreel.builder.report_files import PAGE_NAME, write_report
from tokenreel.builder.samples import FIRST_TOKENS, LAST_TOKENS, samples_of
from tokenreel.display.escaped import printed
from tokenreel.display.style_sheet import style_of
from tokenreel.text.tokenizers import load_tokenizer

HOSTILE = '</span><script>alert(1)</script><img src=x onerror=alert(1)> \u202e&\0"'
SPELLED = "<|im_end|>"


class Elements(HTMLParser):
    """The elements of a page: (name, attributes, the text right inside)."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._open: list[int] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.append(len(self.found))
        self.found.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self.found[self._open.pop()][0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        """Give a text to the element it is in; marked blanks to the chip around them."""
        inside = [at for at in self._open if self.found[at][0] != "i"]
        if inside:
            self.found[inside[-1]][2].append(data)

    def texts(self, css: str) -> list[str]:
        """Return the texts of chips of these classes, without those of the legend."""
        return [
            "".join(text)
            for _, attrs, text in self.found
            if attrs.get("class") == css and "title" in attrs
        ]


def page_of(built: Built) -> str:
    path = Path(built.store.path)
    report = {"path": str(path), "fingerprint": built.store.fingerprint, **built.report}
    write_report(path, report, tokenizer=built.tokenizer)
    return (path / PAGE_NAME).read_text()


@pytest.fixture
def chats(tmp_path: Path) -> Built:
    turns = [
        {"role": "user", "content": f"{HOSTILE} {SPELLED}"},
        {"role": "assistant", "content": "yes, 日本"},
    ]
    path = write_jsonl(tmp_path / "<b>c.jsonl", [{"messages": turns}, {"messages": turns[:1]}, {}])
    return build(
        path, out=tmp_path / "s", tokenizer="byte", chat=True, template="chatml", on_bad="skip"
    )


def test_it_shows_where_a_store_comes_from(chats: Built) -> None:
    page = page_of(chats)
    assert chats.store.manifest is not None
    facts = chats.store.manifest.facts
    assert facts.tokenizer is not None
    for shown in (
        facts.tokenizer["fingerprint"],
        f"vocabulary of {facts.vocab_size:,}",
        "chatml; trained: assistant",
        chats.store.fingerprint,
        "&lt;b&gt;c.jsonl",
        "chat: no known shape of chat",
        "NUL, kept: in 2 records",
        "1 chat trains nothing: no assistant turn that is trained",
        '<td class="">policy</td>',
    ):
        assert shown in page, shown
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", page)


def test_an_end_token_and_the_counts_of_files_are_shown(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.txt").write_text("word " * number)
    built = build(tmp_path, out=tmp_path / ".s", tokenizer="byte", end_token="<|endoftext|>")
    page = page_of(built)
    assert "<code>&lt;|endoftext|&gt;</code>" in page and "from argument" in page
    assert "<summary>30 files</summary>" in page
    row = '<td class=""><code>7.txt</code></td><td class="n">1</td><td class="n">35</td>'
    assert f'{row}<td class="n">36</td>' in page


def test_the_ledger_gives_each_part_in_tokens_and_as_a_share(tmp_path: Path) -> None:
    built = build(texts=["a" * 29, "b" * 9], out=tmp_path / "s", tokenizer="byte", min_tokens=20)
    page = page_of(built)
    number = '<td class="n">'
    assert f'<td class="">trained</td>{number}30</td>{number}75.00 %</td>' in page
    assert f'<td class="">dropped</td>{number}10</td>{number}25.00 %</td>' in page
    assert f'<td class="">total</td>{number}40</td>{number}</td>' in page
    assert re.search(r'class="dropped" x="600\.0" y="0" width="200\.0"', page)


def test_a_control_token_is_told_from_text_that_spells_it(chats: Built) -> None:
    elements = Elements(page_of(chats))
    assert elements.texts("chip trained control").count("im_end") == 1  # of the assistant's turn
    assert elements.texts("chip context control").count("im_end") == 2  # those of both users
    assert "".join(elements.texts("chip context")).count(SPELLED) == 2
    assert "".join(elements.texts("chip trained")).startswith("yes, 日本")


def test_hostile_text_stays_text_and_nothing_is_asked_of_the_outside(chats: Built) -> None:
    page = page_of(chats)
    elements = Elements(page)
    assert {name for name, _, _ in elements.found} <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "ul", "li", "i"),
        *("table", "tr", "th", "td", "div", "span", "code", "br", "svg", "rect", "text"),
        *("details", "summary"),
    }
    names = {attribute for _, attributes, _ in elements.found for attribute in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("src", "href", "style")]
    assert "default-src 'none'" in page and "url(" not in page and "@import" not in page
    assert "\u202e" not in page and "\0" not in page and "\\u202e" in page and "␀" in page


def test_the_same_build_gives_the_same_page_but_for_the_date(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "d.jsonl", documents(80))
    pages = []
    for name, workers in (("a", 1), ("b", 2)):
        out = tmp_path / name / "s"
        built = build(path, out=out, tokenizer="byte", workers=workers, chunk_bytes=700)
        pages.append(re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "", page_of(built)))
    assert pages[0] == pages[1]


def test_samples_are_the_tokens_of_the_store(tmp_path: Path) -> None:
    texts = ["é" * 20, "日本語 " * 300, "", "x"]
    built = build(texts=texts, out=tmp_path / "s", tokenizer="byte", min_tokens=1)
    tokenizer = load_tokenizer("byte")
    for number, sample in enumerate(samples_of(built.store, tokenizer)):
        tokens = built.store["train"].document(number).tokens.tolist()
        first = [token for chip in sample.first for token in chip.ids]
        last = [token for chip in sample.last for token in chip.ids]
        assert tokens[: len(first)] == first and tokens[len(tokens) - len(last) :] == last
        assert len(first) + sample.num_between + len(last) == len(tokens)
        if sample.num_between:
            assert (len(first), len(last)) == (FIRST_TOKENS, LAST_TOKENS)
    [first_sample, *_] = samples_of(built.store, tokenizer)
    # Two bytes spell a character: one chip shows it, with both ids.
    assert [chip.text for chip in first_sample.first] == ["é"] * 20 + ["<|endoftext|>"]
    assert first_sample.first[0].ids == (0xC3, 0xA9) and first_sample.first[-1].is_control


def test_a_page_says_how_many_tokens_of_a_sample_it_leaves_out_and_nothing_where_none(
    tmp_path: Path,
) -> None:
    room = FIRST_TOKENS + LAST_TOKENS - 1  # and the end token
    texts = ["x" * room, "x" * (room + 1_000)]
    built = build(texts=texts, out=tmp_path / "s", tokenizer="byte")
    short, long = map(sample_html, samples_of(built.store, load_tokenizer("byte")))
    assert "chip-more" not in short
    assert ">… 1,000 tokens …<" in long


def test_one_of_a_kind_is_told_in_the_singular(tmp_path: Path) -> None:
    built = build(texts=["abc\0", "b"], out=tmp_path / "s", tokenizer="byte", min_tokens=3)
    page = page_of(built)
    assert "NUL, kept: in 1 record<" in page
    assert "<h2>train: 1 document, 5 tokens</h2>" in page
    assert ">1 document</td>" in page  # that was too short
    assert not re.search(r"\b1 (documents|records|tokens|files)\b", page)


def test_a_template_is_shown_with_its_arguments_and_date() -> None:
    settings = {
        "template": "qwen",
        "template_arg": {"enable_thinking": False},
        "template_date": "2026-01-02",
        "policy": "assistant",
    }
    page = report_page("s", {**Account().as_dict(), "settings": settings})
    assert ">qwen, enable_thinking=false, date 2026-01-02; trained: assistant<" in page


def test_the_page_has_the_style_and_the_words_that_the_viewer_has(chats: Built) -> None:
    page = page_of(chats)
    assert style_of("chips.css") in page
    for kind in ("trained", "context", "padding"):
        assert f'<span class="chip {kind}">{kind}</span>' in page
    assert ">context</td>" in page and "masked" not in re.sub(r"<style>.*</style>", "", page)


def test_a_report_of_an_older_build_has_a_page_too() -> None:
    report: dict[str, Any] = Account().as_dict()
    for newer in ("dirt", "dirt_places", "untrained_chats", "untrained_reason", "files"):
        del report[newer]
    page = report_page("old", report)
    assert "Where the tokens went" in page and "Settings" not in page


def test_files_beyond_those_that_are_named_are_counted_on_the_page() -> None:
    report = {**Account().as_dict(), "files": [["a.txt", 1, 2, 3], ["", 7, 8, 9, 5]]}
    assert "and 5 more</td>" in report_page("s", report)


def test_what_does_not_show_is_given_by_number() -> None:
    assert printed("a\u202eb\u2028\U000e0001é日\ud800") == (r"a\u202eb\u2028\U000e0001é日\ud800")
