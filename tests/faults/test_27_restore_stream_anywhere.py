"""Fault 27, for streams: restored at any step, twice, at the end, with prefetch full."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.stream.making import Resumable, config_of, texts_of, write_texts

from tokenreel.stream import StreamPipeline
from tokenreel.testing import check_resume, equal


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("text") / "a.jsonl", texts_of(36))


@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_a_shuffled_stream_resumes_at_every_step(path: Path, mode: str, prefetch: int) -> None:
    config = config_of(
        path, packing_mode=mode, grain_prefetch=prefetch, num_lanes=2, train_batch_size=8
    )
    with StreamPipeline(config) as pipeline:
        list(zip(range(8), pipeline, strict=False))
        assert pipeline.get_state()["lanes"]["0"]["place"]["epoch"] >= 1  # beyond the first epoch
    check_resume(lambda: Resumable(config), steps=8)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_corpus_smaller_than_a_block_resumes_at_every_step(tmp_path: Path, prefetch: int) -> None:
    path = write_texts(tmp_path / "a.jsonl", texts_of(5))
    config = config_of(path, packing_mode="bin", grain_prefetch=prefetch)
    with StreamPipeline(config) as pipeline:
        next(pipeline)
        # Reading stands in the middle of a later epoch, with all before it in the buffer.
        lane = pipeline.get_state()["lanes"]["0"]
        assert lane["place"]["epoch"] > 1 and lane["buffer"]
    check_resume(lambda: Resumable(config), steps=10)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("repeat", [True, False])
def test_blocks_that_tokens_close_resume_at_every_step(
    tmp_path: Path, prefetch: int, repeat: bool
) -> None:
    """Long documents, one longer than a block: several blocks are encoded at once."""
    long = [text * 3 for text in texts_of(20)] + ["so it goes " * 80]
    config = config_of(
        write_texts(tmp_path / "a.jsonl", [*long, *texts_of(5)]),
        packing_mode="bin",
        packing_buffer_docs=1000,
        grain_prefetch=prefetch,
        repeat=repeat,
        train_seq_len=4,  # a block is full at 640 tokens
        train_batch_size=32,
    )
    with StreamPipeline(config) as pipeline:
        lanes = [pipeline.get_state()["lanes"]["0"] for _ in zip(range(24), pipeline, strict=False)]
    assert len({lane["counts"]["documents"] for lane in lanes}) >= 4  # as many blocks
    if not repeat:
        assert {lane["place"]["number"] for lane in lanes} == {26}
    check_resume(lambda: Resumable(config), steps=len(lanes))


@pytest.mark.parametrize("end", ["pad", "drop"])
@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_a_stream_that_ends_resumes_up_to_its_end(path: Path, mode: str, end: str) -> None:
    config = config_of(
        path, packing_mode=mode, repeat=False, end=end, grain_prefetch=2, train_seq_len=32
    )
    steps = sum(1 for _ in StreamPipeline(config))
    assert steps > 5
    check_resume(lambda: Resumable(config), steps=steps)


def test_documents_longer_than_rows_and_skipped_lines_are_no_special_places(
    path: Path, tmp_path: Path
) -> None:
    lines = path.read_text().splitlines()
    lines[3:3] = ["no json"]
    lines[20:20] = ["nor this", "{}"]
    broken = tmp_path / "broken.jsonl"
    broken.write_text("\n".join(lines))
    for mode in ("sequential", "bin"):
        config = config_of(
            broken,
            packing_mode=mode,
            on_bad="skip",
            train_seq_len=7,
            tokenizer_max_doc_tokens=60,
            packing_max_docs_per_bin=2,
            mask_boundary_loss=False,
        )
        check_resume(lambda config=config: Resumable(config), steps=8)  # type: ignore[misc]


def test_a_run_broken_off_at_every_step_is_the_whole_run(path: Path) -> None:
    config: dict[str, Any] = config_of(path, grain_prefetch=4)
    with StreamPipeline(config) as whole:
        expected = [next(whole) for _ in range(8)]
    pieced, state = [], None
    for _ in range(8):
        with StreamPipeline(config) as pipeline:
            if state is not None:
                pipeline.set_state(state)
            pieced.append(next(pipeline))
            state = json.loads(json.dumps(pipeline.get_state()))
    assert equal(pieced, expected)
