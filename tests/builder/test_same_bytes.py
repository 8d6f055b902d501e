"""Property 19: a store has the same bytes for 1, 2 and 5 workers, and on Ray."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builder.faulty import Faulty
from tests.builder.making import chats, documents, second_thread, tree, write_jsonl

from tokenreel.builder.build import build
from tokenreel.inspect.verify import verify_store

SMALL: dict[str, Any] = {"chunk_bytes": 2000, "shard_size": 4096}
CHOICES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "buffer": {"shuffle": "buffer", "shuffle_buffer": 37, "val_frac": 0.2, "min_tokens": 20},
    "global": {
        "shuffle": "global",
        "val_tokens": 900,
        "train_tokens": 9000,
        "deduplicate": True,
    },
    "chats": {"chat": True, "shuffle": "global", "val_frac": 0.3},
    "chats cut": {"chat": True, "shuffle": "buffer", "shuffle_buffer": 5, "train_tokens": 3000},
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("corpora")
    return (
        write_jsonl(folder / "docs.jsonl", documents(300)),
        write_jsonl(folder / "chats.jsonl", chats(150)),
    )


@pytest.fixture(scope="module")
def alone(
    corpora: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, bytes]]:
    """The trees of builds by one process."""
    trees = {}
    for name, choices in CHOICES.items():
        out = tmp_path_factory.mktemp("alone") / "store"
        build([corpora["chat" in choices]], out=out, tokenizer="byte", **SMALL, **choices)
        assert verify_store(out).ok
        trees[name] = tree(out)
    return trees


@pytest.mark.parametrize(
    ("name", "workers"),
    [("as it comes", 5), ("buffer", 2), ("global", 2), ("chats", 5), ("chats cut", 2)],
)
def test_several_workers_give_the_bytes_of_one(
    name: str,
    workers: int,
    corpora: tuple[Path, Path],
    alone: dict[str, dict[str, bytes]],
    tmp_path: Path,
) -> None:
    choices = CHOICES[name]
    source = corpora["chat" in choices]
    build([source], out=tmp_path / "store", tokenizer="byte", workers=workers, **SMALL, **choices)
    assert tree(tmp_path / "store") == alone[name]


def test_workers_that_are_spawned_give_the_bytes_of_one_process(
    corpora: tuple[Path, Path], alone: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    with second_thread():
        build([corpora[0]], out=tmp_path / "store", tokenizer="byte", workers=2, **SMALL)
    assert tree(tmp_path / "store") == alone["as it comes"]


def test_the_order_in_which_chunks_get_ready_does_not_matter(
    corpora: tuple[Path, Path], alone: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    build([corpora[0]], out=tmp_path / "store", tokenizer=Faulty("uneven"), workers=3, **SMALL)
    shards = {name: data for name, data in tree(tmp_path / "store").items() if ".bin" in name}
    assert shards == {name: alone["as it comes"][name] for name in shards}


def test_the_size_of_chunks_decides_no_token(
    corpora: tuple[Path, Path], alone: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    for name in ("buffer", "chats"):
        out = tmp_path / name
        choices = {**SMALL, **CHOICES[name], "chunk_bytes": 333}
        build([corpora["chat" in choices]], out=out, tokenizer="byte", **choices)
        kinds = (".bin", ".docs", ".turns", ".origins", ".strings")
        files = {name: data for name, data in tree(out).items() if Path(name).suffix in kinds}
        assert files == {file: alone[name][file] for file in files}


@pytest.fixture(scope="module")
def ray_started() -> Iterator[Any]:
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.parametrize(
    "name",
    [name if name == "chats" else pytest.param(name, marks=pytest.mark.soak) for name in CHOICES],
)
def test_ray_gives_the_bytes_of_one_process(
    name: str,
    ray_started: Any,
    corpora: tuple[Path, Path],
    alone: dict[str, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(corpora[0].parent)
    choices = CHOICES[name]
    source = corpora["chat" in choices].name  # a relative path, as people give them
    out = tmp_path / "store"
    build([source], out=out, tokenizer="byte", engine="ray", **SMALL, **choices)
    assert tree(out) == alone[name]


def test_a_ray_worker_that_is_killed_over_a_chunk_is_replaced(
    ray_started: Any,
    corpora: tuple[Path, Path],
    alone: dict[str, dict[str, bytes]],
    tmp_path: Path,
) -> None:
    out = tmp_path / "store"
    killed: set[int] = set()

    def kill_one(account: Any) -> None:
        at_work = [int(path.name.split(".")[0]) for path in out.glob(".build/*/*.at")]
        if at_work and not killed:
            killed.add(at_work[0])
            os.kill(at_work[0], signal.SIGKILL)

    build(
        [corpora[0]],
        out=out,
        tokenizer=Faulty("uneven"),
        engine="ray",
        watch=kill_one,
        **SMALL,
    )
    assert killed
    shards = {name: data for name, data in tree(out).items() if ".bin" in name}
    assert shards == {name: alone["as it comes"][name] for name in shards}
    assert not (out / ".build").exists()
