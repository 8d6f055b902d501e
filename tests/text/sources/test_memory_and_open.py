"""In-memory iterables, and the one door to all sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenreel.errors import ConfigError, InputError
from tokenreel.text.sources import InMemory, ReadOptions, Record, open_source

Reading = Callable[..., list[Record]]

SKIPPING = ReadOptions(on_bad="skip")


class Recipes:
    """An iterable that can be read again, without a length."""

    def __iter__(self) -> Iterator[str]:
        return iter(["bread", "soup", "cake"])


def test_strings_mappings_and_messages_become_records(read_all: Reading) -> None:
    messages = [{"role": "user", "content": "hi"}]
    records = read_all(InMemory(["one", {"text": "two", "id": 3}, messages]))
    assert [record.text for record in records] == ["one", "two", None]
    assert records[2].value == {"messages": messages}
    assert [record.provenance.row for record in records] == [0, 1, 2]


def test_a_list_of_chats_is_documents_and_a_list_of_strings_is_paths(read_all: Reading) -> None:
    chats = [[{"role": "user", "content": "hi"}], [{"role": "user", "content": "ho"}]]
    assert [record.value for record in read_all(open_source(chats))] == [
        {"messages": chat} for chat in chats
    ]
    with pytest.raises(InputError, match=r"texts in memory are given as texts="):
        open_source(["a document", "another"])


def test_sequences_divide_equally_well_and_resume_everywhere(
    read_all: Reading, assert_resumes_everywhere: Callable[..., None]
) -> None:
    source = InMemory([f"text {n}" for n in range(20)])
    assert len(source.ranges(1)) == 20
    assert read_all(source, 1) == read_all(source, 30) == read_all(source)
    assert_resumes_everywhere(source, 30)
    assert_resumes_everywhere(InMemory(Recipes()))


def test_an_iterator_is_read_once_and_says_so(read_all: Reading) -> None:
    source = open_source(text for text in ["a", "b"])
    assert [record.text for record in read_all(source)] == ["a", "b"]
    with pytest.raises(InputError, match="only once"):
        read_all(source)


def test_an_iterator_is_not_held_in_memory() -> None:
    numbers = iter(range(1000))
    source = InMemory(str(number) for number in numbers)
    reader = source.read(source.ranges(1)[0])
    assert next(reader).text == "0" and next(numbers) == 1


def test_bad_strings_are_refused_like_those_of_files(read_all: Reading) -> None:
    with pytest.raises(InputError, match=r"\(memory\):2: lone surrogate \(got '\\ud800'"):
        read_all(InMemory(["fine", "\ud800"]))
    with pytest.raises(InputError, match=r"\(memory\):1: lone surrogate"):
        read_all(InMemory([[{"role": "user", "content": "a\udc00"}]]))


def test_several_kinds_of_sources_are_one(tmp_path: Path, read_all: Reading) -> None:
    (tmp_path / "a.txt").write_text("file")
    source = open_source([InMemory(["memory"]), tmp_path / "a.txt", InMemory(["more", "again"])])
    assert [record.text for record in read_all(source, 1)] == ["memory", "file", "more", "again"]
    assert len(source.ranges(1)) == 4


def test_each_of_several_sources_keeps_its_own_policy(read_all: Reading) -> None:
    bad = "\ud800"
    strict, lenient = InMemory(["fine", bad]), InMemory([bad, "fine"], options=SKIPPING)
    source = open_source([lenient, strict])
    with pytest.raises(InputError, match="lone surrogate"):
        read_all(source)
    assert [record.text for record in source.read(source.ranges(1 << 40)[0])] == ["fine"]


def test_an_unknown_setting_suggests_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ConfigError, match=r"text_keys does not apply.*did you mean 'text_key'\?"):
        open_source(tmp_path / "a.txt", text_keys="body")
    with pytest.raises(ConfigError, match="max_retries does not apply to this source"):
        open_source("roam", path=str(tmp_path), max_retries=3)
    with pytest.raises(ConfigError, match="split does not apply to this source"):
        open_source(tmp_path / "a.txt", split="train")


@pytest.mark.parametrize(
    "settings", [{"on_bad": "ignore"}, {"max_record_bytes": 0}, {"max_ratio": -1}]
)
def test_a_setting_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        open_source(iter([]), **settings)


def test_a_name_that_is_also_a_path_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wikitext").mkdir()
    with pytest.raises(ConfigError, match=r'write "\./wikitext" for the path'):
        open_source("wikitext")


def test_nothing_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="no sources"):
        open_source([])
    with pytest.raises(ConfigError, match="not a dataset of the hub"):
        open_source("hf:no slash here")


def test_what_a_folder_search_leaves_out_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a.txt", "b.md", "d.csv", "E.CSV", "g.json", "LICENSE", ".hidden.csv"):
        (tmp_path / name).write_text("text")
    source = open_source(tmp_path)
    assert len(list(source.ranges(100))) == 1
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{tmp_path.name}: 4 files were left out (2 .csv, 1 .json, 1 without an ending); "
        'a glob with kind="text" or "jsonl" reads them'
    )
    caplog.clear()
    open_source(tmp_path / "a.txt")
    assert not caplog.records
