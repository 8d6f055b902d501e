"""The folder in which the pages of docs/ play: the one that the demo leaves, smaller."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT

from tokenreel.cli.main import main
from tokenreel.demo.corpus import write_chats, write_documents
from tokenreel.demo.stores import BUILD, RECIPE


def make_reel(folder: Path) -> Path:
    """Make the stores of the demo, by its commands, of an eighth of its text."""
    folder.mkdir()
    with contextlib.chdir(folder):
        write_documents(Path("code.jsonl"), limit_bytes=1_000_000)
        write_chats(Path("chats.jsonl"), limit=400)
        words = ["--kind", "bpe", "--vocab-size", "2000", "--out", "tokenizer.json", "--quiet"]
        assert main(["train-tokenizer", "code.jsonl", *words]) == 0
        build = ["build", "--quiet", "--workers", "1"]
        assert main([*build, "code.jsonl", "--out", "code", *BUILD]) == 0
        chat = ["chats.jsonl", "--chat", "--out", "chat", "--tokenizer", "tokenizer.json"]
        assert main([*build, *chat]) == 0
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


@pytest.fixture(scope="session")
def made_reel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder once."""
    return make_reel(tmp_path_factory.mktemp("docs") / "reel")


@pytest.fixture
def reel(made_reel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the folder, as the working folder."""
    folder = tmp_path / "reel"
    shutil.copytree(made_reel, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder
