"""One view as one file: complete, readable without a server, and closed to everything else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.view.looking import HOSTILE, opened

from tokenreel.errors import ConfigError
from tokenreel.view.answers import Answers
from tokenreel.view.bundle import bundle_modules
from tokenreel.view.export import export_page, exported_answers, exported_page, parse_rows
from tokenreel.view.page_files import page_files


class Elements(HTMLParser):
    """The elements of a page, as a browser would find them: tag, attributes, text inside."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("", {}, ""))  # what follows is not inside

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def named(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


def test_the_file_holds_the_answers_of_its_view(recipe: Path, tmp_path: Path) -> None:
    answers = Answers(opened(recipe).subjects, first_step=7)
    size = export_page(answers, tmp_path / "page.html", rows=range(1, 3))
    page = (tmp_path / "page.html").read_text()
    assert size == len(page.encode())
    (told,) = [text for attributes, text in Elements(page).named("script") if "id" in attributes]
    kept = json.loads(told)
    assert kept["api/target"]["exported"] == {"step": 7, "rows": [1, 2]}
    for path in ("api/reel", "api/step/7", "api/step/7/row/1", "api/step/7/row/2/segments"):
        assert kept[path] == json.loads(json.dumps(answers.answer(path)))
    assert [row["row"] for row in kept["api/step/7/rows"]] == [1, 2]
    assert "api/step/7/row/0" not in kept


def test_a_store_is_exported_with_its_samples(stores: Path) -> None:
    kept = dict(exported_answers(opened(stores / "chats")))
    for number in kept["api/store/0"]["samples"]:
        assert kept[f"api/store/0/0/document/{number}"]["document"] == number


def test_two_recipes_are_exported_with_what_differs(recipe: Path) -> None:
    kept = dict(exported_answers(opened(recipe, recipe, overrides=["seed=8"])))
    assert kept["api/compare"]["differences"] == [{"field": "seed", "a": 7, "b": 8}]
    assert kept["api/compare/step/0"]["same"] is False
    assert kept["api/step/0/row/3"] != kept["api/step/0/row/3?target=1"]


def test_the_policy_allows_what_is_in_the_file_and_nothing_else(recipe: Path) -> None:
    elements = Elements(exported_page(dict(exported_answers(opened(recipe)))))
    metas = [attributes for attributes, _ in elements.named("meta")]
    (policy,) = [str(m["content"]) for m in metas if m.get("http-equiv")]
    allowed = re.findall(r"'(sha256-[^']+)'", policy)
    inline = [text for attributes, text in elements.named("style")]
    inline += [text for a, text in elements.named("script") if a.get("type") == "module"]
    hashes = [
        f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
        for text in inline
    ]
    assert sorted(allowed) == sorted(hashes)
    assert len(hashes) == 2
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy and "self" not in policy and "http" not in policy
    for tag, attributes, _ in elements.found:
        for name in ("src", "href"):
            value = attributes.get(name) or "#"
            assert value.startswith(("data:", "#")), (tag, value)


def test_hostile_text_stays_text(recipe: Path) -> None:
    answers = opened(recipe)
    document = answers.answer("api/document/0/3")
    assert HOSTILE in "".join(text or "" for text in document["texts"])
    page = exported_page({"api/target": {"title": HOSTILE}, "x": document})
    (told,) = [text for a, text in Elements(page).named("script") if a.get("id") == "answers"]
    assert json.loads(told)["api/target"]["title"] == HOSTILE
    assert len(Elements(page).named("script")) == 2
    assert not Elements(page).named("img")


def test_a_file_is_there_whole_or_not_at_all(recipe: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    with pytest.raises(ConfigError, match="no such rows"):
        export_page(opened(recipe), path, rows=range(6, 7))
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    export_page(opened(recipe), path)
    assert path.read_text().startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_rows_are_named_as_slices_are() -> None:
    assert parse_rows(None) == range(8)
    assert parse_rows(":3") == range(3)
    with pytest.raises(ConfigError, match="bad rows"):
        parse_rows("0:65")


def test_modules_become_one_script_that_does_the_same(tmp_path: Path) -> None:
    files = {
        "main.js": 'import draw, { half as part } from "./draw.js";\n'
        'import {\n  NAME,\n} from "./names.js";\n'
        "console.log(draw(NAME), part(8), new Set([1]).size);\n",
        "draw.js": 'import { NAME } from "./names.js";\n'
        "function draw(word) {\n  return `${word}!` + (word === NAME);\n}\n"
        "const half = (n) => n / 2;\nexport { half };\nexport default draw;\n",
        "names.js": 'export const NAME = "import { x } from y";\nexport class Other {}\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    bundled = bundle_modules(files, "main.js")
    (tmp_path / "bundle.js").write_text(bundled)
    assert not re.search(r"^(import|export)", bundled, re.MULTILINE)
    order = [bundled.index(f"module_{name} =") for name in ("names", "draw", "main")]
    assert order == sorted(order)
    node = shutil.which("node")
    if node is not None:
        said = [
            subprocess.run(
                [node, name], cwd=tmp_path, capture_output=True, text=True, check=True
            ).stdout
            for name in ("main.js", "bundle.js")
        ]
        assert said == ["import { x } from y!true 4 1\n"] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('import * as all from "./a.js";', "not understood"),
        ('const a = await import("./a.js");', "not understood"),
        ("export let changing = 1;", "not understood"),
        ('import { b } from "./b.js";', "which is not there"),
        ('import { a } from "./main.js";', "in a circle"),
    ],
)
def test_what_the_bundle_does_not_understand_is_an_error(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        bundle_modules({"main.js": text}, "main.js")


def test_the_shipped_modules_can_be_put_into_one_file() -> None:
    files = {name: file.content.decode() for name, file in page_files().items()}
    bundled = bundle_modules(files, "main.js")
    reached = set(re.findall(r"^const module_(\w+) =", bundled, re.MULTILINE))
    assert {"main", "answers", "tokens"} <= reached
