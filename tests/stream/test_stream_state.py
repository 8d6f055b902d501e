"""States of an earlier release load, and one object owns the state."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.builder.faulty import Faulty
from tests.stream.making import config_of, take, texts_of
from tests.text.tokenizers.test_engine import WrongAt, bytes_with

from tokenreel.errors import MismatchError, WorkerError
from tokenreel.stream import Batch, StreamPipeline, make_grain_iterator, read_config
from tokenreel.stream.stream_batches import Batches, OpenedStream
from tokenreel.text.sources import InMemory

# Written by the code before the stream was put into twelve files, over these documents: five
# steps of two lanes with shuffling, begin and end tokens and a limit, and the three that follow.
GOLDEN = json.loads((Path(__file__).parent / "golden" / "states_v3.json").read_text())
TEXTS = [f"{number} so it goes, and the reel turns" * (1 + number % 5) for number in range(30)]


def digest_of(batch: Batch) -> str:
    arrays = (batch.input_ids, batch.labels, batch.segment_ids, batch.position_ids)
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_a_state_of_version_3_loads_and_is_written_again_as_it_was(mode: str) -> None:
    golden = GOLDEN[mode]
    with StreamPipeline(golden["config"], source=InMemory(TEXTS)) as pipeline:
        pipeline.set_state(golden["state"])
        assert pipeline.get_state() == golden["state"]
        assert [digest_of(batch) for batch in take(pipeline, 3)] == golden["next"]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_grain_holds_the_batches_themselves(prefetch: int) -> None:
    """Between the pipeline's iterator and the state there is nothing that only forwards."""
    config = {**GOLDEN["bin"]["config"]}
    iterator = make_grain_iterator(config, overrides=[f"data.grain_prefetch={prefetch}"])
    held = iterator._parents[0]
    if prefetch:
        held = held._parents[0]
    assert isinstance(held, Batches)
    iterator.close()


def test_a_failing_step_leaves_the_state_as_it_was() -> None:
    texts = [*texts_of(30), "a trap", *texts_of(9)]
    config = read_config(config_of(Path("none"), shuffle=False, repeat=False))
    stream = OpenedStream(
        config, source=InMemory(texts), tokenizer=Faulty("error"), group_characters=200
    )
    batches, states = Batches(stream), []
    with pytest.raises(WorkerError, match="the tokenizer broke"):
        while True:
            states.append(batches.get_state())
            next(batches)
    assert len(states) > 2  # some steps were made
    assert batches.get_state() == states[-1]
    with pytest.raises(WorkerError, match="the tokenizer broke"):
        next(batches)
    assert batches.get_state() == states[-1]
    assert batches.state.step == len(states) - 1


def test_an_engine_that_differs_from_the_reference_stops_the_stream() -> None:
    """The check of builds is that of streams: of every call stretches go to the reference."""
    tokenizer = bytes_with(lambda: WrongAt(lambda text: text.endswith("Xyzzy!")))
    config: dict[str, Any] = config_of(Path("none"), shuffle=False, tokenizer_add_eos=False)
    batches = Batches(
        OpenedStream(read_config(config), source=InMemory(["é Xyzzy!"]), tokenizer=tokenizer)
    )
    with pytest.raises(MismatchError, match=r"wrong 1\.0 and the reference"):
        next(batches)
