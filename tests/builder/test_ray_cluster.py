"""`--engine ray` on a cluster that runs elsewhere: found, named, missing, and losing a node."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builder.faulty import Faulty
from tests.builder.making import documents, tree, write_jsonl
from tests.builder.ray_cluster import Cluster

from tokenreel.builder.build import build
from tokenreel.errors import ConfigError

ROOT = Path(__file__).parents[2]
OPTIONS = ["--val-frac", "0.2", "--shard-size", "65536", "--tokenizer", "byte", "--quiet"]
BUILD = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.builder.faulty import Faulty
from tokenreel.builder.build import build
build([sys.argv[2]], out=sys.argv[3], tokenizer=Faulty("uneven"), engine="ray",
      address=sys.argv[4], chunk_bytes=1000)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    started = Cluster(num_cpus=1)
    yield started
    started.close()
    assert not started.folder.exists()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_jsonl(tmp_path_factory.mktemp("corpus") / "docs.jsonl", documents(300))


def command(source: Path, out: Path, *options: str) -> list[str]:
    words = [sys.executable, "-m", "tokenreel.cli.main", "build", str(source), "--out", str(out)]
    return [*words, *OPTIONS, *options]


@pytest.mark.soak
def test_a_cluster_is_found_or_named_and_gives_the_bytes_of_one_process(
    cluster: Cluster, source: Path, tmp_path: Path
) -> None:
    subprocess.run(command(source, tmp_path / "alone", "--workers", "1"), check=True)
    expected = tree(tmp_path / "alone")
    named = {**cluster.environment, "RAY_TMPDIR": str(tmp_path)}  # where no cluster is found
    for address, environment in (("auto", cluster.environment), (cluster.address, named)):
        out, before = tmp_path / address, cluster.num_drivers()
        words = command(source, out, "--engine", "ray", "--address", address)
        subprocess.run(words, env=environment, check=True, timeout=60)
        assert tree(out) == expected
        assert cluster.num_drivers() == before + 1


@pytest.mark.soak
def test_a_cluster_that_does_not_know_the_token_says_which_one_is_meant(
    cluster: Cluster, source: Path, tmp_path: Path
) -> None:
    words = command(source, tmp_path / "s", "--engine", "ray", "--address", cluster.address)
    environment = {
        **cluster.environment,
        "RAY_AUTH_TOKEN": "0" * 60,
        "RAY_NUM_REDIS_GET_RETRIES": "1",  # it would ask twenty times, a second apart
    }
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"{cluster.address}: no Ray cluster lets us in" in done.stderr
    assert "RAY_AUTH_TOKEN" in done.stderr and not (tmp_path / "s" / "manifest.json").exists()


@pytest.mark.soak
def test_a_node_that_is_lost_over_a_chunk_is_done_without(
    cluster: Cluster, source: Path, tmp_path: Path
) -> None:
    build([source], out=tmp_path / "alone", tokenizer=Faulty("none"), chunk_bytes=1000)
    node, out = cluster.add_node(num_cpus=1), tmp_path / "s"
    words = [sys.executable, "-c", BUILD, str(ROOT), str(source), str(out), cluster.address]
    with subprocess.Popen(words, env=cluster.environment) as process:
        while not any(cluster.owns(node, pid) for pid in at_work(out)):
            assert process.poll() is None, "the node was never given a chunk"
            time.sleep(0.002)
        cluster.kill_node(node)
        assert not (out / "manifest.json").exists()
        assert process.wait(timeout=60) == 0
    assert tree(out) == tree(tmp_path / "alone")


def at_work(out: Path) -> list[int]:
    """Return the processes that encode a chunk at this moment."""
    return [int(path.name.split(".")[0]) for path in out.glob(".build/*/*.at")]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:{free}", r"\([\d.]+:{free}\): no Ray cluster answers: .*refused"),
        ("ray://127.0.0.1:{free}", ": no Ray cluster answers: .*refused"),
        ("nonsense", ": no Ray cluster answers: Invalid address format: nonsense .*host:port"),
        ("ray://nonsense", ": no Ray cluster answers: there is no port in it .*host:port"),
    ],
)
def test_an_address_where_nobody_answers_is_an_error_at_once(
    address: str, said: str, source: Path, tmp_path: Path
) -> None:
    free = free_port()
    address, said = address.format(free=free), said.replace("{free}", str(free))
    began = time.monotonic()
    with pytest.raises(ConfigError, match=rf"^{address} ?{said}.*ray start --head"):
        build([source], out=tmp_path / "s", tokenizer="byte", engine="ray", address=address)
    assert time.monotonic() - began < 10


def test_auto_that_means_a_cluster_which_is_gone_is_an_error_at_once(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(ConfigError, match=rf"^auto \([\d.]+:{port}\): no Ray cluster answers"):
        build([source], out=tmp_path / "s", tokenizer="byte", engine="ray", address="auto")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
