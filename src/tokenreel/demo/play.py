"""The acts of the demonstration; every line it prints is what really happened."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from tokenreel.cli.main import main
from tokenreel.cli.output import size
from tokenreel.demo.corpus import write_chats, write_documents
from tokenreel.inspect.verify import verify_store
from tokenreel.store.door import open_store

TEXT_BYTES = 12_000_000
BUILD = ("--tokenizer", "tokenizer.json", "--val-frac", "0.02", "--shard-bytes", "3000000")


class Play:
    """Act in one folder, in which all commands are run."""

    def __init__(self, folder: Path, console: Console) -> None:
        self._folder = folder
        self._console = console

    def run(self) -> int:
        """Play all acts; 0 if everything held."""
        text = write_documents(self._folder / "text.jsonl", limit_bytes=TEXT_BYTES)
        write_chats(self._folder / "chats.jsonl", limit=4000)
        self._console.print(
            f"The standard library's own sources: {size(text.stat().st_size)} of JSONL, "
            "and its docstrings as chats."
        )
        self._act("1. A tokenizer")
        words = ("--kind", "bpe", "--vocab-size", "4000", "--out", "tokenizer.json")
        self._command("train-tokenizer", "text.jsonl", *words)
        held = self._kill_and_resume()
        self._act("3. Chats, with their loss masks")
        self._command(
            "build", "chats.jsonl", "--chat", "--out", "chat", "--tokenizer", "tokenizer.json"
        )
        held &= self._flip_a_bit()
        self._act("5. For other tools")
        self._command("convert", "web", "shards", "--to", "flat")
        self._command("prepare", "shards")
        self._act("Where to look next")
        self._console.print("tokenreel --help · README.md · FORMAT.md (the store, byte by byte)")
        if not held:
            self._console.print("[bold red]something did not hold: this is a bug[/bold red]")
        return 0 if held else 1

    def _kill_and_resume(self) -> bool:
        self._act("2. A build that is killed, and run again")
        kept = self._kill_half_way("build", "text.jsonl", "--out", "web", *BUILD)
        self._say(f"SIGKILL after {kept} encoded chunks. What is there is not a store:")
        self._command("show", "web")
        self._say("The same command again:")
        self._command("build", "text.jsonl", "--out", "web", *BUILD)
        self._say("The same in one go, with one worker, elsewhere:")
        self._command("build", "text.jsonl", "--out", "again", *BUILD, "--workers", "1", "--quiet")
        first, second = (open_store(self._folder / name).fingerprint for name in ("web", "again"))
        same = first == second
        self._say(f"{first[:32]}\n{second[:32]}\n{'The same bytes.' if same else 'They differ!'}")
        return same

    def _flip_a_bit(self) -> bool:
        self._act("4. One flipped bit")
        shard = self._folder / "web" / "train" / "shard_00001.bin"
        _flip_bit(shard, 1_654_321)
        self._command("verify", "web")
        found = not verify_store(self._folder / "web").ok
        _flip_bit(shard, 1_654_321)
        verdict = verify_store(self._folder / "web")
        self._say(f"Flipped back: {size(verdict.num_bytes)} whole again.")
        return found and verdict.ok

    def _kill_half_way(self, *words: str) -> int:
        """Start a command in a process of its own and kill it when two chunks are encoded."""
        self._show_command(words)
        chunks = self._folder / "web" / ".build" / "chunks"
        command = [sys.executable, "-m", "tokenreel", *words, "--quiet"]
        with subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and _num_chunks(chunks) < 2:
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        return _num_chunks(chunks)

    def _command(self, *words: str) -> None:
        self._show_command(words)
        main([str(self._folder / word) if self._is_path(word) else word for word in words])

    def _is_path(self, word: str) -> bool:
        known = {"text.jsonl", "chats.jsonl", "tokenizer.json", "web", "again", "chat", "shards"}
        return word in known

    def _show_command(self, words: tuple[str, ...]) -> None:
        self._console.print(f"[bold]$ tokenreel {shlex.join(words)}[/bold]", soft_wrap=True)

    def _act(self, title: str) -> None:
        self._console.print()
        self._console.rule(title, align="left")

    def _say(self, text: str) -> None:
        self._console.print(text, style="italic")


def _num_chunks(folder: Path) -> int:
    return sum(1 for path in folder.glob("*") if path.name.isdigit())


def _flip_bit(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
