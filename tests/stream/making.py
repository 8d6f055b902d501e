"""Small corpora on disk, and streams over them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tokenreel.stream import Batch, StreamPipeline
from tokenreel.stream.stream_batches import Batches, OpenedStream
from tokenreel.stream.stream_config import read_config

WORDS = ("so", "it", "goes", "the", "reel", "turns", "and", "every", "token", "ß", "字", "🙂")


def texts_of(count: int, *, seed: int = 0, longest: int = 40) -> list[str]:
    """Return texts of very different lengths, all different; some are empty or one letter."""
    chance = random.Random(seed)
    texts = []
    for number in range(count):
        words = chance.choices(WORDS, k=int(longest ** chance.random()))
        texts.append(f"{number} {' '.join(words)}" if number % 9 else ("", "x")[number % 2])
    return texts


def write_texts(path: Path, texts: Sequence[str]) -> Path:
    """Write documents as JSONL."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def config_of(path: Path, **settings: Any) -> dict[str, Any]:
    """Return a configuration over a file; settings of a section are given with its name in front.

    A setting without a known section in front is one of `data`.
    """
    config: dict[str, Any] = {
        "data": {
            "backend": "local_text",
            "local_files": str(path),
            "shuffle_buffer_size": 16,
            "packing_buffer_docs": 12,
            "tokenizer": {"kind": "byte", "add_eos": True},
        },
        "train": {"seq_len": 24, "batch_size": 2, "grad_accum": 2},
    }
    for name, value in settings.items():
        section, _, key = name.partition("_")
        if section in ("train", "model", "stream") and name not in ("train_on_eos",):
            config.setdefault(section, {})[key] = value
        elif section == "tokenizer":
            config["data"]["tokenizer"][key] = value
        else:
            config["data"][name] = value
    return config


def batches_of(config: dict[str, Any], **options: Any) -> Batches:
    """Return the batches of a stream, without Grain around them."""
    return Batches(OpenedStream(read_config(config), **options))


class Resumable:
    """A pipeline as check_resume asks for one; its state goes through JSON as in a checkpoint."""

    def __init__(self, config: dict[str, Any], **options: Any) -> None:
        self.pipeline = StreamPipeline(config, **options)

    def __iter__(self) -> Iterator[Batch]:
        return self.pipeline

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(json.dumps(self.pipeline.get_state()))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pipeline.set_state(state)


def take(stream: Iterator[Batch], count: int) -> list[Batch]:
    """Return the next batches."""
    return list(islice(stream, count))


def documents_in(batches: Iterable[Batch]) -> list[str]:
    """Return the texts of all segments in order; end tokens are left out."""
    texts = []
    for batch in batches:
        width = batch.input_ids.shape[-1]
        rows = zip(
            batch.input_ids.reshape(-1, width), batch.segment_ids.reshape(-1, width), strict=True
        )
        for ids, segments in rows:
            shown = (ids[segments == number] for number in range(1, segments.max() + 1))
            texts += [bytes(part[part < 256].tolist()).decode() for part in shown]
    return texts
