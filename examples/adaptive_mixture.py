"""Mix stores by how well the model does on each; log loss and weight of every source.

    python examples/adaptive_mixture.py web=stores/web chat=stores/chat --folder run
    torchrun --nproc-per-node 2 examples/adaptive_mixture.py web=… chat=… --folder run
    tensorboard --logdir run/logs                              # or --logger wandb, mlflow

Every --every steps the weight of a source becomes its prior times exp(eta * excess), where
the excess is the mean loss per token of the source in these steps less that of them all, and
the factor stays within 1/4 to 4. Weights are rounded to three digits, so that the
rounding of losses does not reach the batches.

It shows how such a rule is wired: measured, changed, logged, resumed. It is not DoReMi: no
reference model says which loss can be reached, so a source of noise is shown ever more.
Put your own rule into `reweighted`.

The checkpoint has the state of the feed, with all changes of weights, and the sums of the
window: killed and run again, it gives the batches and weights of an unbroken run. Each run
logs what it was fed with: fingerprints of data and stores, recipe, range of steps. A run
that was stopped logged the steps it meant to do; the next one says where it goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from tokenreel import Feed, Recipe, Source
from tokenreel.demo.model import TinyTransformer  # your model goes here
from tokenreel.torch import FeedLoader, evaluate, loss_by_source

SEQ_LEN, BATCH_SIZE = 128, 16
MOST = 4.0  # times its prior, before all weights are made to add up to 1


class Logger(Protocol):
    """Where figures go; made with the folder of the run and what describes it."""

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None: ...

    def log(self, figures: Mapping[str, float], *, step: int) -> None:
        """Record figures after so many steps."""

    def close(self) -> None:
        """Write out what is left."""


class TensorBoard:
    """Event files; figures that a killed run logged behind its checkpoint are replaced."""

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        start = int(run["start_step"])
        self.writer = SummaryWriter(str(folder / "logs"), purge_step=start)
        self.writer.add_text("run", json.dumps(run), start)

    def log(self, figures: Mapping[str, float], *, step: int) -> None:
        """Record figures after so many steps."""
        for name, figure in figures.items():
            self.writer.add_scalar(name, figure, step)

    def close(self) -> None:
        """Write out what is left."""
        self.writer.close()


class WandB:
    """A run of Weights & Biases in run/wandb, offline; `wandb sync` uploads it."""

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        import wandb  # type: ignore[import-not-found]

        self.run = wandb.init(project="tokenreel", dir=folder, mode="offline", config=dict(run))

    def log(self, figures: Mapping[str, float], *, step: int) -> None:
        """Record figures after so many steps."""
        self.run.log(dict(figures), step=step)

    def close(self) -> None:
        """Write out what is left."""
        self.run.finish()


class MLflow:
    """A run of MLflow in run/mlflow.db, for `mlflow ui --backend-store-uri sqlite:///…`."""

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        import mlflow  # type: ignore[import-not-found]

        self.mlflow = mlflow
        mlflow.set_tracking_uri(f"sqlite:///{folder.resolve()}/mlflow.db")
        mlflow.set_experiment("tokenreel")
        mlflow.start_run()
        mlflow.log_params({name: run[name] for name in ("data", "start_step", "stop_step")})
        mlflow.set_tag("run", json.dumps(run))

    def log(self, figures: Mapping[str, float], *, step: int) -> None:
        """Record figures after so many steps."""
        self.mlflow.log_metrics(dict(figures), step=step)

    def close(self) -> None:
        """Write out what is left."""
        self.mlflow.end_run()


LOGGERS: dict[str, type[Logger]] = {"tensorboard": TensorBoard, "wandb": WandB, "mlflow": MLflow}


def open_logger(name: str, folder: Path, run: Mapping[str, Any]) -> Logger:
    """Return the logger of that name, or end the program with what to install."""
    try:
        return LOGGERS[name](folder, run)
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"--logger {name} needs the package {error.name!r}, which is not installed; "
            f"install it with: pip install {name}"
        ) from error


def describe(feed: Feed) -> dict[str, Any]:
    """Return what a run from here on is fed with, ready for JSON."""
    names = [source.name for source in feed.recipe.sources]
    return {
        "data": feed.fingerprint,
        "stores": dict(zip(names, (store.fingerprint for store in feed.stores), strict=True)),
        "recipe": json.loads(json.dumps(asdict(feed.recipe), default=str)),
        "weights": weights_of(feed),
        "start_step": feed.step,
        "stop_step": feed.num_steps,
    }


def weights_of(feed: Feed) -> dict[str, float]:
    """Return the weights that hold now: of the last change, or of the recipe."""
    if feed.changes:
        return dict(feed.changes[-1]["weights"])
    return {source.name: source.weight for source in feed.recipe.sources}


def reweighted(
    prior: Mapping[str, float], losses: Mapping[str, float], *, mean: float, eta: float
) -> dict[str, float]:
    """Return weights that add up to 1 (but for rounding); who has no loss keeps its prior.

    >>> reweighted({"a": 1, "b": 1}, {"a": 3.0, "b": 1.0}, mean=2.0, eta=0.5)
    {'a': 0.731, 'b': 0.269}
    """
    limit = math.log(MOST)
    raised = {
        name: weight * math.exp(max(-limit, min(limit, eta * (losses.get(name, mean) - mean))))
        for name, weight in prior.items()
    }
    return {name: round(weight / sum(raised.values()), 3) for name, weight in raised.items()}


def validate(model: TinyTransformer, feed: Feed, *, device: str) -> dict[str, float]:
    """Return loss and perplexity over every token of the splits kept apart, and by source."""
    held_out = [
        Source(name=source.name, path=source.path, split="val")
        for source, store in zip(feed.recipe.sources, feed.stores, strict=True)
        if "val" in store.splits
    ]
    if not held_out:
        return {}
    recipe = Recipe(seq_len=SEQ_LEN, global_batch_size=BATCH_SIZE, passes=1, sources=held_out)
    found = evaluate(model, recipe, forward=lambda model, batch: model(batch), device=device)
    return {f"val/{name}": figure for name, figure in found.as_dict().items()}


def add_over_ranks(model: torch.nn.Module, sums: torch.Tensor) -> None:
    """Add gradients and sums of all ranks, in place; a lone process has them already."""
    if dist.is_initialized():
        for tensor in (sums, *(weight.grad for weight in model.parameters())):
            dist.all_reduce(tensor)


def named_store(text: str) -> tuple[str, str]:
    """Return name and path of NAME=STORE."""
    name, _, path = text.partition("=")
    if not name or not path:
        raise argparse.ArgumentTypeError(f"expected NAME=STORE, got {text!r}")
    return name, path


def main() -> None:
    """Train from the last checkpoint on, if there is one; then validate."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stores", nargs="+", type=named_store, metavar="NAME=STORE")
    parser.add_argument("--folder", type=Path, required=True, help="of checkpoint and logs")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, metavar="STEPS", help="change weights")
    parser.add_argument("--save-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--eta", type=float, default=1.0, help="0 keeps the weights")
    parser.add_argument("--logger", choices=LOGGERS, default="tensorboard")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if "WORLD_SIZE" in os.environ:  # one of the ranks that torchrun started
        if args.device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    is_first = not dist.is_initialized() or dist.get_rank() == 0
    args.folder.mkdir(parents=True, exist_ok=True)
    checkpoint = args.folder / "checkpoint.pt"

    prior = {name: 1 / len(args.stores) for name, _ in args.stores}
    sources = [Source(name=name, path=path, weight=prior[name]) for name, path in args.stores]
    recipe = Recipe(
        seq_len=SEQ_LEN, global_batch_size=BATCH_SIZE, seed=7, steps=args.steps, sources=sources
    )
    loader = FeedLoader(recipe, device=args.device)
    feed = loader.feed
    vocab_size = max(store.vocab_size or 2**16 for store in feed.stores)
    model = TinyTransformer(vocab_size=vocab_size, seq_len=SEQ_LEN).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    window = torch.zeros(2, len(sources), dtype=torch.float64)  # losses and weights by source
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=args.device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["feed"])
        window = saved["window"].cpu()
    logger = open_logger(args.logger, args.folder, describe(feed)) if is_first else None

    for batch in loader:
        done = feed.step  # steps, with this one
        sums, weights = loss_by_source(model(batch), batch, num_sources=len(sources))
        optimizer.zero_grad()
        (sums.sum() / feed.weight_sum(done - 1)).backward()
        table = torch.stack([sums.detach(), weights])
        add_over_ranks(model, table)
        optimizer.step()
        window += table.cpu()
        if is_first:
            loss = (table[0].sum() / table[1].sum()).item()
            print(json.dumps({"step": done - 1, "loss": loss}), flush=True)
        if done % args.every == 0:
            rows = zip(prior, *window.tolist(), strict=True)
            losses = {name: loss / weight for name, loss, weight in rows if weight}
            mean = (window[0].sum() / window[1].sum()).item()
            if logger is not None:
                figures = {f"loss/{name}": loss for name, loss in losses.items()}
                figures |= {f"weight/{name}": item for name, item in weights_of(feed).items()}
                logger.log({"loss/all": mean, **figures}, step=done)
            # The same on every rank, as the sums are; it holds from the next batch on.
            feed.change_weights(reweighted(prior, losses, mean=mean, eta=args.eta))
            window.zero_()
        if is_first and (done % args.save_every == 0 or done == args.steps):
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            saved |= {"feed": loader.state_dict(), "window": window}
            torch.save(saved, checkpoint.with_suffix(".part"))
            checkpoint.with_suffix(".part").replace(checkpoint)  # the old one, or the new one

    found = validate(model, feed, device=args.device)
    if logger is not None:
        logger.log(found, step=feed.step)
        logger.close()
        print(json.dumps({"steps": feed.step, "weights": weights_of(feed), **found}))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
