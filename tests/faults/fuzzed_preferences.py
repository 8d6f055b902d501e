"""Preferences, prompts and their records, and templates of chats, to be damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from tests.faults.damaging import JSON, damaged_bytes, damaged_json, damaged_json_bytes
from tests.faults.fuzzed import BYTES, Maker, Strategy, Target, as_mapping, file_target
from tests.store.independent import seal
from tests.text.chats.jinja_shapes import plain

from tokenreel import Feed, Recipe, Source, build, load_template, open_store, verify
from tokenreel.builder.prompt_items import read_prompt_item
from tokenreel.errors import TokenreelError
from tokenreel.store.document_records import parse_record_json
from tokenreel.text.chats import CHATML, read_chat, render
from tokenreel.text.chats.group_render import render_groups
from tokenreel.text.chats.model_template import ModelTemplate, model_template, parse_argument
from tokenreel.text.chats.preferences import read_group
from tokenreel.text.chats.prompt_render import render_prompts
from tokenreel.text.chats.template import Template
from tokenreel.text.provenance import Provenance

PLACE = Provenance(file="a.jsonl", row=0)
ASKED = {"role": "user", "content": "2+2?", "name": None}
CALLED = {
    "role": "assistant",
    "content": None,
    "reasoning_content": "I add.",
    "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2, "b": 2}}}],
}
RIGHT: list[Any] = [CALLED, {"role": "tool", "content": "4"}, {"role": "assistant", "content": "4"}]
WRONG: list[Any] = [{"role": "assistant", "content": "5", "weight": 0.5}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
GROUPS: list[dict[str, Any]] = [
    {"prompt": "2+2?", "chosen": "4", "rejected": "5", "system": "Add."},
    {"prompt": [ASKED], "chosen": RIGHT, "rejected": WRONG, "tools": TOOLS},
    {"chosen": [ASKED, *RIGHT], "rejected": [ASKED, *WRONG], "margin": 0.5},
    {"prompt": "2+2?", "chosen": [ASKED, *RIGHT], "rejected": [ASKED, *WRONG]},
    {"chosen": "2+2? It is 4", "rejected": "2+2? It is 5"},
    {"prompt": [ASKED], "completion": WRONG, "label": False},
    {"prompt": "2+2?", "answers": ["4", "5", "6"], "scores": [1, 0.5, -2]},
    {"prompt": "2+2?", "responses": [RIGHT, WRONG], "ranks": [2, 1], "history": [["a", "b"]]},
]
PROMPTS: list[dict[str, Any]] = [
    {"prompt": "2+2?", "answer": {"is": [4, None]}, "id": 2**70},
    {"prompt": [ASKED, CALLED, {"role": "tool", "content": "4"}], "tools": TOOLS},
    {"prompt": [ASKED, {"role": "assistant", "content": [{"type": "text", "text": "It"}]}]},
    {"messages": [ASKED], "system": "Add.", "chat_template_kwargs": {"thinking": True}},
    {"text": "2+2=", "documents": [{"title": "a", "text": "b"}]},
]


def qwen() -> ModelTemplate:
    return model_template(plain("qwen2"))


def preference_records(folder: Path) -> Target:
    def use(record: object) -> None:
        group = read_group(record, PLACE)
        _ = group.has_same_answers, group.unrendered
        render_groups([group], CHATML, tokenizer=BYTES)
        render_groups([group], qwen(), tokenizer=BYTES)

    return Target(inputs=st.one_of(JSON, *map(damaged_json, GROUPS)), use=use)


def prompt_records(folder: Path) -> Target:
    def use(record: object) -> None:
        for template in (None, CHATML, qwen()):
            with suppress(TokenreelError):  # messages need one, and another may render it
                has_template = template is not None
                item = read_prompt_item(record, PLACE, key=None, has_template=has_template)
                assert parse_record_json(item.record, where=folder, number=0) == item.rest
                render_prompts([item], template, tokenizer=BYTES)

    return Target(inputs=st.one_of(JSON, *map(damaged_json, PROMPTS)), use=use)


def sealed_target(
    folder: Path, kinds: tuple[str, ...], read: Callable[[Path], object], **options: Any
) -> Target:
    """Damage files of a store's first shard under valid checksums, verify it and read it."""
    whole = build(out=folder / "whole", tokenizer="byte", progress=False, **options).store.path
    files = [whole / f"train/shard_00000.{kind}" for kind in kinds]
    inputs = st.one_of(
        *(st.tuples(st.just(file.name), damaged_bytes(file.read_bytes())) for file in files)
    )

    def use(drawn: tuple[str, bytes]) -> None:
        store = folder / "s"
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(whole, store)
        (store / "train" / drawn[0]).write_bytes(drawn[1])
        seal(store)
        is_sound = verify(store).ok
        try:
            read(store)
        except TokenreelError:
            assert not is_sound, "what verify finds sound can be read"

    return Target(inputs=inputs, use=use)


