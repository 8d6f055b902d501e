"""Folders and globs: which files, in which order, under which names; one file, one document."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import ConfigError, InputError, NoInputError
from tokenreel.text.sources import Record, open_source
from tokenreel.text.sources.files import path_key
from tokenreel.text.sources.mixed_files import FileSource

Reading = Callable[..., list[Record]]


def fill(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    return folder


def names(records: list[Record]) -> list[str | None]:
    return [record.provenance.file for record in records]


def test_a_folder_is_searched_sorted_naturally_and_kept_byte_for_byte(
    tmp_path: Path, read_all: Reading
) -> None:
    files = {"a/note10.md": "ten\r\n", "a/note2.md": " two ", "b/x.py": "", ".git/config.txt": "no"}
    source = open_source(fill(tmp_path, {**files, "pic.png": "?"}))
    records = read_all(source)
    assert names(records) == ["a/note2.md", "a/note10.md", "b/x.py"]
    assert [record.text for record in records] == [" two ", "ten\r\n", ""]
    assert isinstance(source, FileSource) and source.ignored == ("pic.png",)


def test_records_are_equal_for_any_division_and_resume_everywhere(
    tmp_path: Path, read_all: Reading, assert_resumes_everywhere: Callable[..., None]
) -> None:
    source = open_source(fill(tmp_path, {f"{n}.txt": "x" * n for n in range(30)}))
    whole = read_all(source)
    assert len(whole) == 30 and len(source.ranges(50)) > 5
    for target_bytes in (1, 50, 200):
        assert read_all(source, target_bytes) == whole
    assert_resumes_everywhere(source, 100)


def test_kinds_may_be_mixed_in_a_list_which_keeps_its_order(
    tmp_path: Path, read_all: Reading
) -> None:
    fill(tmp_path, {"z.md": "first", "a/b.jsonl": '{"text": "second"}\n', "a/c.txt": "third"})
    specs = [tmp_path / "z.md", tmp_path / "a" / "b.jsonl", str(tmp_path / "a" / "*.txt")]
    records = read_all(open_source(specs))
    assert [record.text for record in records] == ["first", "second", "third"]
    assert names(records) == ["z.md", "a/b.jsonl", "a/c.txt"]


def test_a_glob_reaches_into_folders_and_finds_nothing_aloud(
    tmp_path: Path, read_all: Reading
) -> None:
    fill(tmp_path, {"a/1.md": "1", "a/b/2.md": "2", "a/b/3.txt": "3"})
    assert names(read_all(open_source(f"{tmp_path}/a/**/*.md"))) == ["1.md", "b/2.md"]
    with pytest.raises(InputError, match=r"no file matches; check the path; texts in memory"):
        open_source(f"{tmp_path}/*.nothing")


def test_a_folder_of_several_kinds_asks_which_is_meant(tmp_path: Path, read_all: Reading) -> None:
    fill(tmp_path, {"README.md": "about", "a.jsonl": '{"text": "x"}'})
    with pytest.raises(ConfigError, match=r"several kinds \(expected one kind, got jsonl, text\)"):
        open_source(tmp_path)
    assert names(read_all(open_source(tmp_path, kind="jsonl"))) == ["a.jsonl"]


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    fill(tmp_path, {"a.md": "x"})
    with pytest.raises(ConfigError, match="named twice"):
        open_source([tmp_path / "a.md", f"{tmp_path}/*.md"])


def test_a_name_that_tells_nothing_needs_a_kind(tmp_path: Path, read_all: Reading) -> None:
    fill(tmp_path, {"LICENSE": "free"})
    with pytest.raises(ConfigError, match="does not tell how to read"):
        open_source(tmp_path / "LICENSE")
    assert read_all(open_source(tmp_path / "LICENSE", kind="text"))[0].text == "free"


def test_a_file_over_the_limit_is_refused_unread(tmp_path: Path, read_all: Reading) -> None:
    fill(tmp_path, {"a.txt": "x" * 100})
    with pytest.raises(InputError, match=r"a\.txt: record over the limit \(expected at most 99 b"):
        read_all(open_source(tmp_path / "a.txt", max_record_bytes=99))
    assert read_all(open_source(tmp_path / "a.txt", max_record_bytes=100))


@given(st.lists(st.text("a1/0b2", max_size=6), unique=True, max_size=8), st.randoms())
def test_natural_order_is_total_whatever_the_order_before(found: list[str], chance: Random) -> None:
    ordered = sorted(found, key=path_key)
    chance.shuffle(found)
    assert sorted(found, key=path_key) == ordered


def test_natural_order_counts_numbers() -> None:
    assert sorted(["p10", "p9", "p010", "q1"], key=path_key) == ["p9", "p010", "p10", "q1"]


def special_files(folder: Path) -> dict[str, Path]:
    os.mkfifo(folder / "pipe.txt")
    # The path of a socket has a hundred bytes at most.
    with socket.socket(socket.AF_UNIX) as listening, tempfile.TemporaryDirectory() as short:
        listening.bind(f"{short}/s")
        Path(f"{short}/s").rename(folder / "socket.jsonl")
    return {
        "a pipe": folder / "pipe.txt",
        "a socket": folder / "socket.jsonl",
        "a device": Path("/dev/zero"),
    }


@pytest.mark.parametrize("kind", ["text", "jsonl", "parquet", None])
def test_a_pipe_a_socket_and_a_device_are_refused_at_once(tmp_path: Path, kind: str | None) -> None:
    for name, path in special_files(tmp_path).items():
        with pytest.raises(InputError) as caught:
            open_source(path, kind=kind)
        assert str(caught.value) == (
            f"{path}: not a file that can be read twice (expected a regular file, got {name}); "
            "write what it gives to a file, or pass it as texts=…"
        )


def test_a_folder_and_a_glob_pass_over_pipes(tmp_path: Path, read_all: Reading) -> None:
    special_files(tmp_path)
    fill(tmp_path, {"a.txt": "fine"})
    assert names(read_all(open_source(tmp_path))) == ["a.txt"]
    assert names(read_all(open_source(f"{tmp_path}/*.txt"))) == ["a.txt"]


@pytest.mark.parametrize("spec", ["a\0b.txt", "a\0*.txt", "\ud800.txt", "\ud800*.txt", "*\udcff["])
def test_what_can_be_no_path_is_no_file(tmp_path: Path, spec: str) -> None:
    with pytest.raises(NoInputError, match="no file matches"):
        open_source(f"{tmp_path}/{spec}")


def test_a_name_that_is_not_utf8_is_read_and_shown(tmp_path: Path, read_all: Reading) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    Path(path).write_text("fine")
    [record] = read_all(open_source(path))
    assert (record.text, record.provenance.file) == ("fine", r"caf\xe9.txt")
    (tmp_path / r"caf\xe9.txt").write_text("another")
    with pytest.raises(ConfigError, match=r"two files have the same name \(got caf"):
        open_source(tmp_path)
