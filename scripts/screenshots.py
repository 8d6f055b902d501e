"""Take the pictures of the viewer that the documentation shows: docs/pictures/*.png.

    make screenshots

The text is on every machine: sources of Python's own library, and its docstrings as chats. A real
server, a real browser; nothing is touched up.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from selenium.webdriver import Chrome
from tests.view.browser.driving import Page, Served, serving, start_browser

import tokenreel
from tokenreel.demo.corpus import write_chats, write_documents
from tokenreel.view.answers import Answers
from tokenreel.view.subject import open_subjects

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
STEP = 1104
DIFFERS = 1206  # the recipes' phases begin at other steps
LAPTOP, TABLET, PHONE = (1440, 1000), (1024, 768), (390, 844)
RECIPE = """\
seq_len = 256
global_batch_size = 8
seed = 7
steps = 2000

[[sources]]
name = "code"
path = "code"
rows = "document_windows"
weight = 0.8

[[sources]]
name = "chat"
path = "chat"
rows = "packed"
weight = 0.2

[[phases]]
start_step = 1200
ramp_steps = 400
weights = { code = 0.5, chat = 0.5 }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """A picture: its name, the view, the window, and which of the servers shows it."""

    name: str
    fragment: str
    size: tuple[int, int] = LAPTOP
    scheme: str = "light"
    compares: bool = False


def main() -> int:
    """Take all pictures, or those whose names are given."""
    wanted = set(sys.argv[1:])
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser = start_browser()
    try:
        # Inside the folder: pictures show paths as they were given.
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            make_stores(Path())
            first = serving(Answers(open_subjects(["recipe.toml"])))
            second = serving(Answers(open_subjects(["recipe.toml", "other.toml"])))
            with first as one, second as two:
                for shot in shots(one):
                    if not wanted or shot.name in wanted:
                        take(browser, two if shot.compares else one, shot)
    finally:
        browser.quit()
    return 0


def make_stores(folder: Path) -> None:
    """Build a store of code and one of chats, and two recipes that mix them."""
    documents = write_documents(folder / "code.jsonl", limit_bytes=1_500_000)
    chats = write_chats(folder / "chats.jsonl", limit=2000)
    tokenizer = folder / "tokenizer.json"
    tokenreel.train_tokenizer(str(documents), out=tokenizer, kind="bpe", vocab_size=2000)
    common = {"tokenizer": tokenizer, "workers": 1}
    tokenreel.build(
        str(documents), out=folder / "code", val_frac=0.05, shard_size=150_000, **common
    )
    tokenreel.build(str(chats), out=folder / "chat", chat=True, **common)
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "other.toml").write_text(RECIPE.replace("start_step = 1200", "start_step = 1300"))


def shots(served: Served) -> list[Shot]:
    """Return the pictures; what is chosen in them is the first chat of the step."""
    rows = served.answer(f"api/step/{STEP}")["rows"]
    row = next(row["row"] for row in rows if row["source"] == 1)
    part = served.answer(f"api/step/{STEP}/row/{row}", start=0, stop=256)
    slot = next(number for number, weight in enumerate(part["weights"]) if weight > 0) + 3
    chosen = f"step={STEP}&row={row}&slot={slot}"
    batch = f"{chosen}&open={row}"
    document = f"view=document&step={STEP}&source=1&document={part['segments'][0]['document']}"
    return [
        Shot(name="view-light", fragment=batch),
        Shot(name="view-dark", fragment=batch, scheme="dark"),
        Shot(name="segments-dark", fragment=f"{batch}&colour=segment", size=TABLET, scheme="dark"),
        Shot(name="turns-light", fragment=f"{batch}&colour=turn", size=TABLET),
        Shot(name="document-light", fragment=document, size=TABLET),
        Shot(name="store-light", fragment="view=store&store=0"),
        Shot(name="compare-light", fragment=f"view=compare&step={DIFFERS}", compares=True),
        Shot(name="phone-light", fragment=f"step={STEP}", size=PHONE),
        Shot(name="phone-dark", fragment=chosen, size=PHONE, scheme="dark"),
    ]


def take(browser: Chrome, served: Served, shot: Shot) -> None:
    page = Page(browser, served)
    page.resize(*shot.size, is_phone=shot.size == PHONE)
    page.paint(shot.scheme)
    page.open(shot.fragment)
    page.pause(0.6)  # the reel, the panel, and what they ask for
    path = PICTURES / f"{shot.name}.png"
    browser.save_screenshot(str(path))
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    raise SystemExit(main())
