"""The pipeline on Grain: the same batches, Grain's own types, threads that end."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import grain  # type: ignore[import-untyped]
import numpy as np
import pytest
from tests.stream.making import batches_of, config_of, take, texts_of, write_texts

from tokenreel.errors import InputError
from tokenreel.stream import StreamPipeline, make_grain_iterator, read_config
from tokenreel.stream.on_grain import StreamDataset
from tokenreel.stream.stream_batches import FIELDS, OpenedStream
from tokenreel.testing import equal


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return config_of(write_texts(tmp_path / "a.jsonl", texts_of(60)), packing_mode="bin")


@pytest.mark.parametrize("prefetch", [0, 1, 4])
def test_grain_gives_the_batches_of_the_stream(config: dict[str, Any], prefetch: int) -> None:
    expected = take(batches_of(config), 12)
    iterator = make_grain_iterator(config, overrides=[f"data.grain_prefetch={prefetch}"])
    assert isinstance(iterator, grain.DatasetIterator)
    assert equal(take(iterator, 12), expected)
    state = json.loads(json.dumps(iterator.get_state()))
    following = next(iterator)
    iterator.set_state(state)
    assert equal(next(iterator), following)
    iterator.close()
    with pytest.raises(ValueError, match="closed"):
        next(iterator)


def test_closing_ends_the_thread(config: dict[str, Any]) -> None:
    config["data"]["grain_prefetch"] = 2
    with StreamPipeline(config) as pipeline:
        next(pipeline)
        assert {"grain-thread", "tokenreel-feed"} <= _threads()
    assert not _threads() & {"grain-thread", "tokenreel-feed"}


def test_a_program_that_ends_says_nothing_and_does_not_hang(config: dict[str, Any]) -> None:
    config["data"]["grain_prefetch"] = 2
    program = (
        "import json, sys\n"
        "from tokenreel.stream import StreamPipeline\n"
        "open, wound, closed = (StreamPipeline(json.loads(sys.argv[1])) for _ in range(3))\n"
        "state = wound.get_state()\n"
        "next(open), next(wound), next(closed)\n"
        "wound.set_state(state)\n"
        "closed.close()\n"
    )
    words = [sys.executable, "-c", program, json.dumps(config)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == done.stderr == ""


def _threads() -> set[str]:
    """Return the names of the threads that run, without what tells equal ones apart."""
    return {"-".join(thread.name.split("-")[:2]).split("_")[0] for thread in threading.enumerate()}


def test_grains_own_checker_of_checkpoints_is_content(
    config: dict[str, Any], tmp_path: Path
) -> None:
    write_texts(tmp_path / "a.jsonl", texts_of(20))
    config["data"]["repeat"] = False
    stream = OpenedStream(read_config(config))
    arrays = StreamDataset(stream).map(
        lambda batch: {name: getattr(batch, name) for name in FIELDS}
    )
    grain.experimental.assert_equal_output_after_checkpoint(arrays)


def test_statistics_are_of_what_was_handed_over_not_of_what_is_ahead(
    config: dict[str, Any],
) -> None:
    told = []
    for prefetch in (0, 4):
        config["data"]["grain_prefetch"] = prefetch
        with StreamPipeline(config) as pipeline:
            take(pipeline, 3)
            told.append(pipeline.stats())
    assert told[0] == told[1]
    assert told[0]["rows"] == 12 and told[0]["retries"] == 0
    assert 0.5 < told[0]["utilisation"] <= 1


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_failing_step_fails_again_and_goes_on_once_the_cause_is_gone(
    config: dict[str, Any], tmp_path: Path, prefetch: int
) -> None:
    """An error is never followed by a silent end or by a hole."""
    config["data"].update(grain_prefetch=prefetch, shuffle=False, packing_buffer_docs=5)
    expected = take(batches_of(config), 16)
    path = tmp_path / "a.jsonl"
    whole = path.read_bytes()
    with StreamPipeline(config) as pipeline:
        place = len(whole) // 2
        path.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
        got = []
        with pytest.raises(InputError, match=r"a.jsonl:\d+: invalid UTF-8 at byte"):
            while True:
                got.append(next(pipeline))
        with pytest.raises(InputError, match="invalid UTF-8"):
            next(pipeline)
        path.write_bytes(whole)
        got += take(pipeline, 16 - len(got))
    assert equal(got, expected)


def test_batches_go_to_jax_and_torch(config: dict[str, Any]) -> None:
    import jax
    import torch

    batch = next(batches_of(config))
    in_jax, in_torch = batch.to_jax(), batch.to_torch()
    assert set(in_jax) == set(in_torch)
    for name, array in in_jax.items():
        assert isinstance(array, jax.Array)
        assert np.array_equal(np.asarray(array), getattr(batch, name))
        assert np.array_equal(in_torch[name].numpy(), getattr(batch, name))
        assert array.dtype == (np.bool_ if name == "attention_mask" else np.int32)
    assert in_torch["labels"].dtype == torch.int64


@pytest.mark.parametrize("prefetch", [0, 2])
def test_batches_are_put_on_the_device_where_that_is_asked_for(
    config: dict[str, Any], prefetch: int
) -> None:
    """The original's `data.device_put`: batches are put on the device by the iterator."""
    import jax

    on_host = StreamPipeline(config)
    expected = take(on_host, 3)
    with StreamPipeline(
        config, overrides=["data.device_put=true", f"data.grain_prefetch={prefetch}"]
    ) as pipeline:
        batches = take(pipeline, 3)
        assert pipeline.get_state() == on_host.get_state()
        assert pipeline.get_stats() == on_host.get_stats()
    for batch, host in zip(batches, expected, strict=True):
        for name in FIELDS:
            assert isinstance(getattr(batch, name), jax.Array)
            assert np.array_equal(np.asarray(getattr(batch, name)), getattr(host, name))


def test_the_original_asks_for_its_statistics_by_name(config: dict[str, Any]) -> None:
    """The original's `get_stats()`: of the last batch; before one, the packing mode."""
    with StreamPipeline(config) as pipeline:
        state = pipeline.get_state()
        assert pipeline.get_stats() == {"packing_mode": "bin"}
        batch = next(pipeline)
        told, shown = pipeline.get_stats(), int(batch.attention_mask.sum())
        assert told == {
            "packing_mode": "bin",
            "packing_tokens": shown,
            "packing_capacity": 96,
            "packing_utilization": shown / 96,
            "docs_seen": pipeline.stats()["documents"],
            "docs_truncated": 0,
        }
        pipeline.set_state(state)
        assert pipeline.get_stats() == {"packing_mode": "bin"}
