"""Fault 29, for streams: the state of another source, another configuration, a newer version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.stream.making import batches_of, config_of, texts_of, write_texts

from tokenreel.errors import ConfigError, MismatchError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "a.jsonl", texts_of(30))


@pytest.fixture
def state(path: Path) -> dict[str, Any]:
    stream = batches_of(config_of(path))
    next(stream)
    saved: dict[str, Any] = json.loads(json.dumps(stream.get_state()))
    return saved


def refused(state: dict[str, Any], config: dict[str, Any]) -> MismatchError:
    stream = batches_of(config)
    next(stream)
    before = stream.get_state()
    with pytest.raises(MismatchError) as caught:
        stream.set_state(state)
    assert stream.get_state() == before
    assert "the state belongs to another stream" in str(caught.value)
    assert "resume with the source, tokenizer and configuration" in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("settings", "field", "expected", "actual"),
    [
        ({"seed": 1}, "seed", 0, 1),
        ({"shuffle": False}, "shuffle", True, False),
        ({"packing_mode": "bin"}, "packing_mode", "sequential", "bin"),
        ({"train_seq_len": 30}, "seq_len", 24, 30),
        ({"train_batch_size": 4}, "batch_size", 2, 4),
        ({"train_on_eos": False}, "train_on_eos", True, False),
        ({"eval_fraction": 0.1}, "eval_fraction", 0.0, 0.1),
        ({"tokenizer_add_bos": True}, "begin_id", None, 256),
        ({"tokenizer_max_doc_tokens": 99}, "max_doc_tokens", None, 99),
        ({"model_pad_token_id": 0}, "pad_id", 256, 0),
    ],
)
def test_another_configuration_is_told_by_its_fields(
    path: Path,
    state: dict[str, Any],
    settings: dict[str, Any],
    field: str,
    expected: Any,
    actual: Any,
) -> None:
    error = refused(state, config_of(path, **settings))
    assert error.differing == {field: (expected, actual)}


def test_one_changed_byte_is_another_source(path: Path, state: dict[str, Any]) -> None:
    path.write_bytes(path.read_bytes().replace(b"reel", b"rEel", 1))
    assert set(refused(state, config_of(path)).differing) == {"source"}


def test_what_changes_no_batch_may_differ(
    path: Path, state: dict[str, Any], tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    path = path.rename(moved / path.name)
    config = config_of(
        path, max_retries=9, retry_delay_sec=0.5, state_update_interval=3, grain_prefetch=2
    )
    stream = batches_of(config)
    stream.set_state(state)
    assert stream.step == 1


@pytest.mark.parametrize("version", [2, 0, None, "1"])
def test_a_state_of_another_version_is_refused(
    path: Path, state: dict[str, Any], version: object
) -> None:
    with pytest.raises(ConfigError) as caught:
        batches_of(config_of(path)).set_state({**state, "version": version})
    assert str(caught.value).startswith(
        f"unknown version of a stream's state (expected 1, got {version!r})"
    )
    assert ("written by a newer tokenreel" in str(caught.value)) == (version == 2)


@pytest.mark.parametrize("part", ["step", "lanes", "fingerprint", "identity"])
def test_a_state_that_lacks_a_part_is_refused(path: Path, state: dict[str, Any], part: str) -> None:
    del state[part]
    with pytest.raises(ConfigError, match=f"not a stream's state: it lacks {part}"):
        batches_of(config_of(path)).set_state(state)


def test_a_fingerprint_that_fits_nothing_is_named(path: Path, state: dict[str, Any]) -> None:
    error = refused({**state, "fingerprint": "00"}, config_of(path))
    assert set(error.differing) == {"fingerprint"}
