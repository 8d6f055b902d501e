"""What is built is said by its type or its keyword; nothing guesses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import second_thread

from tokenreel import build
from tokenreel.errors import ConfigError, EmptyError, ExistsError, InputError
from tokenreel.text.sources.table import BLOCK_ROWS

TEXTS = [f"Text {n}: " + "word " * (n % 5) for n in range(BLOCK_ROWS + 60)]


def pandas_frame(column: str) -> Any:
    import pandas  # type: ignore[import-untyped]

    return pandas.DataFrame({"n": range(len(TEXTS)), column: TEXTS}, index=range(5, len(TEXTS) + 5))


def arrow_table(column: str) -> Any:
    import pyarrow  # type: ignore[import-untyped]

    return pyarrow.table({"n": list(range(len(TEXTS))), column: TEXTS})


def batch_reader(column: str) -> Any:
    """Batches that can be read a single time."""
    return arrow_table(column).to_reader(max_chunksize=100)


def dataset(column: str) -> Any:
    from datasets import Dataset  # type: ignore[import-untyped]

    return Dataset.from_dict({"n": list(range(len(TEXTS))), column: TEXTS})


def filtered_dataset(column: str) -> Any:
    """Rows of a view of a larger table, in the order of the view."""
    from datasets import Dataset

    backward = {"n": list(range(2 * len(TEXTS))), column: ["no"] * len(TEXTS) + TEXTS[::-1]}
    view = Dataset.from_dict(backward)
    return view.select(range(2 * len(TEXTS) - 1, len(TEXTS) - 1, -1))


def streamed_dataset(column: str) -> Any:
    return dataset(column).to_iterable_dataset()


def records(column: str) -> list[dict[str, Any]]:
    return [{"n": n, column: text} for n, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    path = tmp_path_factory.mktemp("expected") / "s"
    return documents(build(texts=TEXTS, out=path, tokenizer="byte").store)


def documents(store: Any) -> list[list[int]]:
    return [document.tokens.tolist() for document in store["train"].documents()]


@pytest.mark.parametrize(
    "make",
    [
        pandas_frame,
        arrow_table,
        batch_reader,
        dataset,
        filtered_dataset,
        streamed_dataset,
        records,
    ],
)
@pytest.mark.parametrize("column", ["text", "body"])
def test_tables_datasets_and_records_are_read_row_by_row(
    make: Callable[[str], Any], column: str, tmp_path: Path, expected: list[list[int]]
) -> None:
    built = build(make(column), out=tmp_path / "s", tokenizer="byte", text_key=column)
    assert documents(built.store) == expected


@pytest.mark.parametrize("make", [pandas_frame, filtered_dataset])
def test_tables_and_datasets_are_sent_to_spawned_workers(
    make: Callable[[str], Any], tmp_path: Path, expected: list[list[int]]
) -> None:
    with second_thread():  # no fork
        built = build(make("text"), out=tmp_path / "s", tokenizer="byte", workers=2)
    assert documents(built.store) == expected


def test_a_reader_of_batches_that_is_used_up_is_named(tmp_path: Path) -> None:
    reader = batch_reader("text")
    build(reader, out=tmp_path / "s", tokenizer="byte")
    with pytest.raises(EmptyError, match=r"no rows.*can be read once: make a new one"):
        build(reader, out=tmp_path / "t", tokenizer="byte")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("make", [pandas_frame, arrow_table, batch_reader])
def test_a_table_given_as_texts_or_chats_is_refused_with_the_way_to_give_it(
    make: Callable[[str], Any], tmp_path: Path
) -> None:
    table = make("text")
    for name, how in (("texts", "text_key=…"), ("chats", "chat=True")):
        with pytest.raises(ConfigError) as caught:
            build(out=tmp_path / "s", tokenizer="byte", **{name: table})
        said = str(caught.value)
        assert f"a table is not an iterable of {name}" in said and type(table).__name__ in said
        assert said.endswith(f"pass the table as the first argument, with {how}")
        assert "word" not in said and "\n" not in said, "the content of the table"


def test_texts_and_chats_are_recorded_by_their_number_never_by_their_content(
    tmp_path: Path,
) -> None:
    secret = ["a secret", "another secret", "/etc/secret"]
    turns = [{"role": "user", "content": "secret?"}, {"role": "assistant", "content": "secret"}]
    cases: list[tuple[str, Any, str]] = [
        ("texts", secret, "a list of 3 texts in memory"),
        ("texts", tuple(secret), "a tuple of 3 texts in memory"),
        ("texts", iter(secret), "a list_iterator of texts in memory"),
        ("chats", [turns], "a list of 1 chat in memory"),
    ]
    for number, (name, held, described) in enumerate(cases):
        out = tmp_path / str(number)
        built = build(out=out, tokenizer="byte", **{name: held})
        assert built.report["settings"][name] == described
        assert "secret" not in (out / "manifest.json").read_text()
    again = build(texts=tuple(secret), out=tmp_path / "0", tokenizer="byte")
    assert again.already_built, "a tuple of the same texts"
    for other, told in (
        ([*secret[:2], "a third secret"], "texts: what they hold has changed"),
        (secret[:2], 'texts: "a list of 3 texts in memory" → "a list of 2 texts in memory"'),
    ):
        with pytest.raises(ExistsError) as caught:
            build(texts=other, out=tmp_path / "0", tokenizer="byte")
        assert f"is here: {told}; " in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["texts", "chats"])
@pytest.mark.parametrize("nothing", [[], ()])
def test_no_texts_and_no_chats_are_an_error_before_anything_is_written(
    name: str, nothing: Any, tmp_path: Path
) -> None:
    with pytest.raises(EmptyError, match=f"there are no {name} to build a store of"):
        build(out=tmp_path / "s", tokenizer="byte", **{name: nothing})
    with pytest.raises(EmptyError, match="no rows"):
        build(arrow_table("text")[:0], out=tmp_path / "s", tokenizer="byte")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(("item", "actual"), [(None, "None"), (1, "int"), (b"text", "bytes")])
def test_a_text_is_a_string(item: Any, actual: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf":2: not a text \(expected a string.*got {actual}\)"):
        build(texts=["fine", item], out=tmp_path / "s", tokenizer="byte")
    with pytest.raises(InputError, match=r"not a chat \(expected a list of messages"):
        build(chats=[item], out=tmp_path / "s", tokenizer="byte")


def test_chats_that_are_said_to_be_none_are_refused(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "Yes."}]
    with pytest.raises(ConfigError, match=r"chats=… and chat=False exclude each other"):
        build(chats=[turns], chat=False, out=tmp_path / "s", tokenizer="byte")


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing key.*expected 'text'.*'n', 'body'"):
        build(pandas_frame("body"), out=tmp_path / "s", tokenizer="byte")


def test_other_things_of_these_libraries_are_refused(tmp_path: Path) -> None:
    import pandas
    from datasets import DatasetDict

    for wrong in (pandas.Series(TEXTS), DatasetDict({"train": dataset("text")})):
        with pytest.raises(ConfigError, match="documents cannot be read from this"):
            build(wrong, out=tmp_path / "s", tokenizer="byte")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("texts", [["some text", "other text"], ["x" * 5000], ["nul\0"]])
def test_strings_that_name_no_file_are_refused_with_the_way_to_give_texts(
    texts: list[str], tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="texts in memory are given as texts="):
        build(texts, out=tmp_path / "s", tokenizer="byte")
    with pytest.raises(FileNotFoundError, match="texts in memory are given as texts="):
        build(texts[0], out=tmp_path / "s", tokenizer="byte")


def some() -> Iterator[str]:
    yield from ("one", "two")


@pytest.mark.parametrize("sources", [some(), {"text": "one"}, {"one", "two"}, 7, [["one"], 3]])
def test_what_does_not_say_what_it_is_is_refused(sources: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it cannot be told.*texts=…, chats as chats=…"):
        build(sources, out=tmp_path / "s", tokenizer="byte")


@pytest.mark.parametrize("held", ["one text", b"bytes", {"a": "b"}, 7])
def test_texts_and_chats_are_iterables_of_them(held: Any, tmp_path: Path) -> None:
    for name in ("texts", "chats"):
        with pytest.raises(ConfigError, match=f"bad {name}"):
            build(out=tmp_path / "s", tokenizer="byte", **{name: held})


def test_a_build_has_one_kind_of_input(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one kind of input.*got none"):
        build(out=tmp_path / "s", tokenizer="byte")
    with pytest.raises(ConfigError, match=r"one kind of input.*got sources and texts"):
        build("a.jsonl", texts=["a"], out=tmp_path / "s", tokenizer="byte")


def test_chats_in_memory_are_chats(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "Yes."}]
    for number, chats in enumerate(([turns], iter([{"messages": turns}]))):
        store = build(chats=chats, out=tmp_path / str(number), tokenizer="byte").store
        assert store["train"].document(0).loss_weights.sum() > 0
