"""A dataset of the hub whose connection fails in the middle of a build, and one that is killed."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import places, tree
from tests.forked import Forks
from tests.hub.environment import client_environment

HUB = Path(__file__).parents[1] / "hub"
# The client asks six times by itself before it gives up and the source is opened again.
OWN_TRIES = 6
TEXTS = [f"{n} " + random.Random(n).randbytes(20_000).hex() for n in range(450)]
RUN = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from client import waive_waiting
waive_waiting()
from tokenreel.builder.build import build
stop = int(sys.argv[3])
seen = []
def watch(account):
    seen.append(account.documents)
    if len(seen) == stop:
        os._exit(9)
if __name__ == "__main__":
    built = build(["hf:test/large"], out=sys.argv[2], tokenizer="byte", chunk_bytes=1_000_000,
                  watch=watch, max_retries=6, retry_delay=0.01)
    print(json.dumps(built.report["ledger"]))
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("tokenreel_tests_stand_in", HUB / "stand_in.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    root = tmp_path_factory.mktemp("hub")
    (root / "test/large").mkdir(parents=True)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    (root / "test/large/train.jsonl").write_text(lines)
    served = module.StandIn(root)
    yield served
    served.close()


@pytest.fixture
def run(hub: Any, tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Build in a process of its own, and return its exit code; all have the client imported."""
    (tmp_path / "run.py").write_text(RUN)
    environment = client_environment(hub.url, tmp_path / "home")
    with Forks("datasets", folder=tmp_path, environment=environment) as forks:

        def run(out: Path, *, stop: int = 0) -> int:
            return forks.start(tmp_path / "run.py", HUB, out, stop).wait()

        yield run


@pytest.mark.soak
def test_cut_connections_and_a_killed_build_change_nothing(
    hub: Any, tmp_path: Path, run: Callable[..., int]
) -> None:
    assert run(tmp_path / "whole") == 0
    hub.fail("large/", from_byte=10_000_000, cut_after=500_000, times=2 * OWN_TRIES)
    out = tmp_path / "s"
    assert run(out, stop=6) == 9
    before = places(out, ".build/*/*.chunk")
    assert len(before) == 6
    assert run(out) == 0
    assert len(hub.account.failed) == 2 * OWN_TRIES
    assert tree(out) == tree(tmp_path / "whole")
    documents = (out / "train" / "shard_00000.docs").read_bytes()
    assert len(documents) == 8 * (len(TEXTS) + 1)
