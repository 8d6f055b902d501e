"""A build of chats reads the field that text_key names, whatever the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import write_jsonl

from tokenreel import build
from tokenreel.errors import ExistsError, InputError

CONVERSATIONS = [
    [{"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"}]
    for n in range(3)
]


def frame(rows: list[dict[str, Any]], folder: Path) -> Any:
    import pandas  # type: ignore[import-untyped]

    return pandas.DataFrame(rows)


def records(rows: list[dict[str, Any]], folder: Path) -> Any:
    return rows


def jsonl(rows: list[dict[str, Any]], folder: Path) -> Any:
    return write_jsonl(folder / "chats.jsonl", rows)


def parquet(rows: list[dict[str, Any]], folder: Path) -> Any:
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "chats.parquet")
    return folder / "chats.parquet"


def whole(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"id": row["id"], "messages": row["conv"], "system": row["system"]} for row in rows]


FORMS: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "a list of messages": lambda messages: messages,
    "the JSON of a list": json.dumps,
    "an object": lambda messages: {"messages": messages},
    "the JSON of an object": lambda messages: json.dumps({"messages": messages}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("make", [frame, records, jsonl, parquet])
def test_the_field_that_text_key_names_holds_the_chat(
    make: Callable[..., Any], form: str, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = [
        {"id": f"c{n}", "text": "not it", "system": "be brief", "conv": conversation}
        for n, conversation in enumerate(CONVERSATIONS)
    ]
    chats = [{**row, "conv": FORMS[form](row["conv"])} for row in rows]
    given: dict[str, Any] = {"tokenizer": "byte", "workers": 1}
    source = make(chats, tmp_path)
    built = build(source, out=tmp_path / "s", chat=True, text_key="conv", **given)
    expected = build(chats=whole(rows), out=tmp_path / "t", **given)
    ours, theirs = (list(b.store["train"].documents()) for b in (built, expected))
    assert [d.tokens.tolist() for d in ours] == [d.tokens.tolist() for d in theirs]
    assert [d.provenance.id for d in ours if d.provenance] == ["c0", "c1", "c2"]
    assert built.report["settings"]["text_key"] == "conv"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"chat": []}, r":1: no field 'conv'.*got the fields 'chat'.*text_key"),
        ({"conv": "hello"}, r":1: 'conv' is no chat.*list of messages.*got 'hello'.*text_key"),
        ({"conv": '{"a": 1, "a": 2}'}, r"no JSON: an object has the same key twice"),
        ({"conv": 7}, r":1: 'conv' is no chat.*got int"),
        ({"conv": None}, r":1: 'conv' is no chat.*got null"),
        ({"conv": [7]}, r":1: message 1, .*not a message"),
    ],
)
def test_a_field_that_holds_no_chat_is_refused_or_skipped_and_counted(
    record: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", [record, {"conv": CONVERSATIONS[0]}])
    given: dict[str, Any] = {"tokenizer": "byte", "workers": 1, "chat": True, "text_key": "conv"}
    with pytest.raises(InputError, match=message):
        build(path, out=tmp_path / "s", **given)
    built = build(path, out=tmp_path / "s", on_bad="skip", **given)
    assert built.store.num_documents == 1 and sum(built.report["skipped"].values()) == 1


def test_a_chat_in_no_known_field_is_told_of_text_key(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "c.jsonl", [{"conv": CONVERSATIONS[0]}])
    with pytest.raises(InputError, match=r"no known shape of chat.*got conv\).*text_key"):
        build(path, out=tmp_path / "s", tokenizer="byte", chat=True)


def test_another_field_of_chats_is_another_setting(tmp_path: Path) -> None:
    row = {"conv": CONVERSATIONS[0], "other": CONVERSATIONS[1]}
    path = write_jsonl(tmp_path / "c.jsonl", [row])
    build(path, out=tmp_path / "s", tokenizer="byte", chat=True, text_key="conv")
    with pytest.raises(ExistsError, match='text_key: "conv" → "other"'):
        build(path, out=tmp_path / "s", tokenizer="byte", chat=True, text_key="other")
