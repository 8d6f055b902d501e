"""Rendering chats and reading JSONL, against the bare tokenizer and against transformers."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import orjson

from benchmarks.corpus import FIRST_BYTES, chats, distinct_texts, train_bpe, write_jsonl
from benchmarks.harness import Row, at_least, best_seconds, rows_of_process
from tokenreel.text.chats import CHATML, read_chat, render
from tokenreel.text.chats.model_template import model_template
from tokenreel.text.sources import open_source
from tokenreel.text.tokenizers import load_tokenizer
from tokenreel.text.tokenizers.huggingface import define_json_file
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer

MEGABYTE = 1e6
READING_BYTES = 80 * 10**6
READING_ROUNDS = 5
WINDOW_BYTES = 2 << 20

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
        rows = [*_rendering(tokenizer), *_reading(folder)]
        return [*rows, *_against_transformers(tokenizer), *_by_jinja(tokenizer)]


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


def _by_jinja(path: Path) -> list[Row]:
    """Render by a template of Jinja, the one that transformers has: short chats and usual ones."""
    fast, peer, own = load_tokenizer(path), _peer(path), model_template(TEMPLATE)
    rows = []
    for kind, joined, target in (("short", 1, None), ("usual", 10, 5)):
        records = _joined(list(chats(2000)), joined)
        talks = [read_chat({"messages": messages}) for messages in records]
        seconds = best_seconds(
            {
                "own": functools.partial(render, talks, own, tokenizer=fast),
                "peer": functools.partial(
                    peer.apply_chat_template,
                    records,
                    return_assistant_tokens_mask=True,
                    return_dict=True,
                    tokenize=True,
                ),
            },
            rounds=5,
        )
        size = sum(len(m["content"]) for messages in records for m in messages)
        about = f"Jinja, {kind} chats ({size // len(records):,} characters each)"
        speed = size / MEGABYTE / seconds["own"]
        ratio = seconds["peer"] / seconds["own"]
        if target is None:
            rows.append(Row(name=about, value=speed, unit="MB/s", ratio=ratio))
        else:
            rows.append(at_least(about, speed, "MB/s", baseline=speed / ratio, target=target))
    return rows


def _joined(records: list[list[dict[str, str]]], number: int) -> list[list[dict[str, str]]]:
    """Return chats whose messages say what those of several chats say."""
    return [
        [
            {"role": said[0]["role"], "content": "\n".join(m["content"] for m in said)}
            for said in zip(*records[start : start + number], strict=True)
        ]
        for start in range(0, len(records), number)
    ]


def _peer(path: Path) -> Any:
    from tokenizers import Tokenizer as Library
    from transformers import PreTrainedTokenizerFast

    peer = PreTrainedTokenizerFast(tokenizer_object=Library.from_file(str(path)))
    peer.chat_template = TEMPLATE
    return peer


def _reading(folder: Path) -> list[Row]:
    """Read distinct JSONL and tokenize on one core, against the engine on the text in memory.

    Each turn is by a tokenizer that was just loaded: one that has seen the text knows its words.
    """
    corpus = write_jsonl(folder / "text.jsonl", distinct_texts(READING_BYTES))
    turns: dict[str, list[Seconds]] = {"bare": [], "jsonl": []}
    for _ in range(READING_ROUNDS):
        turns["bare"].append(_encode_held(folder, corpus))
        turns["jsonl"].append(_encode_read(folder, corpus))
    size = corpus.stat().st_size
    sizes = (FIRST_BYTES, size - FIRST_BYTES)
    rows = []
    for part, words in enumerate(("the first 10 MB", f"the rest of {size / MEGABYTE:.0f} MB")):
        speeds = {
            name: [sizes[part] / MEGABYTE / seconds[part] for seconds in turn]
            for name, turn in turns.items()
        }
        pairs = zip(speeds["jsonl"], speeds["bare"], strict=True)
        ratio = median(read / held for read, held in pairs)
        value = median(speeds["jsonl"])
        rows += [
            Row(name=f"fast engine: bare, {words}", value=median(speeds["bare"]), unit="MB/s"),
            at_least(
                f"fast engine: reading JSONL included, {words}",
                value,
                "MB/s",
                baseline=value / ratio,
                target=0.8,
            ),
        ]
    return rows


Seconds = tuple[float, float]  # of the first 10 MB, and of the rest


def _encode_held(folder: Path, corpus: Path) -> Seconds:
    batches = [[orjson.loads(line)["text"] for line in lines] for lines in _windows(corpus)]
    fast = ReferencedTokenizer(define_json_file(folder / "tokenizer.json"))
    fast.encode_batch(["warm"])
    return _timed(map(fast.encode_batch, batches))


def _windows(corpus: Path) -> Iterator[list[bytes]]:
    held: list[bytes] = []
    size = 0
    with corpus.open("rb") as file:
        for line in file:
            held.append(line)
            size += len(line)
            if size >= WINDOW_BYTES:
                yield held
                held, size = [], 0
    yield held


def _encode_read(folder: Path, corpus: Path) -> Seconds:
    fast = ReferencedTokenizer(define_json_file(folder / "tokenizer.json"))
    fast.encode_batch(["warm"])
    source = open_source(corpus)
    source.fingerprint()  # a build needs it before it reads

    def steps() -> Iterator[object]:
        for part in source.ranges(8 << 20):
            for columns in source.columns(part) or ():
                yield fast.encode_utf8(columns.texts)

    return _timed(steps())


def _timed(steps: Iterable[object]) -> Seconds:
    """Run the steps, each of WINDOW_BYTES; return the seconds until FIRST_BYTES, and after."""
    begin = first = process_time()
    for number, _ in enumerate(steps, start=1):
        if number == round(FIRST_BYTES / WINDOW_BYTES):
            first = process_time()
    return first - begin, process_time() - first


if __name__ == "__main__":
    print(json.dumps([asdict(row) for row in _measure_here()]))
