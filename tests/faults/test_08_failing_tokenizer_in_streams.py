"""Fault 8, for streams: what dies ahead of the trainer is reported with cause and documents."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.builder.faulty import Faulty
from tests.stream.making import batches_of, config_of, take, texts_of, write_texts

from tokenreel.errors import InputError, WorkerError
from tokenreel.stream import StreamPipeline
from tokenreel.testing import equal
from tokenreel.text.tokenizers import Encoded


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    texts = texts_of(60)
    texts[40] = "here is the trap"
    path = write_texts(tmp_path / "a.jsonl", texts)
    return config_of(path, shuffle=False, packing_mode="bin", packing_buffer_docs=8)


@pytest.mark.parametrize("prefetch", [0, 3])
@pytest.mark.parametrize(
    ("how", "message"),
    [("memory", "out of memory: MemoryError"), ("error", "RuntimeError: the tokenizer broke")],
)
def test_the_batches_before_come_then_the_cause_and_nothing_hangs(
    config: dict[str, Any], how: str, message: str, prefetch: int
) -> None:
    config["data"]["grain_prefetch"] = prefetch
    expected = take(batches_of(config, tokenizer=Faulty("none")), 30)
    faulty = Faulty(how)
    with StreamPipeline(config, tokenizer=faulty) as pipeline:
        got = []
        for _ in range(2):
            with pytest.raises(WorkerError, match=message) as caught:
                while True:
                    got.append(next(pipeline))
            assert caught.value.where == "a.jsonl:41 to a.jsonl:48"
        assert got and equal(got, expected[: len(got)])
        faulty.how = "none"  # the cause is gone
        got += take(pipeline, 30 - len(got))
    assert equal(got, expected)
    assert not any("grain" in thread.name for thread in threading.enumerate())


class Refusing(Faulty):
    """A tokenizer that says of a text that it is none, without knowing where it stood."""

    def encode_batch(self, texts: Any) -> Encoded:
        """Refuse."""
        raise InputError("text 0 of the batch holds what no tokenizer knows", remedy="leave it out")


def test_a_refusal_is_told_with_its_documents(config: dict[str, Any]) -> None:
    pipeline = StreamPipeline(config, tokenizer=Refusing("none"))
    with pytest.raises(InputError) as caught:
        next(pipeline)
    assert str(caught.value) == (
        "a.jsonl:1 to a.jsonl:8: text 0 of the batch holds what no tokenizer knows; leave it out"
    )
