"""A feed on its way to another process: the recipe and the state, never the tokens.

A mapped store would be pickled as a copy of all its tokens; opening it again costs
milliseconds, and the state makes sure that it is still the same.
"""

from __future__ import annotations

from typing import Any

from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe


def reopened(recipe: Recipe, state: dict[str, Any]) -> Feed:
    """Return a feed of the recipe at the state; MismatchError if the stores have changed."""
    feed = Feed(recipe)
    feed.load_state_dict(state)
    return feed
