"""Rendering chats and reading JSONL, against the bare tokenizer and against transformers."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.corpus import chats, documents, train_bpe, write_jsonl
from benchmarks.harness import Row, at_least, best_seconds, rows_of_process
from tokenreel.text.chats import CHATML, read_chat, render
from tokenreel.text.sources import open_source
from tokenreel.text.tokenizers import load_tokenizer
from tokenreel.text.tokenizers.huggingface import define_json_file
from tokenreel.text.tokenizers.referenced import ReferencedTokenizer

MEGABYTE = 1e6

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'user' %}{{ message['content'] }}<|im_end|>"
    "{% else %}{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}"
    "{% endif %}\n{% endfor %}"
)


def measure() -> list[Row]:
    """Measure in a process that is held to one thread."""
    return rows_of_process("benchmarks.text")


def _measure_here() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="tokenreel-bench-") as name:
        folder = Path(name)
        tokenizer = train_bpe(folder)
        # Reading comes before transformers is imported: a build never has it in memory, and with it
        # every pass of the garbage collector takes longer.
        return [*_rendering(tokenizer), *_reading(folder), *_against_transformers(tokenizer)]


def _rendering(path: Path) -> list[Row]:
    """Render with the reference engine, against bare encoding of the same contents."""
    reference = load_tokenizer(path, engine="reference")
    talks = [read_chat({"messages": messages}) for messages in chats(3000)]
    contents = [message.content for talk in talks for message in talk.messages]
    size = sum(map(len, contents)) / MEGABYTE
    seconds = best_seconds(
        {
            "bare": lambda: reference.encode_batch(contents),
            "render": lambda: render(talks, CHATML, tokenizer=reference),
        },
        rounds=7,
    )
    return [
        Row(name="reference: bare encode_batch", value=size / seconds["bare"], unit="MB/s"),
        at_least(
            "reference: render with masks",
            size / seconds["render"],
            "MB/s",
            baseline=size / seconds["bare"],
            target=0.9,
        ),
    ]


def _against_transformers(path: Path) -> list[Row]:
    """Render with the fast engine, with and without reading the records, against transformers."""
    fast = load_tokenizer(path)
    name = getattr(fast, "engine", "reference")
    records = [{"messages": messages} for messages in chats(2000)]
    peer = _peer(path)
    talks = [read_chat(record) for record in records]
    size = sum(len(m["content"]) for r in records for m in r["messages"]) / MEGABYTE
    seconds = best_seconds(
        {
            "render": lambda: render(talks, CHATML, tokenizer=fast),
            "read": lambda: render([read_chat(r) for r in records], CHATML, tokenizer=fast),
            "peer": lambda: peer.apply_chat_template(
                [record["messages"] for record in records],
                return_assistant_tokens_mask=True,
                return_dict=True,
                tokenize=True,
            ),
        },
        rounds=5,
    )
    speed = {job: size / took for job, took in seconds.items()}
    return [
        Row(name="transformers: apply_chat_template", value=speed["peer"], unit="MB/s"),
        at_least(
            f"{name}: render with masks", speed["render"], "MB/s", baseline=speed["peer"], target=20
        ),
        Row(
            name=f"{name}: the same, records read and checked first",
            value=speed["read"],
            unit="MB/s",
            ratio=speed["read"] / speed["peer"],
        ),
    ]


def _peer(path: Path) -> Any:
    from tokenizers import Tokenizer as Library
    from transformers import PreTrainedTokenizerFast

    peer = PreTrainedTokenizerFast(tokenizer_object=Library.from_file(str(path)))
    peer.chat_template = TEMPLATE
    return peer


def _reading(folder: Path) -> list[Row]:
    """Read JSONL and tokenize on one core, against the engine on the same text in memory."""
    fast = ReferencedTokenizer(define_json_file(folder / "tokenizer.json"))
    texts = documents(20_000_000)
    source = open_source(write_jsonl(folder / "text.jsonl", texts))
    size = sum(len(text.encode()) for text in texts) / MEGABYTE
    parts = source.ranges(4 << 20)

    def read_and_encode() -> None:
        for part in parts:
            for columns in source.columns(part) or ():
                fast.encode_utf8(columns.texts)

    seconds = best_seconds(
        {"bare": lambda: fast.encode_batch(texts), "jsonl": read_and_encode}, rounds=15
    )
    return [
        Row(name="fast engine: bare, one core", value=size / seconds["bare"], unit="MB/s"),
        at_least(
            "fast engine: reading JSONL included",
            size / seconds["jsonl"],
            "MB/s",
            baseline=size / seconds["bare"],
            target=0.5,
        ),
    ]


if __name__ == "__main__":
    print(json.dumps([asdict(row) for row in _measure_here()]))