def sealed_groups(folder: Path) -> Target:
    """Turns and documents of a store of groups, read as rows of pairs."""

    def read(store: Path) -> None:
        rows = Source(name="a", path=store, rows="pairs")
        feed = Feed(Recipe(seq_len=80, global_batch_size=2, sources=[rows]))
        for step in range(2):
            feed.batch(step).padded()
            feed.explain(step)
        feed.where("a", 0, stop_step=3)

    return sealed_target(folder, ("turns", "docs"), read, sources=GROUPS[::3], pairs=True)


def sealed_records(folder: Path) -> Target:
    """Offsets and objects of a store of prompts, read as documents and in batches."""

    def read(store: Path) -> None:
        for mode in ("mmap", "pread"):
            for document in open_store(store, mode=mode)["train"].documents():
                _ = document.record
        rows = Source(name="a", path=store, rows="prompts", repeats=2)
        feed = Feed(Recipe(seq_len=80, global_batch_size=2, sources=[rows]))
        _ = feed.batch(0, extra=("records",)).records
        feed.explain(0)

    return sealed_target(
        folder, ("records", "objects"), read, sources=PROMPTS, prompts=True, chat=True
    )


CHATS = ({"messages": [ASKED, *RIGHT], "tools": TOOLS}, {"messages": [ASKED, *WRONG]})


def template_target(path: Path, damage: Callable[[bytes], Strategy], **options: Any) -> Target:
    def use() -> None:
        use_template(load_template(path, **options))

    return file_target(path, use, damage)


def use_template(template: Template | ModelTemplate) -> None:
    for chat, prompt in zip(CHATS, PROMPTS[1:], strict=False):
        with suppress(TokenreelError):  # a template may have no place for tools
            render([read_chat(chat)], template, tokenizer=BYTES)
            item = read_prompt_item(prompt, PLACE, key=None, has_template=True)
            render_prompts([item], template, tokenizer=BYTES)


def template_toml(folder: Path) -> Target:
    (folder / "t.toml").write_text(
        'name = "t"\nend = [{control = "<|im_end|>"}]\ntail = [{text = "\\n"}]\nlead = " "\n'
        'strip = true\ndefault_system = "Add."\n[headers]\n'
        'system = [{control = "<|im_start|>"}, {text = "system\\n"}]\n'
        'user = [{control = "<|im_start|>"}, {name = " name="}, {text = "\\n"}]\n'
        'assistant = [{control = "<|im_start|>"}, {text = "a\\n"}]\n'
        'tool = [{control = "<|im_start|>"}]\n[ends]\nuser = []\n'
    )
    return template_target(folder / "t.toml", damaged_bytes)


def template_jinja(folder: Path) -> Target:
    (folder / "chat_template.jinja").write_text(plain("qwen2"))
    return template_target(folder / "chat_template.jinja", damaged_bytes)


def template_config(folder: Path) -> Target:
    texts = [
        {"name": "default", "template": plain("qwen2")},
        {"name": "tool_use", "template": plain("qwen3")},
    ]
    facts = {"chat_template": texts, "eos_token": {"content": "<|im_end|>"}, "bos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    return template_target(folder / "tokenizer_config.json", damaged_json_bytes)


def template_arguments(folder: Path) -> Target:
    (folder / "chat_template.jinja").write_text("{{ enable_thinking }}" + plain("qwen2"))

    def use(value: Any) -> None:
        if isinstance(value, str):
            value = dict([parse_argument(value)])
        use_template(load_template(folder, args=as_mapping(value)))

    words = st.sampled_from(["enable_thinking=", "a=", "=", "messages=", "tools="])
    values = st.text(max_size=8) | st.sampled_from(["[" * 100_000, "NaN", "9" * 5000])
    spelled = st.builds(lambda name, value: name + value, words, values)
    return Target(inputs=spelled | damaged_json({"enable_thinking": False}), use=use)


PARSERS: tuple[Maker, ...] = (
    preference_records,
    prompt_records,
    sealed_groups,
    sealed_records,
    template_toml,
    template_jinja,
    template_config,
    template_arguments,
)
