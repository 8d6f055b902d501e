"""Fault 4, from outside: SIGTERM ends a command as Ctrl-C does, also one with workers."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.independent import contents

from tokenreel import StoreWriter, verify
from tokenreel.cli.main import main
from tokenreel.cli.signals import REPEATED_SECONDS, SIGNALS, Ended, Watch, ended_by_signals
from tokenreel.errors import WriteError
from tokenreel.filesystem import FileSystem


@pytest.fixture(autouse=True)
def plain_signals() -> Iterator[None]:
    """Signals as a program begins with them: Ray, in an earlier test, has handlers of its own."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 MB of JSONL in six files."""
    folder = tmp_path_factory.mktemp("corpus")
    row = json.dumps({"text": "All work and no play makes a dull reel. " * 50})
    for number in range(6):
        (folder / f"{number}.jsonl").write_text("".join(f"{row}\n" for _ in range(2_000)))
    return folder


def command(corpus: Path, out: Path) -> list[str]:
    words = ["build", str(corpus), "--out", str(out), "--tokenizer", "byte", "--workers", "2"]
    return [sys.executable, "-m", "tokenreel", *words, "--chunk-bytes", "1M"]


def read_all(descriptor: int) -> str:
    """Return what is written to a terminal or pipe until its last writer closes it."""
    shown = b""
    while True:
        try:
            block = os.read(descriptor, 65536)
        except OSError:  # so a terminal says that it was closed
            break
        if not block:
            break
        shown += block
    return shown.decode().replace("\r\n", "\n")


def begin(words: list[str], *, in_terminal: bool) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command as the leader of a group; return it and what its output is read from."""
    reader, writer = pty.openpty() if in_terminal else os.pipe()
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, start_new_session=True
    )
    os.close(writer)
    return process, reader


@pytest.mark.parametrize("to_the_group", [False, True], ids=["process", "group"])
@pytest.mark.parametrize("in_terminal", [False, True], ids=["pipe", "terminal"])
def test_sigterm_ends_a_build_with_one_line_and_leaves_nothing_half_done(
    corpus: Path, tmp_path: Path, in_terminal: bool, to_the_group: bool
) -> None:
    out = tmp_path / "store"
    process, reader = begin(command(corpus, out), in_terminal=in_terminal)
    try:
        while process.poll() is None and not list(out.glob(".build/chunks-*/*.chunk")):
            time.sleep(0.002)
        if to_the_group:
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.send_signal(signal.SIGTERM)
        shown = read_all(reader)  # workers hold it too: it ends when all of them are gone
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    finally:
        process.kill()
        os.close(reader)
    assert shown.endswith("ended by SIGTERM; what was finished is kept\n")
    assert "Traceback" not in shown and "rror" not in shown
    assert in_terminal or shown.count("\n") == 1
    left = {path.suffix for path in out.rglob("*") if path.is_file()}
    assert left <= {".chunk", ".json"}
    assert list(out.glob(".build/chunks-*/*.chunk"))
    if in_terminal and to_the_group:  # once is enough: the same command goes on
        assert main([*command(corpus, out)[3:], "--quiet"]) == 0
        assert verify(out).ok


def test_sigterm_leaves_no_folder_of_an_export(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", vocab_size=2**16) as writer:
        for _ in range(40):
            writer.add(range(2**16))
    words = ["convert", str(tmp_path / "store"), str(tmp_path / "flat"), "--to", "flat"]
    begun = [sys.executable, "-m", "tokenreel", *words, "--shard-size", "2K"]
    process, reader = begin(begun, in_terminal=False)
    try:
        while process.poll() is None and not list(tmp_path.glob(".flat.*.tmp/*")):
            time.sleep(0.001)
        process.send_signal(signal.SIGTERM)
        shown = read_all(reader)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    finally:
        process.kill()
        os.close(reader)
    assert shown.splitlines()[-1] == "ended by SIGTERM"  # of an export nothing is kept
    assert "Traceback" not in shown
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_what_a_killed_export_left_is_removed_by_the_next_at_once(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store", vocab_size=2**16) as writer:
        for _ in range(40):
            writer.add(range(2**16))
    words = ["convert", str(tmp_path / "store"), str(tmp_path / "flat"), "--to", "flat"]
    process = subprocess.Popen([sys.executable, "-m", "tokenreel", *words, "--shard-size", "2K"])
    while process.poll() is None and not list(tmp_path.glob(".flat.*.tmp/*")):
        time.sleep(0.001)
    process.kill()
    process.wait()
    (left,) = tmp_path.glob(".flat.*.tmp")
    assert main([*words, "--quiet"]) == 0
    assert not left.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flat", "store"]


class Swept(FileSystem):
    """A disk on which another export removes a folder as soon as it is made, so many times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def make_dir(self, path: Path) -> None:
        super().make_dir(path)
        if path.suffix == ".tmp" and self.times:
            self.times -= 1
            path.rmdir()


def test_an_export_whose_new_folder_is_taken_for_a_leftover_makes_another(tmp_path: Path) -> None:
    with Swept(2).whole_folder(tmp_path / "out") as folder:
        (folder / "file").write_bytes(b"whole")
    assert (tmp_path / "out" / "file").read_bytes() == b"whole"
    with (
        pytest.raises(WriteError, match="cannot lock a new folder; write to a file system that"),
        Swept(99).whole_folder(tmp_path / "never"),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_signal_that_comes_twice_at_once_is_one_and_who_insists_is_heard() -> None:
    watch = Watch()
    with pytest.raises(Ended):
        watch.take(signal.SIGTERM, None)
    watch.take(signal.SIGTERM, None)
    assert watch.number == signal.SIGTERM
    watch.time -= REPEATED_SECONDS
    with pytest.raises(Ended):
        watch.take(signal.SIGHUP, None)
    assert watch.number == signal.SIGTERM


def test_a_signal_that_is_lost_in_a_hook_of_python_comes_again() -> None:
    class Deaf:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    watch, hook = Watch(), sys.unraisablehook
    with pytest.raises(Ended), ended_by_signals(watch):
        Deaf()
        time.sleep(60)
    assert watch.number == signal.SIGTERM
    assert sys.unraisablehook is hook


def test_an_error_that_a_signal_was_turned_into_is_not_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Import:  # of an extension module, say, whose C code knows ImportError alone
        def find_spec(self, name: str, *rest: object) -> None:
            if name == "tokenreel.inspect.installation":
                try:
                    signal.raise_signal(signal.SIGTERM)
                except KeyboardInterrupt:
                    raise ImportError("could not import") from None

    for name in ("tokenreel.cli.doctor_command", "tokenreel.inspect.installation"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Import(), *sys.meta_path])
    assert main(["doctor"]) == 128 + signal.SIGTERM
    assert capsys.readouterr() == ("", "ended by SIGTERM\n")


def test_what_is_ignored_or_handled_stays_so_and_everything_is_put_back() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals(Watch()):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_command_runs_in_a_thread_too(tmp_path: Path) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(["show", str(tmp_path)])))
    thread.start()
    thread.join()
    assert codes == [1]


def test_a_store_that_is_there_survives_the_signal(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "store"
    with StoreWriter(out, vocab_size=300) as writer:
        writer.add([1, 2, 3])
    before = contents(out)
    process, reader = begin([*command(corpus, out), "--replace"], in_terminal=False)
    try:
        while process.poll() is None and not list(out.glob(".build/chunks-*/*.chunk")):
            time.sleep(0.002)
        process.send_signal(signal.SIGTERM)
        read_all(reader)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    finally:
        process.kill()
        os.close(reader)
    assert contents(out) == before
