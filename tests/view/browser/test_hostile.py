"""Documents, names and provenance that want to be markup, commands or another order of letters."""

from __future__ import annotations

import html
import re
import sys
import unicodedata

import pytest
from selenium.webdriver.common.keys import Keys
from tests.view.browser.conftest import HOSTILE_NAME
from tests.view.browser.driving import Page

from tokenreel.display.escaped import token_html

FORBIDDEN = "#main img, #main script, #main iframe, #bar img, #reel img, #hover img, [onerror]"
MARKS = ("\u202e", "\u2066", "\u2069", "\u200b", "\ufeff", "\x1b")


def check_harmless(page: Page) -> None:
    """Nothing of a store became an element, ran, or turned letters round."""
    assert page.count(FORBIDDEN) == 0
    assert page.count("script") == 1
    text = page.js("return document.body.textContent + document.title")
    assert not any(mark in text for mark in MARKS)


def test_a_hostile_document_is_text_in_every_view(page: Page) -> None:
    page.open("view=document&source=0&document=3")
    shown = "".join(page.texts(".document-text .chip"))
    assert "<script>alert(1)</script>" in shown
    assert "<img src=x onerror=alert(2)>" in shown
    assert "\\u001b[31m" in shown and "\\u202e" in shown
    assert "<|im_end|>" in "".join(page.texts(".document-text .chip:not(.control)"))
    check_harmless(page)
    hit = page.served.answer("api/where/0/3")["hits"][0]
    place = f"source=0&document=3&token={hit['start']}"
    page.open(f"view=batch&step={hit['step']}&row={hit['row']}&{place}")
    page.wait("return document.querySelector('.panel .chip.big')")
    check_harmless(page)


def test_hostile_names_of_sources_and_files_are_text(page: Page) -> None:
    page.open("step=57&colour=source&row=1&slot=1")
    assert HOSTILE_NAME in page.texts(".legend .chip")
    page.wait("return document.querySelector('.panel .chip.big')")
    assert any("onerror=alert(4)" in text for text in page.texts("#main bdi"))
    check_harmless(page)
    page.pointer().move_to_element(page.find(".reel-track")).perform()
    assert HOSTILE_NAME[:24] in page.find(".reel-told").text
    page.open("view=store&store=0")
    page.wait("return document.querySelector('.sample .chip')")
    check_harmless(page)


@pytest.mark.soak
def test_hostile_search_words_and_snippets_are_text(page: Page) -> None:
    page.open()
    page.press("/", "<script>alert(1)", Keys.ENTER)
    page.wait("return document.querySelector('.found-hit mark')")
    assert page.texts(".found-hit mark")[0] == "<script>alert(1)"
    check_harmless(page)


@pytest.mark.soak
def test_a_hostile_address_is_refused_or_corrected(page: Page) -> None:
    page.open("view=<script>&step=-1&row=x&colour=<img>&open=,,x&ranks=0&from=9&to=3")
    page.shows_step(0)
    check_harmless(page)
    page.open("view=__proto__&step=999999999999&row=77&slot=3&rank=4")
    page.shows_step(399)
    assert {"row", "slot", "rank"}.isdisjoint(page.state)


def test_pictures_of_blanks_cannot_be_forged_by_text(page: Page) -> None:
    page.open("view=document&source=0&document=5")
    shown = "".join(page.texts(".document-text .chip"))
    assert "\\u23ce" in shown and "\\u2400" in shown  # the text has ⏎ and ␀ in it
    assert "東京" in shown and "🙂" in shown


@pytest.mark.soak
def test_the_page_hides_every_character_that_notebooks_and_terminals_hide(page: Page) -> None:
    page.open()
    blanks = {
        chr(code) for code in range(sys.maxunicode) if unicodedata.category(chr(code)) == "Zs"
    }
    hidden = [
        chr(code)
        for code in range(sys.maxunicode)
        if unicodedata.category(chr(code)) in {"Cc", "Cf", "Zl", "Zp"}
    ]
    asked = [*hidden, *sorted(blanks - {" "}), "\ue000", "a", "é", "字", "🙂"]
    shown = page.driver.execute_async_script(
        "const [texts, done] = arguments;"
        "import(document.baseURI.split('#')[0] + 'static/visible.js').then(({ showTokenText }) => {"
        "  done(texts.map((text) => {"
        "    const element = document.createElement('span');"
        "    showTokenText(element, text);"
        "    return element.textContent;"
        "  }));"
        "})",
        asked,
    )
    wanted = [html.unescape(re.sub("<[^>]*>", "", token_html(text))) for text in asked]
    assert shown == wanted


def test_nothing_is_asked_of_any_other_server(page: Page) -> None:
    page.open("step=57&row=1&slot=3")
    page.press("/", "reel", Keys.ENTER)
    page.wait("return document.querySelector('.found-hit')")
    page.open("view=store&store=0")
    assert page.requests()
    assert all(request.startswith(page.served.address) for request in page.requests())


def test_inline_scripts_are_refused_by_the_policy(page: Page) -> None:
    page.open()
    page.js(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        "document.body.append(s); document.body.lastChild.remove()"
    )
    assert page.js("return window.ran") is None
    assert any("Content Security Policy" in message for message in page.complaints())
