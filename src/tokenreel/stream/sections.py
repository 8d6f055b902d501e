"""The stream's part of a training configuration, told from what belongs to others.

    data, data.tokenizer, stream   the stream's own: every key is known, or an error
    train, model                   shared: what the stream does not know is the trainer's
    optim, logging, …              the trainer's, left alone

No setting is passed over because of its spelling: what nearly spells a section or a shared
key of the stream that is not given, and what stands outside its section, is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from tokenreel.errors import ConfigError
from tokenreel.stream.settings import (
    CacheSettings,
    DataSettings,
    ModelSettings,
    TokenizerSettings,
    TrainSettings,
)

SHARED = {"train": TrainSettings, "model": ModelSettings}
SECTIONS = {"data": DataSettings, **SHARED, "stream": CacheSettings}
# What a recipe calls otherwise: its batch is that of a step, over all ranks and microbatches.
OF_RECIPES = {"global_batch_size": "train.batch_size"}
PLACES = {**SECTIONS, "data.tokenizer": TokenizerSettings}


def own_part(content: Mapping[str, Any], *, where: Any) -> dict[str, Any]:
    """Return the sections of the stream, without the keys in them that are the trainer's.

    >>> own_part({"data": {"seed": 1}, "train": {"seq_len": 8, "steps": 9}, "optim": {}},
    ...          where=None)
    {'data': {'seed': 1}, 'train': {'seq_len': 8}}
    """
    own = {name: content[name] for name in SECTIONS if content.get(name) is not None}
    for key in sorted(set(content) - set(SECTIONS)):
        _check_beside(key, content[key], own, where)
    for name, kind in SHARED.items():
        if isinstance(own.get(name), Mapping):
            own[name] = _shared(name, own[name], _keys(kind), where)
    if isinstance(own.get("data"), Mapping):
        _check_data(own["data"], where)
    return own


def _check_beside(key: str, value: Any, own: Mapping[str, Any], where: Any) -> None:
    missing = [name for name in SECTIONS if name not in own]
    near = _nearest(key, missing, cutoff=0.8, extends=isinstance(value, Mapping))
    for name, kind in SECTIONS.items():
        if key in _keys(kind) and key not in own.get(name, {}):
            near = f"{name}.{key}"
    _check_recipe(key, key, own, where)
    if near is not None:
        raise _misspelt(key, near, where)


def _check_recipe(written: str, key: str, own: Mapping[str, Any], where: Any) -> None:
    """Refuse a name of recipes, unless the stream's own name for it is given as well."""
    section, _, near = OF_RECIPES.get(key, "").partition(".")
    if near and near not in (own.get(section) or {}):
        raise ConfigError(
            f"{written!r} is a key of recipes",
            where=where,
            remedy=f"a stream takes {section}.{near}, the rows of a microbatch, and "
            f"{section}.grad_accum, the microbatches of a step; if it is meant for others, give "
            f"'{section}.{near}' as well",
        )


def _check_data(table: Mapping[str, Any], where: Any) -> None:
    for key in sorted(set(table) - set(_keys(DataSettings))):
        for name, kind in PLACES.items():
            if key in _keys(kind):
                raise ConfigError(
                    f"unknown key 'data.{key}'", where=where, remedy=f"did you mean '{name}.{key}'?"
                )


def _shared(
    section: str, table: Mapping[str, Any], known: Collection[str], where: Any
) -> dict[str, Any]:
    missing = [name for name in known if name not in table]
    for key in sorted(set(table) - set(known)):
        _check_recipe(f"{section}.{key}", key, {section: table}, where)
        near = _nearest(key, missing, cutoff=0.85, extends=True)
        if near is not None:
            raise _misspelt(f"{section}.{key}", f"{section}.{near}", where)
    return {key: value for key, value in table.items() if key in known}


def _nearest(key: str, names: Collection[str], *, cutoff: float, extends: bool) -> str | None:
    """Return the name that a key nearly spells; "grad_accum_steps" extends "grad_accum"."""
    begun = [name for name in names if extends and key.startswith(name)]
    return next(iter(begun or get_close_matches(key, names, n=1, cutoff=cutoff)), None)


def _keys(kind: type) -> list[str]:
    return [item.name for item in fields(kind)]


def _misspelt(key: str, near: str, where: Any) -> ConfigError:
    return ConfigError(
        f"unknown key {key!r}",
        where=where,
        remedy=f"did you mean {near!r}? if it is meant for others, give {near!r} as well",
    )
