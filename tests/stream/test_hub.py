"""A dataset streamed from the hub: failures in the middle lose, repeat and skip nothing."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import tree
from tests.hub.environment import client_environment

HERE = Path(__file__).parent
STAND_IN = HERE.parent / "hub/stand_in.py"
# The client asks six times by itself before it gives up and the source is opened again.
OWN_TRIES = 6
NUM_TEXTS = 450
# Texts are long because the client fetches megabytes at once; of each a part is enough.
MAX_DOC_TOKENS = 3000


def text_of(number: int) -> str:
    return f"{number} " + random.Random(number).randbytes(20_000).hex()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("tokenreel_tests_stream_stand_in", STAND_IN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    root = tmp_path_factory.mktemp("hub")
    folder = root / "test/large"
    folder.mkdir(parents=True)
    lines = (json.dumps({"text": text_of(number)}) + "\n" for number in range(NUM_TEXTS))
    (folder / "train.jsonl").write_text("".join(lines))
    (folder / "validation.jsonl").write_text(json.dumps({"text": "held back " * 900}) + "\n")
    hub = module.StandIn(root)
    yield hub
    hub.close()


@pytest.fixture
def hub(served: Any) -> Iterator[Any]:
    served.heal()
    yield served
    served.heal()


@contextmanager
def started(served: Any, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that streams from the stand-in."""
    environment = client_environment(served.url, folder)
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, str(HERE / "hub_client.py")],
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


