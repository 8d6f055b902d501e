"""The real `datasets` client reads every named source from the stand-in of the hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Asking = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]

FINEWEB = "hf:HuggingFaceFW/fineweb-edu/CC-MAIN-2024-10"


def test_all_named_sources_of_the_hub_are_read(
    ask: Asking, hub: Any, content: dict[str, list[Any]]
) -> None:
    jobs: list[dict[str, Any]] = [
        {"spec": "fineweb-edu", "settings": {"buffer": 250}, "resume": [1, 249, 250, 777]},
        {"spec": "wikitext"},
        {"spec": "wikitext", "settings": {"split": "validation"}},
        {"spec": "dolly15k", "target_bytes": 100},
        {"spec": "oasst1"},
        {"spec": "oasst1", "settings": {"streaming": True, "split": "validation"}},
    ]
    fineweb, wiki, wiki_val, dolly, oasst, oasst_val = ask(jobs)

    texts = [record["text"] for record in fineweb["records"]]
    written = [row["text"] for row in content["fineweb"]]
    assert sorted(texts) == sorted(written) and texts != written
    assert sorted(texts[:250]) == sorted(written[:250])
    assert fineweb["resumed"] == [True] * 4
    assert fineweb["identity"]["source"] == {
        "kind": "hub",
        "id": "HuggingFaceFW/fineweb-edu",
        "config": "CC-MAIN-2024-10",
        "split": "train",
        "revision": hub.commit("HuggingFaceFW/fineweb-edu"),
        "text_key": "text",
        "id_key": "id",
    }

    assert [record["text"] for record in wiki["records"]] == [
        line + "train" * bool(line) for line in content["wikitext"]
    ]
    assert wiki_val["records"][1]["text"] == " = Title = \nvalidation"
    assert [record["value"] for record in dolly["records"]] == content["dolly"]
    assert [record["id"] for record in oasst["records"]] == [f"{n}-a" for n in range(5)]
    assert oasst["records"][3]["value"]["messages"] == [
        {"role": "user", "content": "T3-a"},
        {"role": "assistant", "content": "T3-c"},
    ]
    assert [r["value"] for r in oasst_val["records"]] == [r["value"] for r in oasst["records"]]


@pytest.mark.soak
def test_streamed_and_downloaded_give_equal_records_and_resume_anywhere(
    ask: Asking, content: dict[str, list[Any]]
) -> None:
    places = [1, 49, 50, 255, 256, 257, 300, 511, 512, 899]
    streamed, loaded = ask(
        [
            {"spec": FINEWEB, "resume": places},
            {"spec": FINEWEB, "settings": {"streaming": False}, "target_bytes": 20_000},
        ]
    )
    assert streamed["records"] == loaded["records"]
    assert [record["id"] for record in streamed["records"]] == [
        row["id"] for row in content["fineweb"]
    ]
    assert [record["row"] for record in streamed["records"]] == list(range(900))
    assert streamed["resumed"] == [True] * len(places)
    assert json.loads(json.dumps(streamed["cursors"][300]))["row"] == 301


def test_local_folders_are_read_by_the_same_client(ask: Asking, tmp_path: Path) -> None:
    chats = [{"messages": [{"role": "user", "content": f"hi {n}"}]} for n in range(8)]
    chats[3]["messages"].append({"role": "tool", "content": "7", "name": "add"})
    folder = tmp_path / "chats"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    jobs = [
        {"spec": f"hf:{folder}", "settings": {"text_key": None, "streaming": streaming}}
        for streaming in (True, False)
    ]
    for answer in ask(jobs):
        # Arrow gives every message every field; those that were not there stay away.
        assert [record["value"] for record in answer["records"]] == chats
        [[name, xxh3]] = answer["identity"]["files"]
        assert name == "train.jsonl" and len(xxh3) == 32
        assert answer["records"][2]["file"] == "chats:train"


def test_what_is_not_there_is_said(ask: Asking) -> None:
    nobody, missing, split = ask(
        [
            {"spec": "hf:nobody/nothing"},
            {"spec": "hf:nobody/nothing", "settings": {"revision": "0" * 40}},
            {"spec": "hf:databricks/databricks-dolly-15k:nosplit"},
        ]
    )
    assert nobody["error"].startswith("nobody/nothing: the dataset cannot be opened (404")
    assert missing["error"].startswith("nobody/nothing: the dataset cannot be opened (404")
    assert "check id, config, split and revision" in missing["error"]
    assert "nosplit" in split["error"]
