"""States that are refused where they do not belong.

A state carries what its order depends on; loading it elsewhere names what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from tokenreel.errors import ConfigError, MismatchError, differing_fields

VERSION = 1


def check_identity(state: Mapping[str, Any], identity: Mapping[str, Any], *, owner: str) -> None:
    """Raise MismatchError where a state says something else; what it does not say is not asked."""
    said = {name: state[name] for name in identity if name in state}
    differing = differing_fields(said, {name: identity[name] for name in said})
    if differing:
        raise MismatchError(
            f"the state belongs to another {owner}",
            differing=differing,
            remedy="resume with the data and the settings it was saved with",
        )


def check_version(state: Mapping[str, Any], *, owner: str) -> None:
    """Raise ConfigError for a version of the state that is not known; none is the first."""
    version = state.get("version", VERSION)
    if version != VERSION:
        raise ConfigError(
            f"unknown version of the state of the {owner}",
            expected=VERSION,
            actual=repr(version),
            remedy="use the tokenreel that wrote it",
        )


def count_of(state: Mapping[str, Any], name: str, *, owner: str) -> int:
    """Return a count from a state; 0 where it is missing."""
    value = state.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 0:
        raise ConfigError(
            f"bad {name} in the state of the {owner}", expected=">= 0", actual=repr(value)
        )
    return int(value)
