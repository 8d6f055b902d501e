"""The code in README.md runs and prints what it says; its commands and files are there."""

from __future__ import annotations

import doctest
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenreel.cli.main import full_parser, main
from tokenreel.cli.usage import MisuseError

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
HEREDOC = re.compile(r"^cat > (\S+) <<'END'\n(.*?)^END\n", re.MULTILINE | re.DOTALL)
LINES = [line for kind, text in BLOCKS if not kind for line in HEREDOC.sub("", text).splitlines()]
# Ranks, models and clusters take minutes: they are run by the soak test, as everything else is.
IS_HEAVY = re.compile(r"python |torchrun |.* --engine ray")
EXAMPLE = re.compile(r"^((?:python|torchrun) .*)$", re.MULTILINE)


def commands(program: str) -> list[list[str]]:
    words = [shlex.split(line, comments=True) for line in LINES]
    return [line for line in words if line and line[0] == program]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a newcomer: what README says that he has, and nothing else."""
    monkeypatch.chdir(tmp_path)
    assert "`docs/*.jsonl`" in README and "in `chats.jsonl`, and the `examples/`" in README
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.jsonl").write_text("".join(documents(3_500_000)))
    chats = [
        {
            "messages": [
                {"role": "user", "content": f"What is {n} + {n}?"},
                {"role": "assistant", "content": f"It is {2 * n}."},
            ]
        }
        for n in range(100)
    ]
    (tmp_path / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)) + "\n")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def documents(num_bytes: int) -> Iterator[str]:
    """Yield lines of JSON, with text of which a vocabulary of 16,000 can be learned."""
    for file in sorted(Path(os.__file__).parent.glob("*.py")):
        if num_bytes > 0:
            text = file.read_text("utf-8", errors="replace")
            num_bytes -= len(text)
            yield json.dumps({"text": text}) + "\n"


class Session:
    """A Python session that goes on from block to block."""

    def __init__(self) -> None:
        self.names: dict[str, object] = {}
        self.num_examples = 0

    def run(self, text: str) -> None:
        """Run a block; what it prints must be what it says."""
        block = doctest.DocTestParser().get_doctest(text, {}, "README.md", None, None)
        block.globs = self.names
        report: list[str] = []
        runner = doctest.DocTestRunner(verbose=False)
        failed, attempted = runner.run(block, out=report.append, clear_globs=False)
        assert failed == 0, "".join(report)
        self.num_examples += attempted


def run_light(text: str) -> int:
    """Run a shell block in this process, without what is heavy; return how much was run."""
    for name, content in HEREDOC.findall(text):
        Path(name).write_text(content)
    lines = [line for line in HEREDOC.sub("", text).splitlines() if not IS_HEAVY.match(line)]
    for line in lines:
        program, *words = shlex.split(line, comments=True)
        if program == "tokenreel":
            assert main([*words, "--quiet"]) == 0, line
    return len(lines)


def test_pasted_in_order_into_one_folder_everything_light_runs(folder: Path) -> None:
    session, num_lines = Session(), 0
    for kind, text in BLOCKS:
        if kind == "python":
            session.run(text)
        else:
            num_lines += run_light(text)
    assert session.num_examples >= 40 and num_lines >= 15
    assert all(text.startswith(">>> ") for kind, text in BLOCKS if kind == "python")


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_pasted_in_order_into_one_folder_everything_runs(folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    session = Session()
    for kind, text in BLOCKS:
        if kind == "python":
            session.run(text)
        elif not text.startswith("make "):  # the demo and this suite itself: make checks them
            # The path is tried here, not what a model learns: five steps of each example.
            shell = ["bash", "-e", "-c", EXAMPLE.sub(r"\1 --steps 5", text)]
            subprocess.run(shell, cwd=folder, env=environment, check=True, timeout=600)


@pytest.mark.parametrize("words", commands("tokenreel"), ids=" ".join)
def test_every_command_and_option_is_there(words: list[str]) -> None:
    args = full_parser().parse_args(words[1:])
    assert args.command == words[1]


@pytest.mark.parametrize("words", commands("python") + commands("torchrun"), ids=" ".join)
def test_every_example_takes_what_it_is_given(words: list[str]) -> None:
    at = next(number for number, word in enumerate(words) if word.startswith("examples/"))
    source = (ROOT / words[at]).read_text("utf-8")
    assert all(f'"{word}"' in source for word in words[at + 1 :] if word.startswith("--"))


def test_every_line_of_a_shell_block_is_one_of_these() -> None:
    programs = {shlex.split(line, comments=True)[0] for line in LINES if line}
    assert programs == {"make", "tokenreel", "python", "torchrun"}
    targets = (ROOT / "Makefile").read_text("utf-8")
    assert all(f"\n{words[1]}: " in targets for words in commands("make"))


def test_the_contracts_live_where_it_says() -> None:
    section = README.partition("## The five contracts")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d{3}) .*\| `([\w.]+)`(?:: (.*?))?(?:;.*)? \|$", section, re.MULTILINE)
    assert [number for number, _, _ in rows] == ["000", "001", "002", "003", "004"]
    for _, module, names in rows:
        found = importlib.import_module(module)
        assert all(hasattr(found, name) for name in re.findall(r"`(\w+)`", names))
    assert (ROOT / "scripts/prepare_data.py").exists()


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (ROOT / target).exists(), target


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
