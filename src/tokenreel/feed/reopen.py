"""A feed on its way to another process: the recipe and the state, never the tokens.

A mapped store would be pickled as a copy of all its tokens; opening it again costs
milliseconds, and the state makes sure that it is still the same.
"""

from __future__ import annotations

from typing import Any

from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe


def reopened(
    kind: type[Feed],
    recipe: Recipe,
    options: dict[str, Any],
    state: dict[str, Any],
    is_placed: bool,
) -> Feed:
    """Return a feed of the recipe at the state; MismatchError if the stores have changed.

    `is_placed` False: the step was come to by streaming, so that the next stream of an evaluation
    begins anew.
    """
    feed = kind(recipe, **options)
    feed.load_state_dict(state)
    feed._is_placed = is_placed
    return feed
