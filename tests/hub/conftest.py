"""The stand-in of the hub, filled with five small datasets, and the client that reads it."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from tests.hub.environment import client_environment

HERE = Path(__file__).parent
NUM_FINEWEB = 900


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"tokenreel_tests_hub_{name}", HERE / f"{name}.py"
    )
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def fineweb_rows() -> list[dict[str, Any]]:
    return [
        {
            "text": f"Page {n}. " + f"word{n * 31 % 997} " * (n % 60 + 20),
            "id": f"<urn:{n}>",
            "score": n,
        }
        for n in range(NUM_FINEWEB)
    ]


def large_rows() -> list[dict[str, str]]:
    """18 MB of JSONL, which the client fetches and hands over in parts."""
    return [{"text": f"{n} " + random.Random(n).randbytes(20_000).hex()} for n in range(450)]


def dolly_rows() -> list[dict[str, str]]:
    return [
        {"instruction": f"Ask {n}", "context": "" if n % 2 else f"c{n}", "response": f"Say {n}"}
        for n in range(12)
    ]


def oasst_rows() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for n in range(5):
        ask = {"message_id": f"{n}-a", "parent_id": None, "role": "prompter", "rank": None}
        worse = {"message_id": f"{n}-b", "parent_id": f"{n}-a", "role": "assistant", "rank": 1}
        best = {"message_id": f"{n}-c", "parent_id": f"{n}-a", "role": "assistant", "rank": 0}
        rows += [
            {**row, "text": f"T{row['message_id']}", "deleted": False} for row in (ask, worse, best)
        ]
    return rows


WIKITEXT = ["", " = Title = \n", "", " Some text . \n"]


def _fill(root: Path) -> None:
    crawl = root / "HuggingFaceFW/fineweb-edu/data/CC-MAIN-2024-10"
    wiki = root / "Salesforce/wikitext/wikitext-103-raw-v1"
    oasst = root / "OpenAssistant/oasst1/data"
    dolly = root / "databricks/databricks-dolly-15k"
    for folder in (crawl, wiki, oasst, dolly):
        folder.mkdir(parents=True)
    rows = fineweb_rows()
    for n, start in enumerate(range(0, NUM_FINEWEB, 300)):
        table = pa.Table.from_pylist(rows[start : start + 300])
        pq.write_table(table, crawl / f"train-{n:05d}-of-00003.parquet", row_group_size=50)
    _card(root / "HuggingFaceFW/fineweb-edu", "CC-MAIN-2024-10", train="data/CC-MAIN-2024-10/*")
    for split in ("train", "validation"):
        lines = [{"text": line + ("" if not line else split)} for line in WIKITEXT]
        pq.write_table(pa.Table.from_pylist(lines), wiki / f"{split}-00000-of-00001.parquet")
        pq.write_table(
            pa.Table.from_pylist(oasst_rows()), oasst / f"{split}-00000-of-00001.parquet"
        )
    globs = {split: f"wikitext-103-raw-v1/{split}-*" for split in ("train", "validation")}
    _card(root / "Salesforce/wikitext", "wikitext-103-raw-v1", **globs)
    large = root / "test/large"
    large.mkdir(parents=True)
    pages = "".join(json.dumps(row) + "\n" for row in large_rows())
    (large / "train.jsonl").write_text(pages)
    answers = "".join(json.dumps(row) + "\n" for row in dolly_rows())
    (dolly / "databricks-dolly-15k.jsonl").write_text(answers)


def _card(folder: Path, config: str, **splits: str) -> None:
    files = "".join(f"  - split: {split}\n    path: {path}\n" for split, path in splits.items())
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{files}---\n"
    )


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    root = tmp_path_factory.mktemp("hub")
    _fill(root)
    hub = _load("stand_in").StandIn(root)
    yield hub
    hub.close()


@pytest.fixture
def hub(served: Any) -> Iterator[Any]:
    served.heal()
    yield served
    served.heal()


@pytest.fixture(scope="session")
def client(served: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run the real client in its own process, with its own cache."""
    folder = tmp_path_factory.mktemp("client")
    environment = client_environment(served.url, folder)
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, str(HERE / "client.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            cwd=folder,
            text=True,
        ) as process,
    ):
        yield process
        process.communicate(timeout=20)


@pytest.fixture
def ask(hub: Any, client: Any) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Give jobs to the client and return its answers."""

    def run(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [_answer(client, job) for job in jobs]

    return run


def _answer(client: Any, job: dict[str, Any]) -> dict[str, Any]:
    client.stdin.write(json.dumps(job) + "\n")
    client.stdin.flush()
    for line in client.stdout:
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
    raise EOFError("the client ended; its log is in the folder of its cache")


@pytest.fixture(scope="session")
def content() -> dict[str, list[Any]]:
    """What the stand-in serves, as it was written."""
    return {
        "fineweb": fineweb_rows(),
        "large": large_rows(),
        "dolly": dolly_rows(),
        "oasst": oasst_rows(),
        "wikitext": WIKITEXT,
    }
