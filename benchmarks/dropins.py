"""The drop-ins of contracts 000 and 003 against a plain torch DataLoader over a memory map.

The peer does the same work the way a contract describes it: a slice, a cast and, where it
says so, padding, masks or documents for each sample, then torch's collate; no workers.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.harness import Row, at_least, at_most

BATCH, LENGTH = 32, 2048
NUM_TOKENS = 100_000_000
NUM_EPISODES = 50_000
ROUNDS = 30
AT_ONCE = 32  # batches in a row: what is measured is a loader at work, not its first batch
TARGET = 5.0
EOS = 7
PAD = 0


def measure_dropins(folder: Path) -> list[Row]:
    """Return all figures of the drop-ins."""
    generator = np.random.default_rng(0)
    (folder / "flat").mkdir()
    ids = generator.integers(0, 50_000, NUM_TOKENS, dtype=np.uint16)
    ids[generator.random(NUM_TOKENS) < 1 / 500] = EOS
    ids.tofile(folder / "flat" / "train.bin")
    _write_episodes(folder / "episodes" / "train", generator)
    return [
        *_compare("003", _mapped_jobs(folder / "flat")),
        _single(folder / "flat"),
        *_compare("000", _episode_jobs(folder)),
        *_samplers(),
    ]


def _write_episodes(folder: Path, generator: np.random.Generator) -> None:
    folder.mkdir(parents=True)
    lengths = np.exp(generator.normal(np.log(1500), 0.6, NUM_EPISODES)).astype(np.int64) + 2
    starts = np.cumsum(lengths) - lengths
    generator.integers(0, 50_000, lengths.sum(), dtype=np.uint32).tofile(folder / "tokens.bin")
    generator.integers(0, 2, lengths.sum(), dtype=np.uint8).tofile(folder / "mask.bin")
    np.stack([starts, lengths], axis=1).astype(np.uint64).tofile(folder / "episodes.idx")


Job = Callable[[], object]


def _compare(contract: str, pairs: dict[str, tuple[Job, Job]]) -> list[Row]:
    """Measure each drop-in and its peer in turn."""
    best: dict[tuple[str, int], float] = {}
    for _ in range(ROUNDS):
        for name, jobs in pairs.items():
            for place, job in enumerate(jobs):
                begin = time.perf_counter()
                for _ in range(AT_ONCE):
                    job()
                took = (time.perf_counter() - begin) / AT_ONCE
                best[name, place] = min(best.get((name, place), took), took)
    speed = {key: BATCH * LENGTH / took / 1e6 for key, took in best.items()}
    return [
        at_least(
            f"{contract} {BATCH}x{LENGTH}: {name}, to torch DataLoader",
            speed[name, 0],
            "M tokens/s",
            baseline=speed[name, 1],
            target=TARGET,
        )
        for name in pairs
    ]


def _forever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _next_of(loader: Any) -> Job:
    batches = _forever(loader)
    return lambda: next(batches)


def _mapped_jobs(folder: Path) -> dict[str, tuple[Job, Job]]:
    from tokenreel.dropin import (
        DistributedSampler,
        MemoryMappedDataset,
        MixtureDataset,
        MixtureSampler,
        StatefulDataLoader,
    )

    def opened(pack: bool) -> MemoryMappedDataset:
        return MemoryMappedDataset(folder, LENGTH + 1, "*.bin", pack, EOS, dtype="uint16")

    plain, packed = opened(False), opened(True)
    mixture = MixtureDataset([plain, opened(False)], ["a", "b"])
    weighed = MixtureSampler(mixture.cumulative_sizes, [1.0, 2.0], 1, 0)
    peers = {pack: _next_of(_torch_loader(_plain_samples(folder, pack))) for pack in (False, True)}
    return {
        "windows": (
            _next_of(StatefulDataLoader(plain, BATCH, DistributedSampler(plain, 1, 0))),
            peers[False],
        ),
        "a mixture": (_next_of(StatefulDataLoader(mixture, BATCH, weighed)), peers[False]),
        "packed documents": (
            _next_of(StatefulDataLoader(packed, BATCH, DistributedSampler(packed, 1, 0))),
            peers[True],
        ),
    }


def _torch_loader(dataset: Any) -> Any:
    import torch

    return torch.utils.data.DataLoader(dataset, batch_size=BATCH, shuffle=True, drop_last=True)


def _plain_samples(folder: Path, pack: bool) -> Any:
    import torch

    tokens = np.memmap(folder / "train.bin", dtype=np.uint16, mode="r")
    slots = LENGTH + 1

    class Samples(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(tokens) // slots

        def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
            row = tokens[number * slots : number * slots + slots].astype(np.int64)
            inputs, labels = torch.from_numpy(row[:-1]), torch.from_numpy(row[1:])
            if not pack:
                return {"input_ids": inputs, "labels": labels}
            ends = row == EOS
            documents = np.cumsum(ends) - ends
            labels = torch.from_numpy(np.where(documents[1:] != documents[:-1], -100, row[1:]))
            doc_ids = torch.from_numpy(documents[:-1])
            return {"input_ids": inputs, "labels": labels, "doc_ids": doc_ids}

    return Samples()


def _single(folder: Path) -> Row:
    """Compare single samples, where the contract returns single samples."""
    from tokenreel.dropin import MemoryMappedDataset

    datasets = {
        "ours": MemoryMappedDataset(folder, LENGTH + 1, "*.bin", dtype="uint16"),
        "peer": _plain_samples(folder, False),
    }
    best = dict.fromkeys(datasets, float("inf"))
    for round_ in range(ROUNDS):
        for name, dataset in datasets.items():
            begin = time.perf_counter()
            for number in range(100):
                dataset[(number * 467 + round_) % len(dataset)]
            best[name] = min(best[name], time.perf_counter() - begin)
    speed = {name: 100 * LENGTH / took / 1e6 for name, took in best.items()}
    return at_least(
        f"003 {LENGTH}: single samples, to a memory map",
        speed["ours"],
        "M tokens/s",
        baseline=speed["peer"],
        target=1.0,
    )


def _episode_jobs(folder: Path) -> dict[str, tuple[Job, Job]]:
    from tokenreel.dropin import GPTDataLoader, GPTEpisodeDataLoader

    config = SimpleNamespace(batch_size=BATCH, block_size=LENGTH, device="cpu", pad_token_id=PAD)
    place = folder / "episodes"
    stream = GPTDataLoader(config, None, folder / "flat", dtype="uint16")
    return {
        "episodes": (
            GPTEpisodeDataLoader(config, None, place).get_batch,
            _next_of(_torch_loader(_plain_episodes(place / "train", masked=False))),
        ),
        "episodes with masks": (
            GPTEpisodeDataLoader(config, None, place, use_loss_mask=True).get_batch,
            _next_of(_torch_loader(_plain_episodes(place / "train", masked=True))),
        ),
        "token stream": (
            stream.get_batch,
            _next_of(_torch_loader(_plain_samples(folder / "flat", False))),
        ),
    }


def _plain_episodes(folder: Path, *, masked: bool) -> Any:
    import torch

    tokens = np.memmap(folder / "tokens.bin", dtype=np.uint32, mode="r")
    masks = np.memmap(folder / "mask.bin", dtype=np.uint8, mode="r")
    index = np.fromfile(folder / "episodes.idx", np.uint64).reshape(-1, 2).astype(np.int64)

    class Episodes(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(index)

        def __getitem__(self, number: int) -> tuple[torch.Tensor, ...]:
            start, length = index[number].tolist()
            shown = min(length, LENGTH + 1)
            row = np.full(LENGTH + 1, PAD, np.int64)
            row[:shown] = tokens[start : start + shown]
            pair = torch.from_numpy(row[:-1]), torch.from_numpy(row[1:])
            if not masked:
                return pair
            mask = np.zeros(LENGTH + 1, np.float32)
            mask[:shown] = masks[start : start + shown]
            return (*pair, torch.from_numpy(mask[1:]))

    return Episodes()


def _samplers() -> list[Row]:
    """Measure what a sampler of 10⁹ samples costs, its first sample included."""
    from tokenreel.dropin import DistributedSampler, MixtureSampler

    makers: dict[str, Callable[[], Any]] = {
        "DistributedSampler": lambda: DistributedSampler(range(10**9), 8, 3),
        "MixtureSampler": lambda: MixtureSampler([0, 10**8, 10**9], [1.0, 2.0], 8, 3),
    }
    rows = []
    for name, make in makers.items():
        begin = time.perf_counter()
        next(iter(make()))
        took = time.perf_counter() - begin
        tracemalloc.start()
        next(iter(make()))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows += [
            at_most(f"003 {name} of 10^9 samples", took * 1e3, "ms", target=10),
            at_most(f"003 {name} of 10^9 samples, memory", peak / 1e6, "MB", target=10),
        ]
    return rows
