"""Whether the labels of a run may be trained as they stand.

Rows of pairs have rejected answers among their labels, with a weight like any other: losses over
preferences need them. A loss over all labels would teach them. Rows of prompts have no labels at
all. So what takes labels by themselves asks here first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from tokenreel.errors import ConfigError
from tokenreel.feed.recipe import Recipe
from tokenreel.rows.kinds import KINDS
from tokenreel.store.store import Store

# What a loss over all labels does with answers: it counts the other rows alone, or them like text.
OfAnswers = Literal["left_out", "as_text"]
PREFERENCE_LOSS = (
    "take batches of tokenreel.torch.FeedLoader, with answer_logps and dpo_losses or kto_losses "
    "(examples/dpo_pairs.py)"
)


def refuse_answers(recipe: Recipe) -> None:
    """Raise ConfigError if some source shows groups of answers."""
    for source in recipe.sources:
        if KINDS[source.rows].shows_groups:
            raise ConfigError(
                f"source {source.name!r} has rows of {source.rows}: rejected answers would be "
                "trained as text",
                expected="rows of which every label is to be learned",
                actual=f"rows of {source.rows}",
                remedy=PREFERENCE_LOSS,
            )


def refuse_prompts(recipe: Recipe) -> None:
    """Raise ConfigError if some source shows prompts alone."""
    for source in recipe.sources:
        if not KINDS[source.rows].has_targets:
            raise ConfigError(
                f"source {source.name!r} has rows of {source.rows}: no token of them is a label, "
                "so there is no loss",
                expected="rows with labels",
                actual=f"rows of {source.rows}",
                remedy="have a model answer them, as examples/grpo_loop.py does, or build a store "
                "of chats for prompts with answers",
            )


def without_answers(store: Store) -> Store:
    """Return the store, for those who read its tokens as text; ConfigError if it holds answers."""
    if any(split.has_groups for split in store.splits.values()):
        raise ConfigError(
            "the store holds groups of answers: rejected ones would be trained as text",
            where=store.path,
            expected="a store of documents or chats",
            remedy='show it with rows="pairs" (examples/dpo_pairs.py), or build a store of the '
            "preferred answers alone",
        )
    return store


def check_answers(batch: Mapping[str, Any], answers: OfAnswers | None) -> None:
    """Raise ConfigError for a batch with groups of answers, unless it is said what they count."""
    if answers is not None and answers not in get_args(OfAnswers):
        expected = " or ".join(map(repr, get_args(OfAnswers)))
        raise ConfigError("bad answers", expected=expected, actual=repr(answers))
    if answers is None and "group_ids" in batch:
        raise ConfigError(
            "the batch has groups of answers: a loss over all labels would train the rejected ones",
            expected="a batch without group_ids",
            remedy='use answer_logps with dpo_losses or kto_losses; answers="left_out" counts '
            'the rows beside them alone, answers="as_text" rejected answers like any text',
        )
