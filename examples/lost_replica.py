"""Train on several processes, lose one, and go on with the others from the same step.

    python examples/lost_replica.py STORE --ranks 3        # kill -9 one of the pids it prints

A step is the same global batch on any number of ranks, also on one that does not divide it:
3 ranks share 8 rows as 3, 3 and 2. So when a process dies, the others only need to agree
on who is left and on the step to go on with. Nothing is restarted, no batch is lost or
repeated, and the losses stay those of an undisturbed run, but for rounding.

    launcher   keeps a TCPStore and publishes a list of members for each generation: all,
               then those left whenever a process was lost, then nobody: the run is over
    replica    joins the process group of a generation and trains; if a collective fails it
               leaves the group, by which its peers fail too, and waits for the next list

A peer may die when some have the gradients of a step and others do not. Hence a generation
begins with everybody taking the weights of one who is furthest, at most a step ahead.

A process that dies is noticed at once, one that hangs (or dies while a group is being formed)
after --patience; it is then killed by the launcher. This is a demonstration for one machine,
which nobody joins later. torchft is for many.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from multiprocessing import Process
from multiprocessing.connection import wait
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tokenreel import Recipe, Source
from tokenreel.demo.model import TinyTransformer  # your model goes here
from tokenreel.torch import FeedLoader, loss_sum

SEQ_LEN, BATCH_SIZE = 64, 8
GRACE = 5.0  # seconds after the first replica has failed in which the others say so too


class PeerLost(Exception):
    """A collective failed: somebody is gone."""


@contextmanager
def collective() -> Iterator[None]:
    """Tell the failure of a collective from errors of this process."""
    try:
        yield
    except RuntimeError as error:  # all that gloo raises
        raise PeerLost(str(error).partition(". ")[0]) from error


class Replica:
    """A model, its optimizer and its feed, after `done` steps."""

    def __init__(self, store: Path, *, steps: int) -> None:
        source = Source(name="text", path=store)
        recipe = Recipe(
            seq_len=SEQ_LEN, global_batch_size=BATCH_SIZE, seed=7, steps=steps, sources=[source]
        )
        self.loader = FeedLoader(recipe)
        vocab_size = self.loader.feed.stores[0].vocab_size or 2**16
        self.model = TinyTransformer(vocab_size=vocab_size, seq_len=SEQ_LEN)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.done = 0

    def catch_up(self) -> None:
        """Take over the state of a rank that has done the most steps."""
        done: list[Any] = [None] * dist.get_world_size()
        state = [{"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}]
        with collective():
            dist.all_gather_object(done, self.done)
            dist.broadcast_object_list(state, src=done.index(max(done)))
        self.model.load_state_dict(state[0]["model"])
        self.optimizer.load_state_dict(state[0]["optimizer"])
        self.done = max(done)
        self.loader.feed.step = self.done  # a batch that was taken, but not trained, comes again

    def train(self) -> Iterator[dict[str, Any]]:
        """Train to the end; yield what each step was."""
        ranks, feed = dist.get_world_size(), self.loader.feed
        with collective():
            batches = iter(self.loader)  # here all ranks compare what they see
        for batch in batches:
            # Parts of a loss add up to that of the step, however many ranks there are.
            part = loss_sum(self.model(batch), batch) / feed.weight_sum(self.done)
            self.optimizer.zero_grad()
            part.backward()
            told: list[Any] = [None] * ranks
            with collective():
                add_gradients(self.model)
                dist.all_gather_object(told, (part.item(), row_digests(batch)))
            self.optimizer.step()
            self.done += 1
            losses, rows = zip(*told, strict=True)
            shown = hashlib.sha256("".join(rows).encode()).hexdigest()[:16]
            loss = math.fsum(losses)
            yield {"step": self.done - 1, "ranks": ranks, "loss": loss, "batch": shown}


def add_gradients(model: torch.nn.Module) -> None:
    """Add the gradients of all ranks, in one collective: all of them, or a failure."""
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def row_digests(batch: dict[str, torch.Tensor]) -> str:
    """Return digests of all rows, to show what was trained on; rows of padding have none."""
    fields = [batch[name].numpy() for name in ("input_ids", "labels", "loss_weights")]
    rows = torch.nonzero(batch["source_ids"] >= 0).flatten().tolist()
    parts = [b"".join(field[row].tobytes() for field in fields) for row in rows]
    return "".join(hashlib.sha256(part).hexdigest() for part in parts)


def work(args: argparse.Namespace, worker: int, ports: SimpleQueue[int]) -> None:
    """Be a replica, in one process group after the other, until the run is over."""
    torch.set_num_threads(1)
    replica = Replica(args.store, steps=args.steps)
    patience = timedelta(seconds=args.patience)
    store = dist.TCPStore("127.0.0.1", ports.get(), is_master=False, timeout=4 * patience)
    for generation in count():
        members = json.loads(store.get(f"members/{generation}"))  # waits for it
        if dist.is_initialized():  # until now: a peer may have been a step behind
            dist.destroy_process_group()
        if worker not in members:
            return
        try:
            with collective():
                dist.init_process_group(
                    "gloo",
                    store=dist.PrefixStore(f"group/{generation}", store),
                    rank=members.index(worker),
                    world_size=len(members),
                    timeout=patience,
                )
            replica.catch_up()
            tell({"worker": worker, "pid": os.getpid(), "members": members, "at": replica.done})
            for step in replica.train():
                tell({"worker": worker, **step})
            store.set(f"ended/{generation}/{worker}", "finished")
        except PeerLost as error:
            tell({"worker": worker, "done": replica.done, "error": str(error)})
            if dist.is_initialized():
                dist.destroy_process_group()  # closes connections, so that no peer waits for us
            store.set(f"ended/{generation}/{worker}", "failed")


def tell(what: dict[str, Any]) -> None:
    """Print a line of JSON, in one write: lines of several processes must not mix."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def launch(args: argparse.Namespace) -> bool:
    """Start the replicas, publish who is left whenever one is lost; is any left at the end?"""
    ports: SimpleQueue[int] = multiprocessing.SimpleQueue()
    replicas = {
        worker: Process(target=work, args=(args, worker, ports), daemon=True)
        for worker in range(args.ranks)
    }
    for replica in replicas.values():
        replica.start()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for _ in replicas:
        ports.put(store.port)
    try:
        left, is_over = dict(replicas), False
        for generation in count():
            store.set(f"members/{generation}", json.dumps([] if is_over else list(left)))
            if is_over or not left:
                break
            is_over = watch(left, store, generation)
            left = {worker: replica for worker, replica in left.items() if replica.is_alive()}
            tell({"left": list(left), "is_over": is_over})
        for replica in left.values():
            replica.join(args.patience)
    finally:
        for replica in replicas.values():
            replica.kill()
    return is_over


def watch(members: dict[int, Process], store: dist.TCPStore, generation: int) -> bool:
    """Wait for the end of a generation: True when all have finished, False when one is lost."""
    failed_at = math.inf
    while all(replica.is_alive() for replica in members.values()):
        keys = {worker: f"ended/{generation}/{worker}" for worker in members}
        ends = {worker: store.get(key) for worker, key in keys.items() if store.check([key])}
        if len(ends) == len(members):
            return b"failed" not in ends.values()
        if b"failed" in ends.values():
            failed_at = min(failed_at, time.monotonic())
        if time.monotonic() > failed_at + GRACE:
            for worker in members.keys() - ends.keys():  # alive, but it does not answer
                members[worker].kill()
                members[worker].join()
        wait([replica.sentinel for replica in members.values()], timeout=0.05)
    return False


def main() -> None:
    """Train with replicas that may be lost."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--patience", type=float, default=30, metavar="SECONDS", help="with a peer")
    sys.exit(0 if launch(parser.parse_args()) else "no replica is left")


if __name__ == "__main__":
    main()
