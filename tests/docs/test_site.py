"""The site that `make docs` builds: complete, generated where it can be, and alone in the world."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from tests.docs.blocks import ROOT

import tokenreel
from tokenreel.builder.build_settings import BuildSettings
from tokenreel.cli.main import COMMANDS
from tokenreel.feed.recipe import Phase, Recipe, Source

DOCS = ROOT / "docs"
ROOMS = ("torch", "jax", "grain", "stream", "dropin")
MODULES = ("tokenreel", *(f"tokenreel.{room}" for room in ROOMS))
REFERENCE = "\n".join(p.read_text("utf-8") for p in sorted((DOCS / "reference").glob("*.md")))


def script(name: str) -> ModuleType:
    """Import a script of scripts/, which import each other by their names."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / "scripts"))


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_on_a_page_of_the_reference(module: str) -> None:
    documented = set(re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE))
    documented |= set(re.findall(r"`(tokenreel(?:\.\w+)+)` (?:is|are) the", REFERENCE))
    # A function in a file of its own name: that of the file has both.
    documented |= {
        name.rpartition(".")[0] for name in documented if re.search(r"\.(\w+)\.\1$", name)
    }
    names = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
    assert names - documented == set()


def test_every_name_of_the_reference_exists_and_has_a_docstring() -> None:
    for name in re.findall(r"^::: ([\w.]+)$", REFERENCE, re.MULTILINE):
        module, _, last = name.rpartition(".")
        value = tokenreel if not module else importlib.import_module(module)
        assert inspect.getdoc(getattr(value, last)), name


def test_help_and_settings_on_the_site_are_those_of_the_code() -> None:
    parts = script("make_docs_parts").PARTS
    told = parts["command-line"]()
    assert all(f"### tokenreel {name}\n" in told for name in COMMANDS)
    assert "--global-batch-size" not in told and "--val-frac" in told
    keys = parts["recipe-keys"]()
    for kind in (Recipe, Source, Phase):
        assert all(f"| `{item.name}` |" in keys for item in fields(kind))
    settings = parts["build-settings"]()
    assert all(f"| `{item.name}` |" in settings for item in fields(BuildSettings))
    assert "| `hf_dataset` |" in parts["stream-keys"]()


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    entries = set(re.findall(r"[\w/-]+\.md", repr(nav)))
    included = set(script("make_docs").INCLUDED.values())
    written = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    scripts = {page for page in included if page.startswith("examples/")}  # listed by their index
    assert entries == written | included - scripts


def test_docstrings_become_markdown_that_shows_what_they_say() -> None:
    as_markdown = script("make_docs_docstrings").as_markdown
    told = as_markdown(
        "Take [B, T].\n\na, b\n    both\n\n    x = [1]\n\n    [y]\n    z\n\n    w\n\n>>> 1\n1"
    )
    assert told.startswith("Take \\[B, T\\].\n\n`a`, `b`\n:   both\n\n")
    assert "```text\nx = [1]\n\n[y]\nz\n\nw\n```" in told  # one layout, nothing in it escaped
    assert told.endswith("```pycon\n>>> 1\n1\n```")


def test_drawings_are_those_that_the_package_draws_today() -> None:
    drawn = script("draw_docs").files()
    kept = {path.relative_to(DOCS).as_posix() for path in (DOCS / "drawings").glob("*.svg")}
    assert kept == {name for name in drawn if name.endswith(".svg")} and len(kept) >= 7
    stale = [name for name, text in drawn.items() if (DOCS / name).read_text("utf-8") != text]
    assert stale == [], "run scripts/draw_docs.py"


def test_a_link_out_of_docs_is_led_to_the_page_that_shows_the_file() -> None:
    make = script("make_docs")
    page = DOCS / "understand/masks.md"
    text = make.staged_text(page, Path("understand/masks.md"), {})
    assert "[FORMAT](../reference/format.md)" in text and '<figure class="drawing"><svg' in text
    with pytest.raises(SystemExit, match=r"the site has no page of setup\.py"):
        match = make.LINK.search("[a](../../setup.py)")
        make.led(match, page, Path("understand/masks.md"))


def test_a_test_that_a_page_names_is_shown_with_its_source() -> None:
    make, parts = script("make_docs"), script("make_docs_parts")
    page = DOCS / "properties.md"
    tests = parts.cited_tests([page.read_text("utf-8")])
    text = make.staged_text(page, Path("properties.md"), tests)
    name = "test_in_an_epoch_each_row_comes_exactly_once"
    link = f"[*in an epoch each row comes exactly once*](reference/tests.md#{name})"
    assert link in text and "`test_" not in text
    assert f"{{ #{name} }}" in tests[name] and f"def {name}(" in tests[name]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", '<link rel="stylesheet" href="https://fonts.example/css">'),
        ("a.html", '<link href="//fonts.example/css" rel="preconnect">'),
        ("a.html", "<script async src=https://cdn.example/a.js></script>"),
        ("a.html", '<img alt="b" src="http://images.example/b.png">'),
        ("a.css", "body { background: url('https://images.example/b.png') }"),
        ("a.css", '@import "https://fonts.example/css";'),
    ],
)
def test_whatever_a_browser_would_fetch_from_elsewhere_is_found(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    assert len(script("make_docs").outside_requests(tmp_path)) == 1


def test_links_for_readers_to_click_are_no_requests(tmp_path: Path) -> None:
    text = '<a href="https://example.org/">out</a><img src="a.png"><script src="/b.js"></script>'
    (tmp_path / "a.html").write_text(text)
    assert script("make_docs").outside_requests(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[gone](gone.md)", "page does not exist"),
        ("[here](#nowhere)", "anchor does not exist"),
        ("[name][tokenreel.Fed]", "unresolved autoref"),
    ],
)
@pytest.mark.soak
def test_a_broken_link_anchor_or_name_fails_the_build(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Page\n\n{text}\n")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    settings |= {"docs_dir": "docs", "site_dir": "site", "nav": ["index.md"], "extra_css": []}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    program = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
    run = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode != 0 and complaint in run.stdout + run.stderr
