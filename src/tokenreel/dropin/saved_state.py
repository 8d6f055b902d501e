"""States that are refused where they do not belong.

A state carries what its order depends on; loading it elsewhere names what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from tokenreel.config.hints import brief
from tokenreel.errors import ConfigError, MismatchError, differing_fields

VERSION = 1
MAX_COUNT = 2**62  # far above any run, and below where a product of two is slow or wrong


def check_identity(state: Mapping[str, Any], identity: Mapping[str, Any], *, owner: str) -> None:
    """Raise MismatchError where a state says something else; what it does not say is not asked."""
    said = {name: state[name] for name in identity if name in _mapping(state, owner)}
    differing = differing_fields(said, {name: identity[name] for name in said})
    if differing:
        raise MismatchError(
            f"the state belongs to another {owner}",
            differing=differing,
            remedy="resume with the data and the settings it was saved with",
        )


def check_version(state: Mapping[str, Any], *, owner: str) -> None:
    """Raise ConfigError for a version of the state that is not known; none is the first."""
    version = _mapping(state, owner).get("version", VERSION)
    if version != VERSION:
        raise ConfigError(
            f"unknown version of the state of the {owner}",
            expected=VERSION,
            actual=repr(version),
            remedy="use the tokenreel that wrote it",
        )


def count_of(state: Mapping[str, Any], name: str, *, owner: str) -> int:
    """Return a count from a state; 0 where it is missing."""
    value = _mapping(state, owner).get(name, 0)
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or not 0 <= value <= MAX_COUNT:
        raise ConfigError(
            f"bad {name} in the state of the {owner}",
            expected=f"0 to {MAX_COUNT:,}",
            actual=brief(value),
        )
    return int(value)


def part_of(state: Mapping[str, Any], name: str, *, owner: str) -> Mapping[str, Any]:
    """Return a part of a state that has parts of its own; an empty one where it is missing."""
    return _mapping(state.get(name) or {}, owner)


def _mapping(state: object, owner: str) -> Mapping[str, Any]:
    """Return what may be a state, or a part of one; raise ConfigError for anything else."""
    if isinstance(state, Mapping):
        return state
    raise ConfigError(
        f"not a state of the {owner}",
        expected="what state_dict() returned",
        actual=brief(state),
    )
