"""What the files of the page may not do, read from the files; no browser is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.view.browser.driving import MUST_HAVE, find_browser

import tokenreel.view

STATIC = Path(tokenreel.view.__file__).parent / "static"
MODULES = sorted(STATIC.glob("*.js"))
MOST_LINES = 400
# Ways by which text becomes markup or code, or by which a page reaches outside.
FORBIDDEN = (
    r"\binnerHTML\b|\bouterHTML\b|insertAdjacentHTML|document\.write|createContextualFragment"
    r"|DOMParser|\beval\b|new Function|\bimport\s*\(|https?://(?!www\.w3\.org/2000/svg)"
    r"|setAttribute\(\"style\"|\bcssText\b|XMLHttpRequest|WebSocket|sendBeacon"
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_makes_no_markup_of_strings_and_asks_nobody_else(path: Path) -> None:
    assert re.findall(FORBIDDEN, path.read_text()) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_is_short_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert text.startswith("// ")


def test_the_page_has_no_inline_script_style_or_handler() -> None:
    page = (STATIC / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>|<style|\sstyle=|\son\w+=", page) == []


def test_a_missing_browser_is_a_skip_that_says_so_and_a_failure_where_it_must_be_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(MUST_HAVE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no browser was found"):
        find_browser()
    monkeypatch.setenv(MUST_HAVE, "1")
    with pytest.raises(pytest.fail.Exception, match="TOKENREEL_NEEDS_BROWSER=1"):
        find_browser()


def test_there_are_modules_to_check() -> None:
    assert {"main.js", "reel.js", "batch.js", "tokens.js"} <= {path.name for path in MODULES}
