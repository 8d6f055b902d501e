"""Evaluation never reads what training reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.stream.making import batches_of, config_of, documents_in, take, write_texts

from tokenreel.errors import ConfigError


def documents_of(config: dict[str, Any], split: str) -> list[str]:
    config = {**config, "data": {**config["data"], "repeat": False, "packing_mode": "bin"}}
    return sorted(documents_in(batches_of(config, split=split)))


def test_held_out_documents_are_those_that_training_never_sees(tmp_path: Path) -> None:
    texts = [f"document {number:04d}" for number in range(200)]
    path = write_texts(tmp_path / "a.jsonl", texts)
    config = config_of(path, eval_fraction=0.2, tokenizer_add_eos=False)
    train, held_out = documents_of(config, "train"), documents_of(config, "eval")
    assert 20 < len(held_out) < 60
    assert sorted(train + held_out) == texts
    config["data"]["shuffle"] = False
    assert documents_of(config, "eval") == held_out
    config["data"]["seed"] = 1
    assert documents_of(config, "eval") != held_out


def test_evaluation_is_one_pass_and_writes_no_store(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", [f"document {number}" for number in range(30)])
    config = config_of(path, eval_fraction=0.5, stream_cache_to=str(tmp_path / "cache"))
    first, second = (take(batches_of(config, split="eval"), 100) for _ in range(2))
    assert 0 < len(first) < 100
    assert all(
        np.array_equal(one.labels, other.labels) for one, other in zip(first, second, strict=True)
    )
    assert not (tmp_path / "cache").exists()


def test_without_a_way_to_evaluate_it_is_an_error(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", ["a document"])
    with pytest.raises(ConfigError, match=r"nothing to evaluate on, and training data is never"):
        batches_of(config_of(path), split="eval")
    with pytest.raises(ConfigError, match=r"unknown split \(expected train or eval, got 'test'\)"):
        batches_of(config_of(path), split="test")