@pytest.fixture(scope="module")
def client(served: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with started(served, tmp_path_factory.mktemp("client")) as process:
        yield process


Streaming = Callable[..., dict[str, Any]]


@pytest.fixture
def stream(hub: Any, client: Any) -> Streaming:
    """Have the client stream by a configuration and return what it tells."""

    def run(config: dict[str, Any] | None = None, **job: Any) -> dict[str, Any]:
        _ask(client, {"config": config, **job})
        answer: dict[str, Any] = json.loads(client.stdout.readline())
        return answer

    return run


def _ask(client: Any, job: dict[str, Any]) -> None:
    client.stdin.write(json.dumps(job) + "\n")
    client.stdin.flush()


def config_of(**settings: Any) -> dict[str, Any]:
    return {
        "data": {
            "hf_dataset": "test/large",
            "shuffle_buffer_size": 32,
            "repeat": False,
            "retry_delay_sec": 0.01,
            "tokenizer": {"kind": "byte", "add_eos": True, "max_doc_tokens": MAX_DOC_TOKENS},
            **settings,
        },
        "train": {"seq_len": 4096, "batch_size": 5, "grad_accum": 2},
    }


@pytest.fixture(scope="module")
def clean() -> dict[str, Any]:
    """What streams without a fault, filled by the first test that needs it."""
    return {}


def whole(clean: dict[str, Any], stream: Streaming) -> dict[str, Any]:
    if not clean:
        clean.update(stream(config_of(), states=[9, 20]))
        assert "error" not in clean
        assert clean["stats"]["documents"] == NUM_TEXTS and clean["stats"]["retries"] == 0
        assert clean["stats"]["tokens"] == sum(len(text_of(n)) + 1 for n in range(NUM_TEXTS))
    return clean


@pytest.mark.soak
def test_cut_connections_unavailable_servers_and_slow_bytes_change_no_batch(
    hub: Any, stream: Streaming, clean: dict[str, Any]
) -> None:
    expected = whole(clean, stream)
    hub.fail("/api/datasets/test/large", status=503, times=2)
    hub.fail("train.jsonl", from_byte=10_000_000, cut_after=500_000, times=2 * OWN_TRIES)
    hub.fail("train.jsonl", from_byte=10_000_000, status=503, times=OWN_TRIES)
    hub.fail("train.jsonl", from_byte=15_000_000, slow=0.0005, times=1)
    answer = stream(config_of(max_retries=6, grain_prefetch=2))
    assert answer["batches"] == expected["batches"]
    assert answer["stats"]["retries"] >= 3
    assert len(hub.account.failed) == 2 + 3 * OWN_TRIES + 1


@pytest.mark.soak
def test_a_failure_before_the_first_saved_state_skips_no_epoch(
    hub: Any, stream: Streaming, clean: dict[str, Any]
) -> None:
    expected = whole(clean, stream)
    hub.fail("train.jsonl", cut_after=0, times=2 * OWN_TRIES)
    answer = stream(
        config_of(max_retries=6, state_update_interval=10_000, packing_mode="bin"), steps=3
    )
    assert answer["stats"]["retries"] >= 2
    assert answer["stats"]["documents"] >= 32
    hub.heal()
    again = stream(config_of(state_update_interval=10_000, packing_mode="bin"), steps=3)
    assert answer["batches"] == again["batches"] != expected["batches"][:3]


def test_without_retries_a_failure_is_an_error_and_the_stream_goes_on_where_it_was(
    hub: Any, stream: Streaming, clean: dict[str, Any]
) -> None:
    expected = whole(clean, stream)
    hub.fail("train.jsonl", from_byte=10_000_000, cut_after=0, times=OWN_TRIES)
    first = stream(config_of(max_retries=0))
    assert first["error"].startswith("test/large:train: reading failed 1 times in a row: ")
    assert 0 < len(first["batches"]) < len(expected["batches"])
    rest = stream(goes_on=True)
    assert first["batches"] + rest["batches"] == expected["batches"]


def test_a_connection_that_never_comes_back_is_an_error(hub: Any, stream: Streaming) -> None:
    hub.fail("train.jsonl", from_byte=10_000_000, cut_after=0, times=10**6)
    answer = stream(config_of(max_retries=2))
    assert "reading failed 3 times in a row" in answer["error"]
    assert "raise data.max_retries" in answer["error"]
    assert answer["stats"]["retries"] == 2


@pytest.mark.parametrize(("step", "interval"), [(9, 7), (20, 256)])
def test_a_resumed_stream_reads_on_from_the_exact_document(
    stream: Streaming, clean: dict[str, Any], step: int, interval: int
) -> None:
    expected = whole(clean, stream)
    state = expected["states"][str(step)]
    buffer = state["lanes"]["0"]["buffer"]
    assert len(json.dumps(state)) - len(buffer) < 8192 and 0 < len(buffer) < 2**20
    answer = stream(config_of(state_update_interval=interval), state=state, steps=4)
    assert answer["batches"] == expected["batches"][step + 1 :][:4]


def break_off(hub: Any) -> None:
    """Let the next reading of the file meet servers that are away and connections that break."""
    hub.fail("/api/datasets/test/large", status=503, times=2)
    hub.fail("train.jsonl", cut_after=700_000, times=OWN_TRIES)
    hub.fail("train.jsonl", from_byte=10_000_000, status=503, times=OWN_TRIES)
    hub.fail("train.jsonl", from_byte=10_000_000, cut_after=300_000, times=OWN_TRIES)


def test_killed_while_connections_break_it_goes_on_with_the_same_batches_and_bytes(
    hub: Any, stream: Streaming, tmp_path: Path
) -> None:
    """Shuffled, packed in bins, four batches ahead, written through to a store, all at once."""

    def config(out: str) -> dict[str, Any]:
        config = config_of(packing_mode="bin", packing_buffer_docs=20, grain_prefetch=4)
        config["data"].update(max_retries=6, state_update_interval=7)
        config["stream"] = {"cache_to": str(tmp_path / out), "cache_shard_bytes": 1 << 18}
        return config

    expected = stream(config("whole"))
    break_off(hub)
    with started(hub, tmp_path) as process:
        assert process.stdout is not None
        _ask(process, {"config": config("killed"), "tells": True})
        told = [json.loads(process.stdout.readline()) for _ in range(12)]
        process.kill()
    assert not (tmp_path / "killed/manifest.json").exists()
    break_off(hub)
    # The last state that reached the disk is older than the last batch that was made.
    answer = stream(config("killed"), state=told[8]["state"])
    assert answer["stats"]["retries"] >= 2
    assert [line["batch"] for line in told] == expected["batches"][:12]
    assert answer["batches"] == expected["batches"][9:]
    assert {**answer["stats"], "retries": 0} == expected["stats"]
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")


def test_a_local_dataset_folder_streams_alike(stream: Streaming, tmp_path: Path) -> None:
    lines = [json.dumps({"body": f"{number} " + "word " * number}) + "\n" for number in range(60)]
    (tmp_path / "train.jsonl").write_text("".join(lines))
    config = config_of(hf_dataset=str(tmp_path), text_key="body", packing_mode="bin")
    config["train"] = {"seq_len": 64, "batch_size": 4}
    whole = stream(config, states=[7])
    assert whole["stats"]["documents"] == 60 and whole["stats"]["pending"] == 0
    rest = stream(config, state=whole["states"]["7"])
    assert rest["batches"] == whole["batches"][8:]


def test_the_evaluation_split_is_read_or_refused(stream: Streaming) -> None:
    answer = stream(config_of(hf_eval_split="validation", repeat=True), split="eval")
    assert len(answer["batches"]) == 1 and answer["stats"]["documents"] == 1
    assert answer["stats"]["tokens"] == 9001 == MAX_DOC_TOKENS + answer["stats"]["truncated"]
    missing = stream(config_of(hf_eval_split="test"), split="eval")
    assert missing["error"].startswith("test/large:test: the dataset cannot be opened")
    refused = stream(config_of(hf_eval_split="train"), split="eval")
    assert "the evaluation split is the training split" in refused["error"]
    nothing = stream(config_of(), split="eval")
    assert "training data is never used for it" in nothing["error"]
