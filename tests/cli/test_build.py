"""`tokenreel build` as people call it: folders, chats, JSON, errors, the report."""

from __future__ import annotations

import html.parser
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.builder.making import chats, documents, places, write_jsonl

from tokenreel.builder.page import report_page
from tokenreel.cli.main import main
from tokenreel.inspect.verify import verify_store


def call(*words: object) -> int:
    return main(["build", *map(str, words), "--tokenizer", "byte", "--workers", "1"])


def test_a_folder_becomes_a_store_with_a_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for number in range(12):
        (folder / f"{number}.md").write_text(f"# Note {number}\n" * (number + 1))
    assert call(folder, "--out", tmp_path / "s", "--val-frac", "0.3") == 0
    shown = capsys.readouterr().out
    assert "12 documents read" in shown and "bytes per token" in shown
    assert "train: " in shown and "val: " in shown and "dropped 0 = 737" in shown
    assert "documents end with <|endoftext|> (256), from byte" in shown
    assert verify_store(tmp_path / "s").ok
    assert (tmp_path / "s" / "report.html").exists()


def test_chats_are_built_and_the_report_is_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_jsonl(tmp_path / "c.jsonl", chats(30))
    assert call(source, "--out", tmp_path / "s", "--chat", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    ledger = report["ledger"]
    assert ledger["trained"] + ledger["masked"] == ledger["total"] and ledger["masked"]
    assert report["splits"]["train"]["documents"] == 30
    assert report.pop("already_built") is False
    assert report == json.loads((tmp_path / "s" / "report.json").read_text())


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--val-frac", "1.5"], 2, "bad --val-frac (expected >= 0 and < 1, got 1.5)"),
        (
            ["--val-frac", "0.1", "--val-tokens", "9"],
            2,
            "--val-frac and --val-tokens exclude each other",
        ),
        (["--shuffle-buffer", "0"], 2, "bad --shuffle-buffer (expected >= 1, got 0)"),
        (["--workers", "0"], 2, "bad --workers (expected >= 1, got 0)"),
        (["--end-token", "<nope>"], 2, "no such end token"),
        (
            ["--text-key", "body"],
            1,
            "name the key of the text with --text-key, or pass --on-bad skip",
        ),
        (["--max-retries", "3"], 2, "--max-retries does not apply to this source"),
        (["--chat", "--template", "nope"], 2, "no template 'nope'"),
        (["--chat", "--text-key", "text"], 1, "leave out --chat if the records are documents"),
    ],
)
def test_wrong_flags_are_said_clearly(
    words: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", documents(5))
    run = ["build", str(source), "--out", str(tmp_path / "s"), "--tokenizer", "byte", *words]
    assert main(run) == code
    assert message in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_a_finished_store_is_replaced_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", documents(20))
    assert call(source, "--out", tmp_path / "s") == 0
    assert call(source, "--out", tmp_path / "s", "--seed", "7", "--text-key", "id") == 1
    told = 'is here: --text-key: "text" → "id", --seed: 42 → 7; choose another folder, or pass'
    assert f"{told} --replace\n" in capsys.readouterr().err
    assert call(source, "--out", tmp_path / "s", "--seed", "7", "--replace") == 0
    assert verify_store(tmp_path / "s").ok


def test_a_build_that_is_finished_says_so_and_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", documents(20))
    assert call(source, "--out", tmp_path / "s") == 0
    assert "already built" not in capsys.readouterr().out
    before = places(tmp_path / "s", "**/*")
    assert call(source, "--out", tmp_path / "s", "--restart") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("already built") and "20 documents read" in shown
    assert places(tmp_path / "s", "**/*") == before


def test_an_unfinished_build_is_told_apart_in_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*documents(400), {"txt": "no such key"}]
    source = write_jsonl(tmp_path / "d.jsonl", rows)
    small = (source, "--out", tmp_path / "s", "--chunk-bytes", "1K")
    assert call(*small) == 1
    assert "pass --on-bad skip to count it and go on" in capsys.readouterr().err
    assert call(*small, "--min-tokens", "2", "--no-end-token") == 1
    shown = capsys.readouterr().err
    told = '--end-token: "<|endoftext|>" → none, --min-tokens: 1 → 2'
    assert f"an unfinished build of other settings is here: {told}; " in shown
    assert "pass --restart to begin anew" in shown
    assert call(*small, "--on-bad", "skip") == 0


def test_sizes_are_written_as_people_write_them_and_the_picked_template_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_jsonl(tmp_path / "c.jsonl", chats(30))
    assert call(source, "--out", tmp_path / "s", "--chat", "--shard-size", "4K") == 0
    assert "chat template: chatml" in capsys.readouterr().out
    assert len(list((tmp_path / "s").glob("train/*.bin"))) > 1
    settings = json.loads((tmp_path / "s" / "report.json").read_text())["settings"]
    assert (settings["shard_size"], settings["template"]) == (4000, "chatml")


class Tags(html.parser.HTMLParser):
    """Collect tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


def test_the_page_has_plots_loads_nothing_and_escapes_everything(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    rows = [*documents(40), {"txt": "no such key"}]
    write_jsonl(folder / "<img src=x onerror=alert(1)>.jsonl", rows)
    assert call(folder, "--out", tmp_path / "<b>s", "--on-bad", "skip") == 0
    page = (tmp_path / "<b>s" / "report.html").read_text()
    tags = Tags()
    tags.feed(page)
    names = [name for name, _ in tags.seen]
    assert names.count("svg") >= 2 and "rect" in names
    assert not {"script", "img", "link", "b", "iframe"} & set(names)
    assert not any(name in ("src", "href") for _, given in tags.seen for name in given)
    assert "&lt;img src=x" in page and "&lt;b&gt;s" in page
    assert "default-src 'none'" in page


def test_a_hostile_reason_is_escaped() -> None:
    bad = "<script>alert(1)</script>"
    report: dict[str, Any] = {
        "documents": 1,
        "text_bytes": 1,
        "bytes_per_token": None,
        "tokenizer_engines": [bad],
        "fingerprint": bad,
        "ledger": dict.fromkeys(("trained", "masked", "truncated", "dropped", "total"), 0),
        "dropped": {bad: {"documents": 1, "tokens": 1}},
        "skipped": {bad: 1},
        "skipped_places": [{"file": bad, "row": 0, "reason": bad}],
        "splits": {bad: {"documents": 0, "tokens": 0, "histogram": []}},
    }
    page = report_page(bad, report)
    assert "<script" not in page and page.count("&lt;script&gt;") >= 7


def test_a_terminal_sees_a_bar_with_documents_and_rate(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", documents(3000))
    words = ["build", str(source), "--out", str(tmp_path / "s"), "--tokenizer", "byte"]
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tokenreel.cli.main", *words, "--workers", "1"],
        stderr=writer,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "140", "TERM": "xterm"},
    )
    os.close(writer)
    shown = b""
    while True:
        try:
            block = os.read(reader, 65536)
        except OSError:
            break
        if not block:
            break
        shown += block
    os.close(reader)
    assert process.wait() == 0
    text = shown.decode()
    assert "building" in text and "3,000 documents" in text and "tokens" in text
