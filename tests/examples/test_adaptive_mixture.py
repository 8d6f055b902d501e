"""The mixture that follows the losses: what it logs, and that a killed run goes on as it was."""

from __future__ import annotations

import json
import random
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.examples.conftest import EXAMPLES, finish, run, start

import tokenreel
from tokenreel import Feed, Recipe, Source
from tokenreel.demo.model import TinyTransformer
from tokenreel.torch import evaluate

EXAMPLE = "adaptive_mixture.py"
EVERY, SAVE_EVERY, STEPS = 4, 6, 18  # checkpoints lie within windows of losses


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build one store that is soon learnt, and one that cannot be."""
    folder, chance = tmp_path_factory.mktemp("stores"), random.Random(0)
    texts = {
        "tales": [f"Story {n}. " + "So it goes. " * 20 for n in range(80)],
        "noise": ["".join(chr(chance.randrange(33, 127)) for _ in range(240)) for _ in range(80)],
    }
    for name, each in texts.items():
        tokenreel.build(texts=iter(each), out=folder / name, tokenizer="byte", val_frac=0.1)
    return {name: folder / name for name in texts}


def words(stores: dict[str, Path], folder: Path, *, steps: int) -> list[str]:
    named = [f"{name}={path}" for name, path in stores.items()]
    counts = {"--steps": steps, "--every": EVERY, "--save-every": SAVE_EVERY}
    options = [str(word) for pair in counts.items() for word in pair]
    return [EXAMPLE, *named, "--folder", str(folder), *options]


def run_here(given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the example in this process, which has torch already, on one thread as the others."""
    monkeypatch.setattr(sys, "argv", given)
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        runpy.run_path(str(EXAMPLES / EXAMPLE))["main"]()
    finally:
        torch.set_num_threads(num_threads)


def losses_of(printed: str) -> dict[int, float]:
    told = [json.loads(line) for line in printed.splitlines()]
    return {line["step"]: line["loss"] for line in told if "step" in line}


