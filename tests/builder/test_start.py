"""What keeps the start of a build short: few imports, forked workers, no file read twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.builder.making import second_thread, write_jsonl

from tokenreel.builder.build import build
from tokenreel.builder.engines.local import _may_fork
from tokenreel.errors import InputError
from tokenreel.text.sources.mixed_files import FileSource
from tokenreel.text.sources.open import open_source
from tokenreel.text.tokenizers.train import train_tokenizer

LOOK = """
import json, sys
from tokenreel.builder.engines.local import _may_fork
from tokenreel.cli.main import main
from tokenreel.text.tokenizers import load_tokenizer
tokenizer = load_tokenizer(sys.argv[2])
is_forkable = _may_fork()
assert main(["build", sys.argv[1], "--tokenizer", sys.argv[2], "--out", sys.argv[3], "--json",
             "--workers", "1"]) == 0
names = ["awkward", "rich", "ray", "importlib.metadata", "pydantic", "torch", "pyarrow"]
loaded = [name for name in names if name in sys.modules]
print(json.dumps([tokenizer.engine.split()[0], is_forkable, loaded]))
"""


def test_a_command_that_builds_loads_no_library_it_does_not_need_and_can_fork(
    tmp_path: Path,
) -> None:
    words = " ".join(f"word{number}" for number in range(2000))
    (tmp_path / "t.txt").write_text(words)
    tokenizer = tmp_path / "tokenizer.json"
    train_tokenizer([tmp_path / "t.txt"], out=tokenizer, kind="bpe", vocab_size=400)
    _reserve(tokenizer, 300)
    source = write_jsonl(tmp_path / "d.jsonl", [{"text": words}] * 100)
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(source), str(tokenizer), str(tmp_path / "s")],
        capture_output=True,
        text=True,
        check=True,
        env={name: value for name, value in os.environ.items() if "THREADS" not in name},
    )
    engine, is_forkable, loaded = json.loads(done.stdout.splitlines()[-1])
    assert (engine, loaded) == ("gigatoken", [])
    assert is_forkable or sys.platform != "linux"


def _reserve(tokenizer: Path, count: int) -> None:
    """Add control tokens, as many as large models have: engines are tried with all of them."""
    definition = json.loads(tokenizer.read_text())
    added = definition["added_tokens"]
    first = 1 + max([token["id"] for token in added] + list(definition["model"]["vocab"].values()))
    for number in range(first, first + count):
        token = {**added[0], "id": number, "content": f"<|reserved_{number}|>", "special": True}
        added.append(token)
    tokenizer.write_text(json.dumps(definition))


def test_a_wrong_column_of_a_huge_file_is_found_without_reading_the_file(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", [{"body": "text"}])
    os.truncate(source, 1 << 42)  # a hole: it takes no space, and half an hour to hash
    with pytest.raises(InputError, match="text"):
        build(source, out=tmp_path / "s", tokenizer="byte")


def test_the_first_file_gives_the_first_records_of_the_source(tmp_path: Path) -> None:
    for number in range(3):
        write_jsonl(tmp_path / f"{number}.jsonl", [{"text": f"{number} {i}"} for i in range(5)])
    source = open_source(tmp_path)
    assert isinstance(source, FileSource)
    first = source.first_file()
    [part] = first.ranges(sys.maxsize)
    assert [record.text for record in first.read(part)] == [f"0 {i}" for i in range(5)]


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
def test_a_process_forks_its_workers_unless_it_has_a_second_thread() -> None:
    script = "import numpy; from tokenreel.builder.engines.local import _may_fork as f; print(f())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
    with second_thread():
        assert not _may_fork()


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")
def test_where_jax_is_loaded_nothing_is_forked_and_jax_warns_of_nothing() -> None:
    script = "import jax; from tokenreel.builder.engines.local import _may_fork as f; print(f())"
    asked = [sys.executable, "-W", "error::RuntimeWarning", "-c", script]
    done = subprocess.run(asked, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
