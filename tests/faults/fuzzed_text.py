"""Tokenizers, files of text and chats, to be damaged."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import zstandard
from hypothesis import strategies as st
from tests.faults.damaging import JSON, damaged_bytes, damaged_json, damaged_json_bytes
from tests.faults.fuzzed import BYTES, Maker, Strategy, Target, file_target
from tests.stream.making import texts_of

from tokenreel import load_tokenizer
from tokenreel.text.chats import CHATML, read_chat, render
from tokenreel.text.sources.open import open_source


def tokenizer_target(path: Path, damage: Callable[[bytes], Strategy]) -> Target:
    def use() -> None:
        tokenizer = load_tokenizer(path, engine="reference")
        tokenizer.decode(tokenizer.encode("so it goes </s>, ß字"))

    return file_target(path, use, damage)


def tokenizer_json(folder: Path) -> Target:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    merges = [("s", "o"), ("i", "t"), ("g", "o")]
    pieces = ["<unk>", *"soitgeß ,", *(left + right for left, right in merges)]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    made = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace()])
    made.decoder = decoders.Fuse()
    made.add_special_tokens(["</s>"])
    made.save(str(folder / "tokenizer.json"))
    return tokenizer_target(folder / "tokenizer.json", damaged_json_bytes)


def sentencepiece_model(folder: Path) -> Target:
    import sentencepiece

    (folder / "corpus.txt").write_text("so it goes and the reel turns\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"),
        model_prefix=str(folder / "a"),
        vocab_size=40,
        model_type="bpe",
        minloglevel=3,
    )
    return tokenizer_target(folder / "a.model", damaged_bytes)


def tiktoken_ranks(folder: Path) -> Target:
    put_ranks(folder)
    return tokenizer_target(folder / "a.tiktoken", damaged_bytes)


def tiktoken_sidecar(folder: Path) -> Target:
    put_ranks(folder)
    tokenizer = tokenizer_target(folder / "a.tiktoken", st.just)
    whole = (folder / "a.tiktoken").read_bytes()
    return file_target(folder / "a.json", lambda: tokenizer.use(whole), damaged_json_bytes)


def put_ranks(folder: Path) -> None:
    tokens = [*(bytes((byte,)) for byte in range(256)), b"so", b"it"]
    lines = [b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens)]
    (folder / "a.tiktoken").write_bytes(b"".join(lines))
    facts = {"pat_str": r"\w+|\W", "special_tokens": {"</s>": 300}}
    (folder / "a.json").write_text(json.dumps(facts))


def tekken_json(folder: Path) -> Target:
    vocab = [
        {"rank": n, "token_bytes": base64.b64encode(bytes((n,))).decode(), "token_str": None}
        for n in range(256)
    ]
    sizes = {"default_vocab_size": 276, "default_num_special_tokens": 20}
    config = {"pattern": r"\w+|\W", **sizes, "version": "v3"}
    (folder / "tekken.json").write_text(json.dumps({"config": config, "vocab": vocab}))
    return tokenizer_target(folder / "tekken.json", damaged_json_bytes)


LINES = "".join(
    json.dumps({"text": text, "id": number}) + "\n" for number, text in enumerate(texts_of(9))
).encode()


def source_target(path: Path) -> Target:
    def use() -> None:
        for on_bad in ("skip", "error"):
            source = open_source(str(path), on_bad=on_bad)
            for part in source.ranges(200):
                for record in source.read(part):
                    _ = record.text

    return file_target(path, use)


def jsonl(folder: Path) -> Target:
    (folder / "a.jsonl").write_bytes(LINES)
    return source_target(folder / "a.jsonl")


def jsonl_gzip(folder: Path) -> Target:
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(LINES))
    return source_target(folder / "a.jsonl.gz")


def jsonl_zstd(folder: Path) -> Target:
    (folder / "a.jsonl.zst").write_bytes(zstandard.compress(LINES))
    return source_target(folder / "a.jsonl.zst")


def parquet(folder: Path) -> Target:
    pyarrow: Any = import_module("pyarrow")
    files: Any = import_module("pyarrow.parquet")

    table = pyarrow.table({"text": texts_of(9), "id": list(range(9))})
    files.write_table(table, folder / "a.parquet")
    return source_target(folder / "a.parquet")


CHATS: list[dict[str, Any]] = [
    {
        "messages": [
            {"role": "system", "content": "Be brief.", "name": "s"},
            {"role": "user", "content": [{"type": "text", "text": "2+2?"}]},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"function": {"name": "add", "arguments": '{"a": 2}'}}],
                "weight": 0.5,
            },
            {"role": "tool", "content": "4", "train": False},
        ],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {}}}],
    },
    {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]},
    {"instruction": "add", "input": "2 2", "output": "4"},
    {"prompt": [{"role": "user", "content": "hi"}], "completion": "ho"},
]


def chat_records(folder: Path) -> Target:
    def use(record: object) -> None:
        render([read_chat(record)], CHATML, tokenizer=BYTES)

    return Target(inputs=st.one_of(JSON, *map(damaged_json, CHATS)), use=use)


PARSERS: tuple[Maker, ...] = (
    tokenizer_json,
    sentencepiece_model,
    tiktoken_ranks,
    tiktoken_sidecar,
    tekken_json,
    jsonl,
    jsonl_gzip,
    jsonl_zstd,
    parquet,
    chat_records,
)
