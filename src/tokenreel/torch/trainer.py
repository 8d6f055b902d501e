"""What the Hugging Face Trainer needs besides FeedRows: its checkpoints know their run.

The Trainer itself remembers only how many steps were done. This callback puts the feed's
state into each trainer_state.json, refuses to resume from a checkpoint of another run, and
sees to it that a step of the Trainer is a step of the recipe. Needs transformers.
"""

from __future__ import annotations

from typing import Any, cast

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tokenreel.errors import ConfigError
from tokenreel.torch.feed_rows import FeedRows
from tokenreel.torch.loader import FeedLoader

KEY = "tokenreel"


class FeedCallback(TrainerCallback):
    """Keeps a feed's state in the checkpoints of a Trainer.

    The state can be loaded by FeedLoader and Feed as well.
    """

    def __init__(self, rows: FeedRows | FeedLoader) -> None:
        self._feed = rows.feed

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Check the checkpoint that is resumed from, and the number of rows in a step."""
        size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        if size != self._feed.recipe.global_batch_size:
            raise ConfigError(
                "a step of the Trainer is not a step of the recipe",
                expected=f"{self._feed.recipe.global_batch_size:,} rows",
                actual=f"{args.train_batch_size:,} rows · {args.gradient_accumulation_steps:,} "
                f"accumulated · {args.world_size:,} processes",
                remedy="change the recipe's global_batch_size or the Trainer's",
            )
        stored = _kept(state).get(KEY)
        if stored is not None:
            self._feed.load_state_dict(stored)
        self._keep(state)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Note the step before the checkpoint may be written."""
        self._keep(state)

    def _keep(self, state: TrainerState) -> None:
        _kept(state)[KEY] = {**self._feed.state_dict(), "step": state.global_step}


def _kept(state: TrainerState) -> dict[str, Any]:
    """Return what goes into trainer_state.json: a dict, though it is declared as a list."""
    return cast("dict[str, Any]", state.stateful_callbacks)
