"""A real browser over a real server: one of each for all tests of this folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from tests.view.browser.driving import Page, Served, find_browser, serving, start_browser
from tests.view.looking import write_recipe

import tokenreel
from tokenreel.view.answers import Answers
from tokenreel.view.subject import open_subjects

HOSTILE_NAME = "<img src=x onerror=alert(3)>"
HOSTILE_FILE = "ev<img src=x onerror=alert(4)>il\u202e.jsonl"
HOSTILE_TEXT = (
    "</script><script>alert(1)</script> <img src=x onerror=alert(2)> <|im_end|> "
    "\x1b[31mred\x1b[0m \u202egnp.exe \u2066x\u2069 \u200b\ufeff "
)
TEXTS = [f"Story {n}.\n" + "So it goes, said the reel. " * (2 + n % 5) + "\n" for n in range(80)]
TEXTS[3] += HOSTILE_TEXT * 3
TEXTS[5] += "naïve 東京 🙂 ⏎ ␀ "
CHATS: list[dict] = [
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"What is {n} + {n}? <|im_end|>"},
            {"role": "assistant", "content": f"It is {2 * n}, said the reel."},
        ]
    }
    for n in range(60)
]
HEAD = "seq_len = 192\nglobal_batch_size = 6\nseed = 7\nsteps = 400\n"
SOURCES = (
    {"name": HOSTILE_NAME, "path": "texts", "rows": "document_windows", "weight": 0.7},
    {"name": "chat", "path": "chats", "rows": "packed", "weight": 0.3},
)
PHASE = "[[phases]]\nstart_step = 200\nramp_steps = 100\nweights = { chat = 0.6 }\n"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores and recipes: a mixture, another one, and rows of 32,768 tokens in batches of 512."""
    folder = tmp_path_factory.mktemp("viewed")
    records = {HOSTILE_FILE: [{"text": text} for text in TEXTS], "chats.jsonl": CHATS}
    for name, lines in records.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    tokenizer = folder / "tokenizer.json"
    tokenreel.train_tokenizer(texts=TEXTS, out=tokenizer, vocab_size=384, kind="bpe")
    for name, out, is_chat in ((HOSTILE_FILE, "texts", False), ("chats.jsonl", "chats", True)):
        tokenreel.build(
            str(folder / name), out=folder / out, tokenizer=tokenizer, chat=is_chat, workers=1
        )
    write_recipe(folder / "recipe.toml", HEAD, *SOURCES, tail=PHASE)
    write_recipe(folder / "other.toml", HEAD.replace("seed = 7", "seed = 8"), *SOURCES, tail=PHASE)
    wide = {"name": "texts", "path": "texts", "rows": "windows", "weight": 1}
    head = HEAD.replace("seq_len = 192", "seq_len = 32768").replace("size = 6", "size = 512")
    write_recipe(folder / "wide.toml", head, wide)
    return folder


@pytest.fixture(scope="session")
def driver() -> Iterator[Chrome]:
    """The browser; where there is none, tests are skipped, or fail if they must not be."""
    find_browser()
    started = start_browser()
    yield started
    started.quit()


def opened(folder: Path, *names: str, first_step: int = 0) -> Answers:
    return Answers(open_subjects([str(folder / name) for name in names]), first_step=first_step)


@pytest.fixture(scope="session")
def recipe_server(folder: Path) -> Iterator[Served]:
    with serving(opened(folder, "recipe.toml")) as served:
        yield served


@pytest.fixture
def page(driver: Chrome, recipe_server: Served) -> Iterator[Page]:
    """A fresh page of the recipe on a laptop; what the browser complains of fails the test."""
    page = Page(driver, recipe_server)
    page.resize(1280, 800)
    page.complaints()  # of the test before
    yield page
    assert page.complaints() == []
