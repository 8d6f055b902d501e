"""The pages of docs/: their code runs as it is pasted, their links and citations lead somewhere."""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path

import pytest
from tests.docs.blocks import HEAVY, ROOT, Block, Session, blocks_of, check_block, run_in_shell

from tokenreel.cli.main import full_parser

DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
# Their blocks are run elsewhere: against transformers, and with the names of nanoGPT's train.py.
RUN_ELSEWHERE = {
    "chat-templates.md": "tests/text/chats/test_model_shapes.py",
    "from-nanogpt.md": "tests/adapters/test_get_batch.py",
}
RUN = [
    page
    for page in PAGES
    if page not in RUN_ELSEWHERE
    and any(block.kind in ("python", "sh") for block in blocks_of(DOCS / page))
]
# A page of its own takes longer than all the others: importing what it is about.
SLOW = {"how-to/trainer.md", "how-to/lightning.md", "how-to/compare-runs.md"}
LINK = re.compile(r"!?\[[^\]]*\]\((?!https?:|#)([^)\s#]+)(?:#([^)\s]+))?\)")
INLINE = re.compile(r"`tokenreel ([a-z-]+)([^`]*)`")
TOLD = ("how-to/", "understand/", "from-nanogpt.md")
TELLING = [page for page in PAGES if page.startswith(TOLD) and not page.endswith("index.md")]


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=pytest.mark.soak) if p in SLOW else p for p in RUN]
)
def test_pasted_in_order_into_the_folder_of_the_demo_a_page_runs(page: str, reel: Path) -> None:
    session = Session()
    for block in blocks_of(DOCS / page):
        session.run(block)
    lines = [line for block in blocks_of(DOCS / page) for line in command_lines(block)]
    light = [line for line in lines if not HEAVY.match(line)]
    assert session.num_examples + session.num_commands > 0 or not light


def command_lines(block: Block) -> list[str]:
    """Return the commands of a block that are to be run here."""
    return block.lines if block.kind == "sh" and block.excuse is None else []


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", RUN)
def test_pasted_in_order_everything_of_a_page_runs_in_a_shell(page: str, reel: Path) -> None:
    session = Session()
    for block in blocks_of(DOCS / page):
        if block.kind == "sh":
            run_in_shell(block, reel)
        else:
            session.run(block)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_compiles_and_its_commands_are_understood(page: str) -> None:
    for block in blocks_of(DOCS / page):
        check_block(block)


def test_commands_and_flags_that_sentences_name_exist() -> None:
    commands = next(
        action.choices
        for action in full_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    texts = [(DOCS / page).read_text("utf-8") for page in PAGES]
    texts += [(ROOT / name).read_text("utf-8") for name in ("README.md", "RELEASING.md")]
    named = {found for text in texts for found in INLINE.findall(text)}
    assert len(named) > 15
    for command, rest in named:
        assert command in commands, command
        flags = set(re.findall(r"--[a-z-]+", rest))
        assert flags <= set(commands[command]._option_string_actions), (command, rest)


def test_what_is_excused_from_running_says_why() -> None:
    excused = {b.where.partition(":")[0] for p in PAGES for b in blocks_of(DOCS / p) if b.excuse}
    assert excused == {
        "docs/how-to/compare-runs.md",  # a server
        "docs/how-to/look.md",  # a server
        "docs/how-to/model-template.md",  # a published model
        "docs/how-to/ranks.md",  # a device mesh
        "docs/how-to/ray.md",  # a cluster
        "docs/chat-templates.md",  # a published model
        "docs/understand/speed.md",  # minutes
    }


@pytest.mark.parametrize("page", RUN_ELSEWHERE)
def test_pages_that_are_run_elsewhere_are(page: str) -> None:
    assert page in (ROOT / RUN_ELSEWHERE[page]).read_text("utf-8")


@pytest.mark.parametrize("page", TELLING)
def test_a_page_begins_with_what_the_reader_gets_then_code(page: str) -> None:
    lines = (DOCS / page).read_text("utf-8").splitlines()
    assert lines[0].startswith("# ") and lines[2].startswith("You get ")
    first = next(number for number, line in enumerate(lines) if line.startswith("```"))
    said = [line for line in lines[1:first] if line.strip()]
    assert len(said) <= 5, f"{page}: code begins after {len(said)} lines of prose"


def test_every_link_leads_to_a_file() -> None:
    missing = [
        f"{page}: {target}"
        for page in PAGES
        for target in targets_of((DOCS / page).read_text("utf-8"))
        if not (DOCS / page).parent.joinpath(target).exists()
    ]
    assert missing == []


def targets_of(text: str) -> list[str]:
    """Return where the links and pictures of a page lead."""
    return [target for target, _ in LINK.findall(text)] + re.findall(r'src(?:set)?="([^"]+)"', text)


def test_every_test_that_a_page_names_exists() -> None:
    defined = {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    named = {
        (page, name)
        for page in PAGES
        for name in re.findall(r"`(test_\w+)`", (DOCS / page).read_text("utf-8"))
    }
    assert len(named) > 60
    assert [pair for pair in sorted(named) if pair[1] not in defined] == []


def test_numbers_of_properties_and_faults_that_pages_link_to_are_listed() -> None:
    link = re.compile(r"(properties|faults)\.md#number-(\d+)")
    linked = {found for p in PAGES for found in link.findall((DOCS / p).read_text("utf-8"))}
    assert len(linked) > 25
    for name, number in linked:
        assert re.search(rf"^{number}\. ", (DOCS / f"{name}.md").read_text("utf-8"), re.MULTILINE)


def test_a_page_that_prints_something_else_would_be_found() -> None:
    block = Block(kind="python", text=">>> 1 + 1\n3\n", title=None, excuse=None, where="a page")
    with pytest.raises(AssertionError, match="Expected"):
        Session().run(block)


def test_a_command_with_a_flag_that_is_not_there_would_be_found() -> None:
    line = "tokenreel plan recipe.toml --sett seed=3\n"
    with pytest.raises(Exception, match="--sett"):
        check_block(Block(kind="sh", text=line, title=None, excuse="no", where="a page"))
