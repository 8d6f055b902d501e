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

# The shape of templates for models that reason and call tools.
TOOLS = """{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n' }}
    {%- for tool in tools %}{{- tool | tojson }}{{- '\\n' }}{%- endfor %}{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if reasoning %}{{- '<think>\\n' + reasoning + '\\n</think>\\n\\n' }}{% endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>' }}{% endgeneration %}{{- '\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}"""
# As Qwen3's: it first looks for the last question, so every answer is rendered by itself.
AHEAD = (
    "{%- set ns = namespace(last=messages | length) %}{%- for message in messages[::-1] %}"
    "{%- if message.role == 'user' %}{%- set ns.last = loop.revindex %}{% break %}{% endif %}"
    "{%- endfor %}" + TOOLS
)
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a page up.",
        "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}},
    },
}
Messages = list[dict[str, Any]]


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
    """Render by a template of Jinja, the one that transformers has, chats of several shapes."""
    short = list(chats(2000))
    usual = _joined(list(chats(6000)), 10)
    talking = [_rounds(usual, 3), _rounds(usual, 8)]
    calling = [[_with_call(*record) for record in enumerate(kind)] for kind in (short, usual[:200])]
    return [
        _jinja_row(path, "short chats", TEMPLATE, short),
        _jinja_row(path, "usual chats", TEMPLATE, usual[:200], target=5),
        _jinja_row(path, "6 short messages", TEMPLATE, _rounds(short, 3)),
        _jinja_row(path, "6 messages", TEMPLATE, talking[0], target=5),
        _jinja_row(path, "16 short messages", TEMPLATE, _rounds(short, 8)),
        _jinja_row(path, "16 messages", TEMPLATE, talking[1], target=5),
        _jinja_row(path, "short chats with tools and reasoning", TOOLS, calling[0], tools=[TOOL]),
        _jinja_row(path, "tools and reasoning", TOOLS, calling[1], tools=[TOOL], target=5),
        _jinja_row(path, "tools, a template that looks ahead", AHEAD, calling[1], tools=[TOOL]),
    ]


def _jinja_row(
    path: Path,
    kind: str,
    text: str,
    records: list[Messages],
    *,
    tools: list[Any] | None = None,
    target: float | None = None,
) -> Row:
    """Measure chats of one kind; those without a target say what they cost and no more."""
    fast, peer, own = load_tokenizer(path), _peer(path), model_template(text)
    peer.chat_template = text
    given = {} if tools is None else {"tools": tools}
    talks = [read_chat({"messages": messages, **given}) for messages in records]
    seconds = best_seconds(
        {
            "own": functools.partial(render, talks, own, tokenizer=fast),
            "peer": functools.partial(
                peer.apply_chat_template,
                records,
                tools=tools,
                return_assistant_tokens_mask=True,
                return_dict=True,
                tokenize=True,
            ),
        },
        rounds=5,
        clock=process_time,
    )
    size = sum(len(m["content"]) for messages in records for m in messages)
    about = f"Jinja, {kind} ({size // len(records):,} characters each)"
    speed = size / MEGABYTE / seconds["own"]
    ratio = seconds["peer"] / seconds["own"]
    if target is None:
        return Row(name=about, value=speed, unit="MB/s", ratio=ratio)
    return at_least(about, speed, "MB/s", baseline=speed / ratio, target=target)


def _rounds(records: list[Messages], number: int) -> list[Messages]:
    """Return chats of several rounds, each a chat of the records."""
    starts = range(0, len(records) - number + 1, number)
    return [[m for record in records[start : start + number] for m in record] for start in starts]


def _with_call(number: int, messages: Messages) -> Messages:
    """Return a chat in which a tool is called, and both answers are thought about first."""
    *asked, answer = messages
    function = {"name": "look_up", "arguments": {"page": number, "lines": 2}}
    call = {"type": "function", "function": function}
    thought = f"They ask for this: {asked[-1]['content']}"
    return [
        *asked,
        {"role": "assistant", "content": "", "reasoning_content": "Look.", "tool_calls": [call]},
        {"role": "tool", "content": f"Page {number}: {asked[-1]['content']}"},
        {**answer, "reasoning_content": thought},
    ]


def _joined(records: list[Messages], number: int) -> list[Messages]:
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
