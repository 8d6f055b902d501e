"""The act of training: left alone, and again, killed half-way and resumed on two ranks."""

from __future__ import annotations

import time

from tokenreel.demo.comparison import TOLERANCE, Comparison
from tokenreel.demo.run import CHECKPOINT_STEPS, Run
from tokenreel.demo.stage import Stage
from tokenreel.demo.step_record import Trained
from tokenreel.demo.stores import STEPS
from tokenreel.progress import bars

KILL_AFTER = 54

Steps = dict[int, Trained]


def train_and_kill(stage: Stage) -> bool:
    """Play it; True if batches are the same and losses within the tolerance."""
    stage.act(f"4. {STEPS} steps of a tiny transformer; killed half-way, resumed on two ranks")
    begin = time.perf_counter()
    alone = _train(stage, "alone", "left alone", world_size=1)
    stage.say(f"One rank, left alone: {_summary(alone, begin)}.")
    begin = time.perf_counter()
    killed = _train(stage, "killed", "until the kill", world_size=1, stop=KILL_AFTER)
    stage.say(f"The same, ended by SIGKILL: {_summary(killed, begin)}.")
    begin = time.perf_counter()
    probably = len(killed) // CHECKPOINT_STEPS * CHECKPOINT_STEPS
    resumed = _train(stage, "killed", "two ranks", world_size=2, start=probably)
    saved = min(resumed)
    stage.say(f"Its checkpoint on two ranks, by torch.distributed: {_summary(resumed, begin)}.")
    compared = Comparison(alone=alone, parts=(killed, resumed))
    shown = {0, 20, 40, saved - 1, saved, max(killed), max(killed) + 1, 75, STEPS - 1}
    stage.draw(compared.table(sorted(shown)))
    if compared.same_batches():
        num_rows = sum(len(trained.rows) for trained in alone.values())
        stage.say(f"All {num_rows:,} rows are the same, bit by bit, and so is their order;")
        stage.say(f"so are those after step {saved - 1} that were trained before the kill.")
    else:
        stage.say("The batches differ!")
    stage.say(f"Losses differ by {compared.loss_gap():.1e} at most ({TOLERANCE:.0e} is allowed).")
    return compared.holds()


def _train(
    stage: Stage, name: str, label: str, *, world_size: int, start: int = 0, stop: int = STEPS
) -> Steps:
    """Train until `stop` is reached, then end it by SIGKILL unless that is the run's end."""
    with (
        bars() as progress,
        Run(stage.folder / "recipe.toml", stage.folder / name, world_size=world_size) as run,
    ):
        progress.start(label, total=stop - start, unit="steps")
        run.watch(progress, start=start, stop=stop)
        if stop == STEPS:
            run.wait()
        run.kill()
        return run.steps()


def _summary(steps: Steps, begin: float) -> str:
    seconds = time.perf_counter() - begin
    return f"steps {min(steps)} to {max(steps)} in {seconds:.0f} s"
