"""What editors and type checkers know of `build`: its keywords, their types, their choices."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

import tokenreel

CALLS = """
from tokenreel.builder.build import build

build("a.jsonl", out="s", tokenizer="byte", shuffle="global", val_frac=0.1, policy={"user": 0.5})
build("a.jsonl", out="s", tokenizer="byte", shuffle="nnone")
build("a.jsonl", out="s", tokenizer="byte", val_frak=0.1)
build("a.jsonl", out="s", tokenizer="byte", engine="rai")
build("a.jsonl", out="s", tokenizer="byte", on_bad="ignore")
build("a.jsonl", out="s", tokenizer="byte", kind="csv")
build("a.jsonl", out="s", tokenizer="byte", policy="users")
build("a.jsonl", out="s", tokenizer="byte", tokenizer_engine="fast")
build("a.jsonl", out="s", tokenizer="byte", workers="2")
build("a.jsonl", tokenizer="byte")
"""


# What declares the signature: following every import would take minutes.
DECLARING = [
    "builder/build.py",
    "builder/build_settings.py",
    "config/keywords.py",
    "text/sources/read_options.py",
]


def test_mypy_rejects_wrong_keywords_and_wrong_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls.py"
    calls.write_text(CALLS)
    source = Path(tokenreel.__file__).parent
    monkeypatch.setenv("MYPYPATH", str(source.parent))
    files = [str(calls), *(str(source / name) for name in DECLARING)]
    options = ["--follow-imports=skip", "--explicit-package-bases", "--config-file="]
    said, _, _ = api.run([*options, f"--cache-dir={tmp_path}", *files])
    said = "\n".join(line for line in said.splitlines() if "calls.py" in line)
    lines = {int(line.split(":")[1]): line for line in said.splitlines() if "error:" in line}
    assert sorted(lines) == [5, 6, 7, 8, 9, 10, 11, 12, 13], said
    assert "Literal['none', 'buffer', 'torch-buffer', 'global']" in lines[5]
    assert 'Unexpected keyword argument "val_frak"' in lines[6]
    assert 'Missing named argument "out"' in lines[13]
