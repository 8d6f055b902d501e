"""README.md: two screens, code that runs, commands, links and claims that are so."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT, Session, blocks_of, check_block

from tokenreel.cli.main import full_parser
from tokenreel.cli.usage import MisuseError

PAGE = ROOT / "README.md"
README = PAGE.read_text("utf-8")


def test_pasted_into_an_empty_folder_the_code_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = Session()
    for block in blocks_of(PAGE):
        check_block(block)
        if block.kind == "python":
            session.run(block)
    assert session.num_examples >= 9
    assert [block.kind for block in blocks_of(PAGE)] == ["sh", "python"]


def test_it_is_two_screens_and_names_the_test_command() -> None:
    assert len(README.splitlines()) <= 80
    assert "\nmake test " in README and "`make test` runs the suite" in README


def test_every_page_of_how_to_is_one_click_away() -> None:
    pages = {page.name for page in (ROOT / "docs/how-to").glob("*.md")} - {"index.md"}
    linked = set(re.findall(r"\(docs/how-to/([\w-]+\.md)\)", README))
    # Writing a store by hand is for those who have read on.
    assert pages - linked == {"write-a-store.md"} and linked <= pages


def test_the_contracts_live_where_their_page_says() -> None:
    page = (ROOT / "docs/contracts.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d{3}) \| `([\w.]+)`: (.*?) \|", page, re.MULTILINE)
    assert [number for number, _, _ in rows] == ["000", "001", "002", "003", "004"]
    for _, module, names in rows:
        found = importlib.import_module(module)
        assert all(hasattr(found, name) for name in re.findall(r"`(\w+)`", names))
    assert "`scripts/prepare_data.py`" in page and (ROOT / "scripts/prepare_data.py").exists()


def test_every_link_leads_somewhere() -> None:
    pages = re.findall(r"\]\((?!http)([^)#]+)", README)
    pictures = re.findall(r"(?:src|srcset)=\"([^\"]+)\"", README)
    assert len(pages) > 25 and len(pictures) == 2
    assert [target for target in pages + pictures if not (ROOT / target).exists()] == []


def test_a_command_that_is_not_there_would_be_found() -> None:
    with pytest.raises(MisuseError, match="--tokenizer"):
        full_parser().parse_args(["build", "a.jsonl", "--out", "b", "--tokeniser", "byte"])


def test_every_file_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = re.findall(r"`((?:[\w.]+/)*[\w.]+(?:/|\.py))`", text)
    missing = [
        n for n in named if not any((r / n).exists() for r in (ROOT / "src/tokenreel", ROOT))
    ]
    assert missing == [] and len(named) > 60
