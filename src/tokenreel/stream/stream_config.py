"""Read the configuration of a stream, told from what belongs to others.

    data, data.tokenizer, stream   the stream's own: every key is known, or an error
    train, model                   shared: what the stream does not know is the trainer's
    optim, logging, …              the trainer's, left alone

No setting is passed over because of its spelling: what nearly spells a section or a shared
key of the stream that is not given, and what stands outside its section, is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from tokenreel.config.config_file import Table, read_table
from tokenreel.config.load import make
from tokenreel.config.overrides import override
from tokenreel.errors import ConfigError
from tokenreel.stream.stream_settings import SECTIONS, StreamConfig

KEYS = {section: [item.name for item in fields(kind)] for section, kind in SECTIONS.items()}
TOP = [item.name for item in fields(StreamConfig)]
SHARED = ("train", "model")
# What a recipe calls otherwise: its batch is that of a step, over all ranks and microbatches.
OF_RECIPES = {"global_batch_size": "train.batch_size"}

Configured = StreamConfig | Mapping[str, Any] | str | PathLike[str]


def read_config(config: Configured, *, overrides: Sequence[str] = ()) -> StreamConfig:
    """Return the configuration of an object, a nested mapping, or a TOML, YAML or XML file.

    Paths in a file count from its folder. `overrides` are settings such as "data.seed=3".

    >>> read_config({"data": {"backend": "local_text", "local_text": "hello",
    ...                       "tokenizer": {"kind": "byte"}}}).train.seq_len
    1024
    """
    if isinstance(config, StreamConfig):
        if not overrides:
            return config
        config = asdict(config)
    if isinstance(config, Mapping):
        table = Table(content=_plain(config), where=None)
    else:
        table = read_table(config)
    own_part(override({}, overrides), where=None)  # what is in the file excuses no misspelling
    content = own_part(override(table.content, overrides), where=table.where)
    made = make(StreamConfig, content, where=table.where, typed=table.typed)
    return made if isinstance(config, Mapping) else _below(made, Path(config).parent)


def _plain(value: Any) -> Any:
    """Return a setting as a file would hold it: paths as text."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return fspath(value) if isinstance(value, PathLike) else value


def _below(config: StreamConfig, folder: Path) -> StreamConfig:
    """Return the configuration with its paths taken from a folder."""
    data, tokenizer, cache = config.data, config.data.tokenizer, config.stream
    files = data.local_files
    if files is not None:
        given = [files] if isinstance(files, str) else files
        data = replace(data, local_files=[str(folder / item) for item in given])
    if data.hf_dataset is not None and (folder / data.hf_dataset).is_dir():
        data = replace(data, hf_dataset=str(folder / data.hf_dataset))
    name = tokenizer.hf_name_or_path
    if name is not None and (folder / name).exists():
        tokenizer = replace(tokenizer, hf_name_or_path=str(folder / name))
    if cache.cache_to is not None:
        cache = replace(cache, cache_to=str(folder / cache.cache_to))
    return replace(config, data=replace(data, tokenizer=tokenizer), stream=cache)


def own_part(content: Mapping[str, Any], *, where: Any) -> dict[str, Any]:
    """Return the sections of the stream, without the keys in them that are the trainer's.

    >>> own_part({"data": {"seed": 1}, "train": {"seq_len": 8, "steps": 9}, "optim": {}},
    ...          where=None)
    {'data': {'seed': 1}, 'train': {'seq_len': 8}}
    """
    own = {name: content[name] for name in TOP if content.get(name) is not None}
    for key in sorted(set(content) - set(TOP)):
        _check_beside(key, content[key], own, where)
    for name in SHARED:
        if isinstance(own.get(name), Mapping):
            own[name] = _shared(name, own[name], KEYS[name], where)
    if isinstance(own.get("data"), Mapping):
        _check_data(own["data"], where)
    return own


def _check_beside(key: str, value: Any, own: Mapping[str, Any], where: Any) -> None:
    """Raise ConfigError for a key beside the sections that is meant for one of them."""
    missing = [name for name in TOP if name not in own]
    near = _nearest(key, missing, cutoff=0.8, extends=isinstance(value, Mapping))
    for name in TOP:
        if key in KEYS[name] and key not in own.get(name, {}):
            near = f"{name}.{key}"
    _check_recipe(key, key, own, where)
    if near is not None:
        raise _misspelt(key, near, where)


def _check_recipe(written: str, key: str, own: Mapping[str, Any], where: Any) -> None:
    """Raise ConfigError for a name of recipes, unless the stream's name for it is given as well."""
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
    """Raise ConfigError for a key in `data` that belongs to another section."""
    for key in sorted(set(table) - set(KEYS["data"])):
        for section, known in KEYS.items():
            if key in known:
                near = f"{section}.{key}"
                raise ConfigError(
                    f"unknown key 'data.{key}'", where=where, remedy=f"did you mean {near!r}?"
                )


def _shared(
    section: str, table: Mapping[str, Any], known: Collection[str], where: Any
) -> dict[str, Any]:
    """Return the stream's keys of a section; one that nearly spells such a key is an error."""
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


def _misspelt(key: str, near: str, where: Any) -> ConfigError:
    return ConfigError(
        f"unknown key {key!r}",
        where=where,
        remedy=f"did you mean {near!r}? if it is meant for others, give {near!r} as well",
    )
