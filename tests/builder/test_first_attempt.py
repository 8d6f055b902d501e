"""A first attempt that fails leaves nothing behind, and nothing that stands in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import chats, documents, tree, write_jsonl

from tokenreel.builder.build import build
from tokenreel.errors import ConfigError, EmptyError, InputError, SettingsError, TokenreelError
from tokenreel.text.tokenizers import byte_tokenizer

SMALL: dict[str, Any] = {"chunk_bytes": 2000, "shard_size": 4096, "tokenizer": "byte"}
TOOL = {"messages": [{"role": "narrator", "content": "It was a dark and stormy night."}]}


class StopError(Exception):
    """Ends a build in the middle."""


def stop(account: Any) -> None:
    raise StopError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "d.jsonl", documents(100))


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (documents(9), {"text_key": "body"}, r"missing key.*'body'"),
        (documents(9), {"tokenizer": "nope.json"}, "no tokenizer 'nope.json'"),
        (documents(9), {"end_token": "<nope>"}, "no such end token"),
        (documents(9), {"chat": True, "text_key": "text"}, "'text' is no chat.*leave out"),
        (documents(9), {"chat": True}, "no known shape of chat"),
        (documents(9), {"max_retries": 2}, "max_retries does not apply to this source"),
        (documents(9), {"shard_size": 0}, "bad shard_size"),
        (documents(9), {"template": "chatml"}, "template does not apply to documents; pass chat=T"),
        (chats(9), {"chat": True, "template": "llama3"}, "no control token"),
        (chats(9), {"chat": True, "template": "nope"}, "no template 'nope'"),
        (chats(9), {"chat": True, "policy": {"tool": 1.0}}, "trains tool results"),
        (chats(9), {"chat": True, "tokenizer": byte_tokenizer(["<a>"])}, "no built-in chat templ"),
        ([TOOL, *chats(9)], {"chat": True}, "no known role"),
        (["no object", *documents(9)], {}, "not an object"),
    ],
)
def test_what_is_wrong_is_found_before_the_folder_is_made(
    rows: list[Any], settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", rows)
    impossible = source / "s"  # whoever made this folder would fail, and say something else
    with pytest.raises(TokenreelError, match=message):
        build([source], out=impossible, **{**SMALL, **settings})


def test_the_folder_of_that_test_cannot_be_made(source: Path) -> None:
    with pytest.raises(ConfigError, match="the target lies in a file"):
        build([source], out=source / "s", **SMALL)


def test_a_record_that_may_be_skipped_ends_no_build_before_it_begins(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "c.jsonl", [TOOL, *chats(9)])
    built = build([source], out=tmp_path / "s", chat=True, on_bad="skip", **SMALL)
    assert built.report["skipped"] == {"chat: no known role": 1}


def some(*rows: Any) -> Iterator[Any]:
    yield from rows


@pytest.mark.parametrize("is_there", [False, True])
def test_an_error_in_the_first_chunk_of_an_iterator_leaves_no_folder(
    is_there: bool, tmp_path: Path
) -> None:
    out = tmp_path / "s"
    if is_there:
        out.mkdir()  # by somebody else, who keeps it
    with pytest.raises(InputError):
        build(texts=some("one", 7), out=out, **SMALL)
    assert out.exists() == is_there and not list(tmp_path.glob("s/*"))
    assert build(texts=some("one", "two"), out=out, **SMALL).store.num_documents == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failed_replacement_leaves_the_store_as_it_was(workers: int, tmp_path: Path) -> None:
    good = write_jsonl(tmp_path / "good.jsonl", documents(30))
    bad = write_jsonl(tmp_path / "bad.jsonl", [{"text": "one"}, {"txt": "two"}])
    build([good], out=tmp_path / "s", **SMALL)
    before = tree(tmp_path / "s")
    with pytest.raises(InputError):
        build([bad], out=tmp_path / "s", replace=True, workers=workers, **SMALL)
    assert tree(tmp_path / "s") == before


def test_a_build_that_comes_to_nothing_leaves_no_folder(source: Path, tmp_path: Path) -> None:
    with pytest.raises(EmptyError, match="skipped: missing key 100"):
        build([source], out=tmp_path / "s", text_key="body", on_bad="skip", **SMALL)
    assert not (tmp_path / "s").exists()
    assert not build([source], out=tmp_path / "s", **SMALL).already_built


# A real process that kills itself in front of its first chunk: nothing can be tidied up.
KILLED = """
import os, signal, sys
from tokenreel.builder.spill import Spill
from tokenreel.builder.build import build
Spill.create = lambda self, number: os.kill(os.getpid(), signal.SIGKILL)
build([sys.argv[1]], out=sys.argv[2], tokenizer="byte")
"""


def test_an_unfinished_build_without_a_finished_chunk_stands_in_nobodys_way(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "s"
    killed = subprocess.run([sys.executable, "-c", KILLED, source, out], env=os.environ)
    assert killed.returncode == -signal.SIGKILL
    assert (out / ".build" / "plan.json").exists()
    build([source], out=out, seed=7, val_frac=0.5, **SMALL)
    build([source], out=tmp_path / "t", seed=7, val_frac=0.5, **SMALL)
    assert tree(out) == tree(tmp_path / "t")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"text_key": "id"}, 'text_key: "text" → "id"'),
        ({"tokenizer": byte_tokenizer(["<|endoftext|>", "<a>"])}, 'tokenizer: "byte" → "Refer'),
        ({"val_frac": 0.5, "seed": 1}, "seed: 42 → 1, val_frac: 0.0 → 0.5"),
        ({"deduplicate": True}, "deduplicate: no → yes"),
        ({"train_tokens": 5}, "train_tokens: none → 5"),
    ],
)
def test_other_settings_than_those_of_an_unfinished_build_are_told_in_words(
    settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    rows = [{**row, "id": f"document {n}"} for n, row in enumerate(documents(100))]
    source = write_jsonl(tmp_path / "d.jsonl", rows)
    with pytest.raises(StopError):
        build([source], out=tmp_path / "s", watch=stop, **SMALL)
    before = tree(tmp_path / "s")
    with pytest.raises(SettingsError) as caught:
        build([source], out=tmp_path / "s", **{**SMALL, **settings})
    assert f"an unfinished build of other settings is here: {told}" in str(caught.value)
    assert "pass restart=True to begin anew" in str(caught.value)
    assert tree(tmp_path / "s") == before


def test_the_files_that_changed_are_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b", "c"):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", documents(40))
    with pytest.raises(StopError):
        build(tmp_path / "in", out=tmp_path / "s", watch=stop, **SMALL)
    write_jsonl(tmp_path / "in" / "b.jsonl", documents(41))
    (tmp_path / "in" / "c.jsonl").rename(tmp_path / "in" / "d.jsonl")
    with pytest.raises(SettingsError) as caught:
        build(tmp_path / "in", out=tmp_path / "s", **SMALL)
    told = "sources: b.jsonl changed, c.jsonl is gone, d.jsonl is new"
    assert f"is here: {told}; " in str(caught.value)


def test_a_source_by_another_path_is_the_same_source(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StopError):
        build([source], out=tmp_path / "s", watch=stop, **SMALL)
    monkeypatch.chdir(source.parent)
    with pytest.raises(SettingsError, match="is here: seed: 42 → 1; "):
        build(source.name, out=tmp_path / "s", seed=1, **SMALL)
    assert build(source.name, out=tmp_path / "s", **SMALL).store.num_documents


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"val_frak": 0.1}, "build() has no keyword 'val_frak'; did you mean 'val_frac'?"),
        ({"source_options": {}}, "build() has no keyword 'source_options'"),
        ({"shuffle": "globl"}, "(expected 'none', 'buffer' or 'global', got"),
        ({"policy": "al"}, "got 'al'); did you mean 'all'?"),
        ({"workers": "2"}, "bad workers (expected a whole number, got '2')"),
        ({"seed": 1.5}, "bad seed (expected a whole number, got 1.5)"),
        ({"deduplicate": 1}, "bad deduplicate (expected True or False, got 1)"),
        ({"text_key": True}, "bad text_key (expected a string or None, got True)"),
    ],
)
def test_a_keyword_or_a_value_that_build_does_not_take_is_an_error_with_the_nearest(
    wrong: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        build(texts=["one"], out=tmp_path / "s", tokenizer="byte", **wrong)
    assert message in str(caught.value)
    assert isinstance(caught.value, TypeError) == ("has no keyword" in message)
    assert not (tmp_path / "s").exists()
