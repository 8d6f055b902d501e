"""Documents, where they are shown, the search for them, and the stores they lie in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys
from tests.view.browser.conftest import opened
from tests.view.browser.driving import Page, serving

import tokenreel
from tokenreel.stream import StreamPipeline
from tokenreel.view.answers import Answers
from tokenreel.view.subject import open_subjects


def test_a_chat_is_shown_as_the_conversation_it_is(page: Page) -> None:
    page.open("view=document&source=1&document=3")
    facts = page.served.answer("api/document/1/3")
    roles = [turn["role"] for turn in facts["turns"]]
    assert [text.removesuffix("trained") for text in page.texts(".turn .role")] == roles
    assert page.texts(".trained-turn .role") == ["assistanttrained"]
    trained = sum(weight > 0 for weight in facts["weights"])
    assert page.count(".document-text .chip.trained") == trained
    assert facts["provenance"] in page.find(".document-panel").text


def test_where_a_document_is_shown_is_a_list_of_links_there(page: Page) -> None:
    page.open("step=57&row=1&slot=3")
    page.wait("return document.querySelector('.hits .hit')")
    segment = page.served.answer("api/step/57/row/1", start=0, stop=192)["segments"][0]
    hits = page.served.answer(f"api/where/{segment['source']}/{segment['document']}")["hits"]
    hit = next(hit for hit in hits if hit["step"] != 57)
    link = next(
        element
        for element in page.driver.find_elements("css selector", ".hits .hit")
        if element.text == f"step {hit['step']} · row {hit['row']}"
    )
    page.js("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    page.shows_step(hit["step"])
    page.wait("return document.querySelector('.chip.selected')")
    shown = page.served.answer(f"api/step/{hit['step']}/row/{hit['row']}", start=0, stop=192)
    there = next(
        part["start"] + hit["start"] - part["from"]
        for part in shown["segments"]
        if part["document"] == segment["document"] and part["from"] <= hit["start"] < part["to"]
    )
    page.wait_for(lambda: page.state.get("slot") == str(there))
    assert page.state["row"] == str(hit["row"])


@pytest.mark.soak
def test_the_link_to_the_whole_document_leads_there_and_back(page: Page) -> None:
    page.open("step=57&row=1&slot=3")
    segment = page.served.answer("api/step/57/row/1", start=0, stop=192)["segments"][0]
    page.click(".panel a.more")
    page.wait_for(lambda: f"document {segment['document']} of" in page.find(".page-title").text)
    page.press("n")
    page.wait_for(lambda: page.state["document"] == str(segment["document"] + 1))
    page.press("p")
    page.wait_for(lambda: page.state["document"] == str(segment["document"]))
    page.driver.back()
    page.driver.back()
    page.driver.back()
    page.shows_step(57)


def search(page: Page, words: str) -> None:
    page.press("/", words, Keys.ENTER)
    page.wait("return /found/.test(document.querySelector('.found-head').textContent)")
    page.wait("return document.querySelector('.found-head button').hidden")


@pytest.mark.parametrize(
    ("words", "document"),
    [("Story 17.", 17), ("23", 23), ("chats.jsonl:8", 7)],
    ids=["text", "number", "provenance"],
)
def test_search_finds_by_text_number_and_provenance(page: Page, words: str, document: int) -> None:
    page.open()
    search(page, words)
    assert page.texts(".found-name b")[0] == f"document {document}"
    page.press(Keys.ARROW_DOWN, Keys.ENTER)
    page.wait_for(lambda: page.state.get("document") == str(document))
    page.wait_for(lambda: f"document {document}" in page.find(".page-title").text)


def test_a_found_text_is_marked_and_the_document_opens_at_it(page: Page) -> None:
    page.open()
    search(page, "story 41.")  # letters are found in upper and lower case
    assert page.texts(".snippet mark") == ["Story 41."]
    page.click(".found-hit")
    page.wait("return document.querySelector('.document-text .chip.selected')")


@pytest.mark.soak
def test_a_search_without_hits_says_so_and_escape_closes_it(page: Page) -> None:
    page.open()
    search(page, "no document has these words")
    assert page.find(".found-head").text == "no document found"
    page.press(Keys.ESCAPE)
    page.wait("return document.querySelector('.found').hidden")


def test_a_search_is_stopped_by_its_button(driver: Chrome, tmp_path: Path) -> None:
    texts = ["So it goes, said the reel, and went on. " * 1000] * 150  # seconds to look through
    tokenreel.build(texts=texts, out=tmp_path / "long", tokenizer="byte", workers=1)
    with serving(Answers(open_subjects([str(tmp_path / "long")]))) as served:
        page = Page(driver, served)
        page.resize(1280, 800)
        page.open()
        page.press("/", "no document has these words", Keys.ENTER)
        page.wait("return /looked through/.test(document.querySelector('.found-head').textContent)")
        page.click(".found-head button")
        words = "stopped; 0 documents found so far"
        page.wait_for(lambda: page.texts(".found-head span") == [words])
        page.pause(0.5)
        assert page.texts(".found-head span") == [words]  # no line comes after that


def test_the_store_shows_splits_shards_lengths_tokenizer_report_and_samples(page: Page) -> None:
    page.open("view=store&store=1")
    facts = page.served.answer("api/store/1")
    words = page.find("#main").text
    split = facts["splits"][0]
    assert f"{split['documents']:,} documents" in words
    assert f"{split['tokens']:,} tokens" in words
    assert split["shards"][0]["name"] in words
    assert facts["fingerprint"] in words
    assert facts["tokenizer"]["fingerprint"] in words
    assert page.count(".histogram .bar") == len(facts["lengths"]["counts"])
    assert page.count(".sample .chip.trained") > 0
    page.find(".split input").send_keys("9", Keys.ENTER)
    page.wait_for(lambda: page.state.get("document") == "9")
    page.wait("return document.querySelector('.turn')")


@pytest.mark.soak
def test_tokens_whose_documents_are_unknown_are_shown_end_to_end(
    driver: Chrome, tmp_path: Path
) -> None:
    path = tmp_path / "flat.bin"
    np.arange(5000, dtype=np.uint16).tofile(path)
    subjects = open_subjects([str(path)], options={"dtype": "uint16"})
    with serving(Answers(subjects)) as served:
        page = Page(driver, served)
        page.open()
        assert "documents unknown" in page.find(".split").text
        page.click(".split a")
        page.wait("return document.querySelector('.document-text .chip')")
        assert page.texts(".document-text .chip")[:3] == ["0", "1", "2"]  # ids: no tokenizer
        page.js("window.scrollTo(0, document.body.scrollHeight)")
        page.wait("return document.querySelector('.chip[data-slot=\"4999\"]')")


def test_the_state_of_a_stream_is_told(driver: Chrome, tmp_path: Path) -> None:
    data = {
        "backend": "local_text",
        "local_text": "so it goes. " * 99,
        "tokenizer": {"kind": "byte", "add_eos": True},
    }
    pipeline = StreamPipeline({"data": data, "train": {"seq_len": 16, "batch_size": 2}})
    for _ in range(3):
        next(pipeline)
    path = tmp_path / "state.json"
    path.write_text(json.dumps(pipeline.get_state()))
    with serving(Answers(open_subjects([str(path)]))) as served:
        page = Page(driver, served)
        page.open()
        words = page.find("#main").text.lower()
        assert "batches made\n3" in words
        assert "tokens held by packers" in words and "lane " in words


def test_an_error_is_told_in_its_parts(page: Page) -> None:
    page.open("view=document&source=1&document=12345")
    words = page.find(".trouble").text
    assert "no such document" in words
    assert "0 to 59" in words and "12345" in words
    assert any("400" in message for message in page.complaints())


@pytest.mark.soak
def test_a_server_that_is_gone_is_told_with_a_remedy(driver: Chrome, folder: Path) -> None:
    with serving(opened(folder, "recipe.toml")) as served:
        page = Page(driver, served)
        page.open("step=57")
        page.pause(0.5)  # neighbours are asked for ahead
    page.press("g", "3", "0", "0", Keys.ENTER)
    words = page.wait_for(lambda: page.find(".trouble").text)
    assert "The server does not answer." in words
    assert "Start “tokenreel view” again" in words


@pytest.mark.soak
def test_an_answer_that_comes_late_does_not_draw_over_another_view(page: Page) -> None:
    for other in ("view=document&source=0&document=7", "view=store&store=1"):
        page.open("step=57")
        page.js("location.hash = arguments[0]; location.hash = 'view=batch&step=58'", other)
        page.shows_step(58)
        page.pause(0.3)
        assert page.count(".row") == 6
        assert page.count(".page-title, .card") == 0