class Logged:
    """What TensorBoard reads from the event files of a folder."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.backend.event_processing import (  # type: ignore[import-untyped]
            event_accumulator,
        )

        events = event_accumulator.EventAccumulator(str(folder / "logs"))
        events.Reload()
        self.scalars: dict[str, dict[int, float]] = {
            tag: {event.step: event.value for event in events.Scalars(tag)}
            for tag in events.Tags()["scalars"]
        }
        texts = events.Tensors("run/text_summary")
        self.runs: list[dict[str, Any]] = [
            json.loads(event.tensor_proto.string_val[0]) for event in texts
        ]


def saved(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = torch.load(folder / "checkpoint.pt", weights_only=True)
    return found


def remade(told: dict[str, Any]) -> Feed:
    """Return the feed of a logged recipe."""
    sources = [Source(**source) for source in told["recipe"]["sources"]]
    return Feed(Recipe(**{**told["recipe"], "sources": sources}))


@pytest.fixture(scope="module")
def unbroken(stores: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unbroken")
    with pytest.MonkeyPatch.context() as patch:
        run_here(words(stores, folder, steps=STEPS), patch)
    return folder


def test_losses_and_weights_of_every_source_are_logged(
    stores: dict[str, Path], unbroken: Path
) -> None:
    scalars, state = Logged(unbroken).scalars, saved(unbroken)["feed"]
    borders = list(range(EVERY, STEPS + 1, EVERY))
    for tag in ("loss/all", "loss/tales", "loss/noise", "weight/tales", "weight/noise"):
        assert list(scalars[tag]) == borders, tag
    feed = remade(Logged(unbroken).runs[0])
    feed.load_state_dict(state)
    changes = {change["step"] + EVERY: change["weights"] for change in feed.changes}
    for border, weights in [(EVERY, {"tales": 0.5, "noise": 0.5}), *changes.items()]:
        if border <= STEPS:
            shown = {name: scalars[f"weight/{name}"][border] for name in stores}
            assert shown == pytest.approx(weights)
    # What cannot be learnt has the larger loss, and by this rule is shown more.
    assert scalars["loss/noise"][16] > scalars["loss/all"][16] > scalars["loss/tales"][16]
    assert scalars["weight/noise"][16] > scalars["weight/noise"][8] > 0.5


def test_the_logged_validation_is_that_of_every_token_kept_apart(
    stores: dict[str, Path], unbroken: Path
) -> None:
    vocab_size = tokenreel.open_store(stores["tales"]).vocab_size or 0
    model = TinyTransformer(vocab_size=vocab_size, seq_len=128)
    model.load_state_dict(saved(unbroken)["model"])
    scalars = Logged(unbroken).scalars
    for name, path in stores.items():
        source = Source(name=name, path=path, split="val")
        alone = evaluate(
            model,
            Recipe(seq_len=128, global_batch_size=3, passes=1, sources=[source]),
            forward=lambda model, batch: model(batch),
        )
        assert scalars[f"val/{name}/loss"] == {STEPS: pytest.approx(alone.loss, abs=1e-5)}


def test_the_run_is_logged_with_what_it_was_fed_with(
    stores: dict[str, Path], unbroken: Path
) -> None:
    (told,) = Logged(unbroken).runs
    assert (told["start_step"], told["stop_step"]) == (0, STEPS)
    assert told["data"] == remade(told).fingerprint == saved(unbroken)["feed"]["fingerprint"]
    opened = {name: tokenreel.open_store(path) for name, path in stores.items()}
    assert told["stores"] == {name: store.fingerprint for name, store in opened.items()}


@pytest.mark.soak
def test_killed_and_run_again_it_has_the_batches_weights_and_logs_of_an_unbroken_run(
    stores: dict[str, Path],
    unbroken: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    killed = start(*words(stores, tmp_path, steps=1000))
    assert killed.stdout is not None
    before: dict[int, float] = {}
    while max(before, default=0) < 9:  # behind a checkpoint and another change of weights
        line = killed.stdout.readline()
        assert line, killed.communicate()[1]
        before.update(losses_of(line))
    killed.kill()
    killed.communicate()
    resumed_at = saved(tmp_path)["feed"]["step"]
    assert resumed_at in (6, 12)
    time.sleep(1)  # event files are read in the order of their names, which count seconds
    run_here(words(stores, tmp_path, steps=STEPS), monkeypatch)
    after = losses_of(capsys.readouterr().out)

    assert list(after) == list(range(resumed_at, STEPS))
    both = before.keys() & after.keys()
    assert {step: before[step] for step in both} == {step: after[step] for step in both}
    states = [saved(folder)["feed"] for folder in (unbroken, tmp_path)]
    assert states[0] == states[1] and states[0]["step"] == STEPS
    models = [saved(folder)["model"] for folder in (unbroken, tmp_path)]
    torch.testing.assert_close(models[1], models[0], rtol=0, atol=0)

    logs = [Logged(folder) for folder in (unbroken, tmp_path)]
    assert logs[1].scalars == logs[0].scalars
    ranges = [(told["start_step"], told["stop_step"]) for told in logs[1].runs]
    assert ranges == [(0, 1000), (resumed_at, STEPS)]
    assert {told["data"] for told in logs[1].runs} == {logs[0].runs[0]["data"]}
    # The weights of a resumed run are those it had come to.
    scalars = logs[0].scalars
    border = -(-resumed_at // EVERY) * EVERY
    for name, weight in logs[1].runs[1]["weights"].items():
        assert scalars[f"weight/{name}"][border if resumed_at % EVERY else border + EVERY] == (
            pytest.approx(weight)
        )


def test_a_state_brings_the_changed_batches_back(unbroken: Path) -> None:
    told = Logged(unbroken).runs[0]
    state = saved(unbroken)["feed"]
    changed, plain = remade(told), remade(told)
    changed.load_state_dict(state)
    assert [change["step"] for change in changed.changes] == [4, 8, 12, 16]
    counts = {}
    for name, feed in (("changed", changed), ("plain", plain)):
        counts[name] = [int((feed.batch(step).source_ids == 1).sum()) for step in range(STEPS)]
    assert counts["changed"][:EVERY] == counts["plain"][:EVERY]
    assert counts["plain"] == [8] * STEPS
    assert sum(counts["changed"][12:]) > 12 * 6


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_logger_that_is_not_installed_says_what_to_install(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not there
    open_logger = runpy.run_path(str(EXAMPLES / EXAMPLE))["open_logger"]
    with pytest.raises(SystemExit, match=f"--logger {name} needs .* pip install {name}$"):
        open_logger(name, tmp_path, {"start_step": 0})


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "files"), [("wandb", "wandb/offline-*/run-*.wandb"), ("mlflow", "*.db")]
)
def test_other_loggers_write_their_files_offline(
    name: str, files: str, stores: dict[str, Path], tmp_path: Path
) -> None:
    pytest.importorskip(name)
    run(*words(stores, tmp_path, steps=8), "--logger", name)
    (written,) = tmp_path.glob(files)
    found = written.read_bytes()
    fingerprint = saved(tmp_path)["feed"]["fingerprint"]
    for wanted in ("loss/noise", "weight/tales", "val/noise/loss", fingerprint):
        assert wanted.encode() in found, wanted


@pytest.mark.soak
def test_two_ranks_measure_the_losses_of_one_and_choose_the_same_weights(
    stores: dict[str, Path], unbroken: Path, tmp_path: Path
) -> None:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    printed = finish(start(*words(stores, tmp_path, steps=STEPS), launcher=launcher))
    assert list(losses_of(printed)) == list(range(STEPS))  # the first rank alone tells and logs
    one, two = Logged(unbroken).scalars, Logged(tmp_path).scalars
    assert one.keys() == two.keys()
    for tag in one:
        if tag.startswith("weight/"):
            assert two[tag] == one[tag]
        else:
            assert two[tag] == pytest.approx(one[tag], rel=1e-3), tag
