"""Recipes, configurations, overrides, sizes and templates, to be damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tests.faults.damaging import JSON, damaged_bytes, damaged_json
from tests.faults.fuzzed import BYTES, Maker, Target, as_mapping, file_target
from tests.store.building import build_full
from tests.stream.making import config_of

from tokenreel import Feed, Recipe, Source
from tokenreel.config.load import load
from tokenreel.config.overrides import override
from tokenreel.config.sizes import parse_size
from tokenreel.dropin import load_data_config, load_training_config
from tokenreel.dropin.mapped.data_config import DataConfig
from tokenreel.feed.recipe import Phase
from tokenreel.stream import read_config
from tokenreel.text.chats import load_template, read_chat, render

RECIPE: dict[str, Any] = {
    "seq_len": 8,
    "global_batch_size": 4,
    "seed": 3,
    "pad_id": 0,
    "temperature": 1.5,
    "sources": [
        {"name": "web", "path": "web", "rows": "packed", "weight": 0.5, "truncation": "split"},
        {"name": "chat", "path": "chat", "rows": "episodes", "min_tokens": 2, "dtype": "uint16"},
    ],
    "phases": [{"start_step": 10, "weights": {"web": 0.25, "chat": 1}, "ramp_steps": 2}],
}
RECIPE_TOML = b"""seq_len = 8
global_batch_size = 4
[[sources]]
name = "web"
path = "web"
weight = 0.5
[[phases]]
start_step = 10
weights = { web = 0.25 }
"""
RECIPE_YAML = b"""seq_len: 8
global_batch_size: 4
sources:
  - {name: web, path: web, rows: packed, weight: 5.0e-1}
phases: [{start_step: 10, weights: {web: 0x10}}]
"""
RECIPE_XML = b"""<recipe><seq_len>8</seq_len><global_batch_size>4</global_batch_size>
<sources><source><name>web</name><path>w&amp;b</path><weight>0.5</weight></source></sources>
<phases><phase><start_step>1</start_step><weights><web>1</web></weights></phase></phases></recipe>
"""


def settings_file(folder: Path, name: str, data: bytes, read: Callable[[Path], object]) -> Target:
    (folder / name).write_bytes(data)
    return file_target(folder / name, lambda: read(folder / name))


def recipe_toml(folder: Path) -> Target:
    return settings_file(folder, "r.toml", RECIPE_TOML, Recipe.read)


def recipe_yaml(folder: Path) -> Target:
    return settings_file(folder, "r.yaml", RECIPE_YAML, Recipe.read)


def recipe_xml(folder: Path) -> Target:
    return settings_file(folder, "r.xml", RECIPE_XML, Recipe.read)


def recipe_dict(folder: Path) -> Target:
    return Target(inputs=damaged_json(RECIPE), use=lambda value: load(Recipe, as_mapping(value)))


def recipe_objects(folder: Path) -> Target:
    """A recipe made in Python, of a store that is there, and its first batch."""
    store = str(build_full(folder / "store"))
    plain = {"name": "a", "path": store, "rows": "windows", "weight": 1, "split": "train"}
    given = {"seq_len": 3, "global_batch_size": 2, "seed": 0, "pad_id": 0, "steps": 5}
    phase = {"start_step": 1, "weights": {"a": 1}, "ramp_steps": 0}
    whole = {"recipe": given, "source": plain, "phase": phase}

    def use(value: Any) -> None:
        parts = {name: as_mapping(as_mapping(value).get(name, {})) for name in whole}
        recipe = Recipe(
            **parts["recipe"], sources=[Source(**parts["source"])], phases=[Phase(**parts["phase"])]
        )
        if recipe.seq_len * recipe.global_batch_size < 1 << 16:  # more is only slow
            feed = Feed(recipe)
            json.dumps(feed.state_dict())
            feed.batch(0)

    return Target(inputs=damaged_json(whole), use=use)


def overrides(folder: Path) -> Target:
    texts = damaged_bytes(b"sources.web.weight=0.5").map(lambda data: data.decode("latin-1"))
    values = JSON.map(lambda value: f"sources.0.rows={json.dumps(value)}")
    use: Callable[[str], object] = lambda text: load(Recipe, override(RECIPE, [text]))  # noqa: E731
    return Target(inputs=texts | values | st.text(max_size=20), use=use)


def sizes(folder: Path) -> Target:
    damaged = damaged_bytes(b"1,234.5 MiB").map(lambda data: data.decode("latin-1"))
    return Target(inputs=damaged | JSON, use=parse_size)


def stream_config(folder: Path) -> Target:
    whole = config_of(folder / "a.jsonl", seed=3, model_vocab_size=999, num_lanes=2)
    return Target(inputs=damaged_json(whole), use=lambda value: read_config(as_mapping(value)))


def stream_config_toml(folder: Path) -> Target:
    text = b'[data]\nbackend = "local_text"\nlocal_text = "hi"\n[data.tokenizer]\nkind = "byte"\n'
    return settings_file(folder, "s.toml", text, read_config)


def training_config_xml(folder: Path) -> Target:
    text = b"<c><training><dataset_mode>sft_episode</dataset_mode><epoch_seed>7</epoch_seed>"
    text += b"<epoch_shuffle>true</epoch_shuffle><pad_token_id>0</pad_token_id></training></c>"
    return settings_file(folder, "t.xml", text, load_training_config)


def data_config_toml(folder: Path) -> Target:
    text = b'[data]\ndataset_path = "/t"\nmix_temperature = 1.0\n[[data.datasets]]\npath = "a"\n'
    text += b"weight = 0.7\n[[data.phases]]\nstart_step = 10\ndataset_weights = { a = 0.3 }\n"
    return settings_file(folder, "d.toml", text, load_data_config)


def data_config_dict(folder: Path) -> Target:
    whole = {"datasets": [{"path": "a", "weight": 1.0}], "phases": [{"start_step": 3}], "dtype": ""}
    return Target(inputs=damaged_json(whole), use=lambda value: load(DataConfig, as_mapping(value)))


def template_toml(folder: Path) -> Target:
    text = b"""name = "mine"
end = [{ control = "<|im_end|>" }]
tail = [{ text = "\\n" }]
[headers]
user = [{ control = "<|im_start|>" }, { text = "user\\n" }]
assistant = [{ control = "<|im_start|>" }, { name = " " }]
"""
    chat = read_chat({"prompt": "2+2?", "completion": "4"})

    def use(path: Path) -> None:
        render([chat], load_template(path), tokenizer=BYTES)

    return settings_file(folder, "t.toml", text, use)


PARSERS: tuple[Maker, ...] = (
    recipe_toml,
    recipe_yaml,
    recipe_xml,
    recipe_dict,
    recipe_objects,
    overrides,
    sizes,
    stream_config,
    stream_config_toml,
    training_config_xml,
    data_config_toml,
    data_config_dict,
    template_toml,
)
