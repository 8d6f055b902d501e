"""The blocks of code in a page of Markdown, and how they are run as a reader would paste them.

    ```python          a doctest, or a program; what it prints must be what the page says
    ```sh              commands, one a line
    ```toml title="recipe.toml"      a file that the reader writes into his folder, of any kind

Blocks of one page are pasted in order into one folder and one Python session. What cannot run here
has the line `<!-- not run: REASON -->` before it; its Python is compiled and its commands
are still checked against the parser. Ranks, models and clusters take minutes: `HEAVY` commands are
run by the soak tests alone.
"""

from __future__ import annotations

import ast
import doctest
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tokenreel.cli.main import full_parser, main

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"(?:^<!-- not run: (?P<excuse>[^\n]+?) -->\n+)?"
    r"^```(?P<kind>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
HEAVY = re.compile(r"(python examples/|torchrun |accelerate |ray |.* --engine ray|tokenreel demo)")
EXITS = re.compile(r"# exits with (\d)")  # said in the comment of a command that is to fail
PROGRAMS = {"make", "pip", "tokenreel", "python", "torchrun", "accelerate", "cd", "ray"}


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of code: its kind, its text, the file it is, and why it cannot be run here."""

    kind: str
    text: str
    title: str | None
    excuse: str | None
    where: str

    @property
    def lines(self) -> list[str]:
        """Return the commands of a shell block; a backslash joins two lines."""
        joined = self.text.replace("\\\n", " ")
        return [line for line in joined.splitlines() if line.strip()]


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    text = page.read_text("utf-8")
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        where = f"{page.relative_to(ROOT)}:{line}"
        found.append(Block(where=where, **match.groupdict()))
    return found


def words_of(line: str) -> list[str]:
    """Return the words of a command, without its comment."""
    return shlex.split(line, comments=True)


class Session:
    """A Python session, and a folder, that go on from block to block."""

    def __init__(self) -> None:
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.num_examples = self.num_commands = 0

    def run(self, block: Block) -> None:
        """Run a block here, but for what is heavy or excused."""
        if block.title is not None:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text)
        if block.excuse is not None or (block.title is not None and block.kind != "sh"):
            return
        if block.kind == "python":
            self.run_python(block)
        for line in block.lines if block.kind == "sh" else []:
            if not HEAVY.match(line):
                self.run_command(line, block.where)

    def run_python(self, block: Block) -> None:
        """Run a doctest, whose results must be those that it shows, or a program."""
        if not block.text.startswith(">>> "):
            exec(compile(block.text, block.where, "exec"), self.names)
            self.num_examples += 1
            return
        test = doctest.DocTestParser().get_doctest(block.text, {}, block.where, None, None)
        test.globs = self.names
        report: list[str] = []
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        runner = doctest.DocTestRunner(verbose=False, optionflags=flags)
        failed, attempted = runner.run(test, out=report.append, clear_globs=False)
        assert failed == 0, f"{block.where}\n{''.join(report)}"
        self.num_examples += attempted

    def run_command(self, line: str, where: str) -> None:
        """Run a command of tokenreel, or a program that the page has written, in this process."""
        program, *words = words_of(line)
        if program == "tokenreel":
            here = ["--workers", "1"] if words[0] == "build" and "--workers" not in words else []
            code = EXITS.search(line)
            wanted = int(code[1]) if code else 0
            assert main([*words, *here, "--quiet"]) == wanted, f"{where}: {line}"
            self.num_commands += 1
        elif program == "python":
            before, sys.argv = sys.argv, words
            try:
                runpy.run_path(words[0], run_name="__main__")
            finally:
                sys.argv = before
            self.num_commands += 1


def run_in_shell(block: Block, folder: Path) -> None:
    """Run all commands of a block as a reader's shell does, five steps of each example."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    for line in block.lines:
        if line.startswith(("make ", "pip ", "cd ", "ray ")) or block.excuse is not None:
            continue
        # The path is tried here, not what a model learns.
        shortened = re.sub(
            r"^((?:python|torchrun|accelerate) .*examples/[^#]*)", r"\1 --steps 5 ", line
        )
        line = line if "ray_build" in line else shortened
        if code := EXITS.search(line):
            line = f"{line[: code.start()]} || test $? -eq {code[1]}"
        subprocess.run(
            ["bash", "-e", "-c", line], cwd=folder, env=environment, check=True, timeout=600
        )


def check_block(block: Block) -> None:
    """Raise unless the Python of a block compiles and its commands are understood."""
    if block.kind == "python":
        if block.text.startswith(">>> "):
            for example in doctest.DocTestParser().get_examples(block.text, block.where):
                ast.parse(example.source)
        else:
            ast.parse(block.text)
    for line in block.lines if block.kind == "sh" else []:
        check_command(line, block.where)


def check_command(line: str, where: str) -> None:
    """Raise unless a command has a program, options and files that there are."""
    words = words_of(line)
    if not words:
        return
    assert words[0] in PROGRAMS, f"{where}: {line}"
    if words[0] == "tokenreel":
        assert full_parser().parse_args(words[1:]).command == words[1], where
    if words[0] == "make":
        assert f"\n{words[1]}: " in (ROOT / "Makefile").read_text("utf-8"), f"{where}: {line}"
    scripts = [n for n, word in enumerate(words) if word.startswith("examples/")]
    if words[0] in ("python", "torchrun", "accelerate") and scripts:
        source = (ROOT / words[scripts[0]]).read_text("utf-8")
        for word in words[scripts[0] + 1 :]:
            assert not word.startswith("--") or f'"{word}"' in source, f"{where}: {word}"
