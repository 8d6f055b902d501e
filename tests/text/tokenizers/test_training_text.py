"""The text a tokenizer learns from: all of it, or a sample that is even, bounded and the same."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenreel.errors import InputError
from tokenreel.text.tokenizers import training_text
from tokenreel.text.tokenizers.training_text import LINE_CHARACTERS, Reading, read_sources


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 4 KB in place of 4 MB: the rules are the same, the files smaller."""
    monkeypatch.setattr(training_text, "PART_BYTES", 4096)
    monkeypatch.setattr(training_text, "SEARCH_BYTES", 256)


def write_documents(path: Path, count: int) -> Path:
    """Write JSONL whose lines of text say the file and their number."""
    rows = ({"text": f"{path.stem} {n:06d} {'x' * 60}\n"} for n in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_sample_is_taken_evenly_over_files_and_inside_of_them(tmp_path: Path) -> None:
    counts = {"a": 2000, "b": 500, "c": 4000}
    files = [write_documents(tmp_path / f"{name}.jsonl", count) for name, count in counts.items()]
    total = sum(file.stat().st_size for file in files)
    reading = Reading(sample_bytes=total // 10)
    text = read_sources(files, reading)
    assert text.is_sample and text.source_bytes == total
    assert text.num_bytes == sum(map(len, text.lines))
    assert total // 10 <= text.num_bytes < total // 10 + 100
    for name, count in counts.items():
        numbers = [int(line.split()[1]) for line in text.lines if line.startswith(name)]
        share = len(numbers) / count / (len(text.lines) / sum(counts.values()))
        assert 0.85 < share < 1.15
        thirds = [sum(count * k <= 3 * n < count * (k + 1) for n in numbers) for k in range(3)]
        assert max(thirds) < 1.5 * min(thirds)
    assert read_sources(files, reading).lines == text.lines  # the same every time


@pytest.mark.parametrize("suffix", ["jsonl", "txt"])
def test_where_there_is_no_more_than_the_sample_all_is_taken(suffix: str, tmp_path: Path) -> None:
    file = write_documents(tmp_path / "a.jsonl", 1000).rename(tmp_path / f"a.{suffix}")
    size = file.stat().st_size
    whole = read_sources([file], Reading())
    text = read_sources([file], Reading(sample_bytes=size))
    assert not text.is_sample and text.lines == whole.lines
    assert len(text.lines) == 1000
    assert read_sources([file], Reading(sample_bytes=size // 3)).is_sample


def test_a_compressed_file_gives_no_more_than_its_share(tmp_path: Path) -> None:
    plain = write_documents(tmp_path / "a.jsonl", 3000)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    text = read_sources([tmp_path / "b.jsonl.gz"], Reading(sample_bytes=20_000))
    assert text.is_sample and 20_000 <= text.num_bytes < 20_100


def test_a_stream_gives_its_beginning_and_has_an_equal_share(tmp_path: Path) -> None:
    file = write_documents(tmp_path / "a.jsonl", 3000)
    texts = (f"stream {n:06d}\n" for n in range(100_000))
    text = read_sources([training_text.open_memory(texts), file], Reading(sample_bytes=40_000))
    streamed = [line for line in text.lines if line.startswith("stream")]
    assert text.source_bytes is None and text.is_sample
    assert streamed == [f"stream {n:06d}\n" for n in range(len(streamed))]
    assert 20_000 <= len("".join(streamed)) < 20_020
    assert next(texts)  # no more was asked for


def test_folders_of_text_files_are_sampled_file_by_file(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number:02d}.md").write_text(f"{number:02d} line\n" * 100)
    text = read_sources([tmp_path], Reading(sample_bytes=3000))
    taken = [sum(line.startswith(f"{n:02d}") for line in text.lines) for n in range(30)]
    assert set(taken) <= {12, 13} and text.is_sample


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"]), max_size=3000),
        max_size=8,
    )
)
def test_the_parts_of_a_text_file_are_the_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("plain") / "a.txt"
    data = "\n".join(lines)
    path.write_text(data, newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_text, "PART_BYTES", 700)
        text = read_sources([path], Reading())
    assert "".join(text.lines) == data.removeprefix("\ufeff")
    assert all(len(line) <= LINE_CHARACTERS for line in text.lines)
    assert text.source_bytes == len(data.encode())


def test_a_file_without_lines_is_sampled_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    words = "".join(f"é{n:05d} " for n in range(20_000))
    (tmp_path / "one_line.txt").write_text(words)
    text = read_sources([tmp_path / "one_line.txt"], Reading(sample_bytes=60_000))
    numbers = [int(word[1:]) for line in text.lines for word in line.split() if len(word) == 6]
    assert text.is_sample and min(numbers) < 500 and max(numbers) > 19_000


def test_a_line_that_is_no_utf8_is_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\nt\xffo\nthree\n")
    with pytest.raises(InputError, match=r"a\.txt: no UTF-8 .* at byte 8; repair"):
        read_sources([tmp_path / "a.txt"], Reading())
    text = read_sources([tmp_path / "a.txt"], Reading(on_bad="skip"))
    assert text.lines == ["one\n", "three\n"]
    assert text.skipped.count == 1 and text.skipped.places[0]["byte"] == 8


CHATS = [
    {"conversations": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "two"}]},
    {"instruction": "three", "output": "four"},
    {
        "messages": [
            {"role": "user", "content": "five"},
            {"role": "assistant", "content": "", "tool_calls": [{"name": "six", "arguments": {}}]},
        ],
        "tools": [{"name": "seven"}],
    },
]


def test_chats_of_every_shape_give_the_text_of_all_turns(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(chat) + "\n" for chat in CHATS))
    text = read_sources([path], Reading(is_chat=True))
    called = '{"arguments":{},"name":"six"}'
    assert text.lines == ["one", "two", "three", "four", '{"name":"seven"}', "five", called]


def test_a_chat_that_cannot_be_read_is_an_error_or_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    rows = [CHATS[1], {"messages": []}, {"words": 1}, CHATS[1]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=r"chats\.jsonl:2: a chat without messages"):
        read_sources([path], Reading(is_chat=True))
    text = read_sources([path], Reading(is_chat=True, on_bad="skip"))
    assert text.lines == ["three", "four"] * 2
    assert text.skipped.reasons == {
        "chat: a chat without messages": 1,
        "chat: no known shape of chat": 1,
    }


def test_the_field_that_text_key_names_holds_the_chat(tmp_path: Path) -> None:
    conversation = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps({"conv": conversation, "messages": "not it"}) + "\n")
    text = read_sources([path], Reading(is_chat=True, text_key="conv"))
    assert text.lines == ["one", "two"]
    with pytest.raises(InputError, match="no field 'other'"):
        read_sources([path], Reading(is_chat=True, text_key="other"))


def test_documents_are_no_chats(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    with pytest.raises(InputError, match=r"documents, not chats; train without chat=True"):
        read_sources([tmp_path / "a.txt"], Reading(is_chat=True))
