"""A cluster that is running already, found by `--address auto`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builder.making import documents, tree, write_jsonl

from tokenreel.builder.build import build
from tokenreel.errors import ConfigError

pytest.importorskip("ray")


@pytest.fixture
def cluster() -> Iterator[str]:
    """Start a head node on loopback, and end its processes, not those of other clusters."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray = Path(sys.executable).with_name("ray")
    words = ["start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={port}"]
    process = subprocess.Popen(
        [str(ray), *words, "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "Ray runtime started" in line:
            break
    yield f"127.0.0.1:{port}"
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=60)


@pytest.mark.soak
def test_auto_finds_the_running_cluster_and_leaves_it_running(cluster: str, tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", documents(100))
    build([source], out=tmp_path / "t", tokenizer="byte")
    for out in ("first", "second"):
        words = ["build", str(source), "--out", str(tmp_path / out), "--tokenizer", "byte"]
        words_for_ray = ["--engine", "ray", "--address", "auto"]
        began = time.monotonic()
        run = subprocess.run(
            [sys.executable, "-m", "tokenreel.cli.main", *words, *words_for_ray],
            env={**os.environ, "RAY_ADDRESS": cluster},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert "ray" not in run.stderr.lower()
        assert time.monotonic() - began < 60
        assert tree(tmp_path / out) == tree(tmp_path / "t")


@pytest.mark.soak
def test_no_cluster_is_an_error_that_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", documents(10))
    with pytest.raises(ConfigError, match=r"no Ray cluster answers.*ray start --head"):
        build([source], out=tmp_path / "s", tokenizer="byte", engine="ray", address="127.0.0.1:9")
