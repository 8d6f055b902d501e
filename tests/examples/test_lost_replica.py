"""A process of a run is killed; the others go on with the batches and losses of one alone."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
import torch
from tests.examples.conftest import ENVIRONMENT, EXAMPLES, start

from tokenreel import Feed, Recipe, Source
from tokenreel.demo.model import TinyTransformer
from tokenreel.torch import Tensors, loss_sum

STEPS = 70  # far more than pass before a signal arrives
Line = dict[str, Any]


@dataclass
class Run:
    """What the processes of a run told, and how it ended."""

    code: int = -1
    complaints: str = ""
    pids: dict[int, int] = field(default_factory=dict)
    joined: list[Line] = field(default_factory=list)
    steps: list[Line] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)


def run_with_kills(
    store: Path,
    *,
    ranks: int,
    steps: int,
    kills: dict[int, int],
    by: signal.Signals = signal.SIGKILL,
    patience: int = 30,
) -> Run:
    """Run the example; send worker w a signal as soon as a step >= kills[w] is told."""
    words = ("--ranks", ranks, "--steps", steps, "--patience", patience)
    process = start("lost_replica.py", store, *words)
    run = Run()
    assert process.stdout is not None and process.stderr is not None
    try:
        for text in process.stdout:
            line = json.loads(text)
            if "pid" in line:
                assert run.pids.setdefault(line["worker"], line["pid"]) == line["pid"]
                run.joined.append(line)
            if "step" not in line:
                continue
            run.steps.append(line)
            due = {worker for worker, step in kills.items() if line["step"] >= step}
            for worker in (due & run.pids.keys()) - run.killed:
                os.kill(run.pids[worker], by)
                run.killed.add(worker)
        run.complaints = process.stderr.read()
        run.code = process.wait(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return run


def undisturbed(store: Path, *, steps: int) -> list[tuple[float, str]]:
    """Return loss and digest of each step of a run that is one process and one plain loop."""
    source = Source(name="text", path=store)
    feed = Feed(Recipe(seq_len=64, global_batch_size=8, seed=7, sources=[source]))
    model = TinyTransformer(vocab_size=feed.stores[0].vocab_size or 0, seq_len=64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for step in range(steps):
        batch = Tensors()(feed.batch(step))
        loss = loss_sum(model(batch), batch) / batch["loss_weights"].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        parts = [batch[name].numpy() for name in ("input_ids", "labels", "loss_weights")]
        rows = [
            hashlib.sha256(b"".join(part[row].tobytes() for part in parts)).hexdigest()
            for row in range(8)
        ]
        found.append((loss.item(), hashlib.sha256("".join(rows).encode()).hexdigest()[:16]))
    return found


def check(run: Run, store: Path, *, ranks: int, steps: int) -> None:
    """Check that the run was that of one process, whoever was lost."""
    assert run.code == 0, run.complaints[-3000:]
    expected = undisturbed(store, steps=steps)
    assert len({batch for _, batch in expected}) == steps
    assert {line["step"] for line in run.steps} == set(range(steps))  # none is lost
    for line in run.steps:
        loss, batch = expected[line["step"]]
        assert line["batch"] == batch, line
        assert line["loss"] == pytest.approx(loss, abs=1e-5), line
    left = sorted(set(range(ranks)) - run.killed)
    assert run.steps[0]["ranks"] == ranks and run.steps[-1]["ranks"] == len(left)
    assert run.joined[-1]["members"] == left
    for worker in range(ranks):
        told = [line["step"] for line in run.steps if line["worker"] == worker]
        assert told == sorted(set(told)), worker  # none is repeated
        if worker in left:
            assert told[-1] == steps - 1
            assert set(range(steps)) - set(told) <= {line["at"] - 1 for line in run.joined}
    assert not any(map(psutil.pid_exists, run.pids.values()))


@pytest.mark.soak
def test_two_of_three_go_on_with_the_batches_and_losses_of_an_undisturbed_run(
    store: Path,
) -> None:
    run = run_with_kills(store, ranks=3, steps=STEPS, kills={1: 8})
    check(run, store, ranks=3, steps=STEPS)
    assert {line["ranks"] for line in run.steps} == {3, 2}
    assert all(line["at"] > 8 for line in run.joined if line["members"] == [0, 2])


@pytest.mark.soak
def test_one_after_the_other_is_lost_until_one_is_left(store: Path) -> None:
    run = run_with_kills(store, ranks=4, steps=STEPS, kills={0: 10, 3: 20, 1: 30})
    check(run, store, ranks=4, steps=STEPS)
    assert {line["ranks"] for line in run.steps} == {4, 3, 2, 1}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
def test_any_replica_may_be_lost_at_any_step(store: Path, seed: int) -> None:
    chance = random.Random(seed)
    worker, step = chance.randrange(3), chance.randrange(25)
    run = run_with_kills(store, ranks=3, steps=STEPS, kills={worker: step})
    check(run, store, ranks=3, steps=STEPS)


@pytest.mark.soak
def test_a_run_without_replicas_ends_and_says_so(store: Path) -> None:
    run = run_with_kills(store, ranks=2, steps=10**6, kills={0: 5, 1: 5})
    assert run.code == 1 and run.complaints.endswith("no replica is left\n")
    assert not any(map(psutil.pid_exists, run.pids.values()))


@pytest.mark.soak
def test_a_replica_that_hangs_is_left_behind(store: Path) -> None:
    stop = signal.SIGSTOP
    run = run_with_kills(store, ranks=3, steps=STEPS, kills={1: 10}, by=stop, patience=3)
    check(run, store, ranks=3, steps=STEPS)


# Two ranks of which the second has trained three steps, and the first two.
TORN = """
import os, runpy, sys
import torch, torch.distributed as dist
example, store, file = sys.argv[1:]
replica = runpy.run_path(example)["Replica"](store, steps=9)
rank = 0 if os.fork() else 1
replica.done, replica.loader.feed.step = 2 + rank, 3
for weight in replica.model.parameters():
    weight.data.fill_(rank)
    weight.grad = torch.full_like(weight, rank)
replica.optimizer.step()
dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
replica.catch_up()
tables = [*replica.model.parameters()]
tables += [each["momentum_buffer"] for each in replica.optimizer.state.values()]
sums = {round(table.double().mean().item(), 3) for table in tables}
told = (replica.done, replica.loader.feed.step, sorted(sums))
every = [None, None]
dist.all_gather_object(every, told)
if rank == 0:
    print(every)
    os.wait()
"""


@pytest.mark.soak
def test_after_a_torn_step_all_take_the_weights_of_the_rank_that_has_done_it(
    store: Path, tmp_path: Path
) -> None:
    words = [EXAMPLES / "lost_replica.py", store, tmp_path / "rendezvous"]
    printed = subprocess.run(
        [sys.executable, "-c", TORN, *map(str, words)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert printed.splitlines()[-1] == str([(3, 3, [0.9, 1.0])] * 2)
