"""The acts of the demonstration; every line it prints is what really happened."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from tokenreel.cli.main import main
from tokenreel.cli.output import size
from tokenreel.demo.corpus import write_chats, write_documents
from tokenreel.feed.feed import Feed
from tokenreel.inspect.verify import verify_store
from tokenreel.store.door import open_store

TEXT_BYTES = 12_000_000
BUILD = ("--tokenizer", "tokenizer.json", "--val-frac", "0.02", "--shard-bytes", "3000000")


RECIPE = """
seq_len = 512
batch_size = 16
seed = 7

[[sources]]
name = "web"
path = "web"
rows = "document_windows"
weight = 0.7

[[sources]]
name = "chat"
path = "chat"
rows = "packed"
weight = 0.3

[[phases]]
start_step = 100
ramp_steps = 50
weights = { web = 0.5, chat = 0.5 }
"""


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
        held &= self._feed()
        held &= self._flip_a_bit()
        self._act("6. For other tools")
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
        chunks = "chunk" if kept == 1 else "chunks"
        self._say(f"SIGKILL after {kept} encoded {chunks}. What is there is not a store:")
        self._command("show", "web")
        self._say("The same command again:")
        self._command("build", "text.jsonl", "--out", "web", *BUILD)
        self._say("The same in one go, with one worker, elsewhere:")
        self._command("build", "text.jsonl", "--out", "again", *BUILD, "--workers", "1", "--quiet")
        first, second = (open_store(self._folder / name).fingerprint for name in ("web", "again"))
        same = first == second
        self._say(f"{first[:32]}\n{second[:32]}\n{'The same bytes.' if same else 'They differ!'}")
        return same

    def _feed(self) -> bool:
        self._act("4. A mixture of both, any step, any number of ranks")
        (self._folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
        self._command("plan", "recipe.toml")
        self._command("feed", "recipe.toml", "--steps", "200")
        feed = Feed(self._folder / "recipe.toml")
        whole = feed.batch(57).input_ids
        parts = [feed.batch(57, rank=rank, world=4).input_ids for rank in range(4)]
        same = bool(np.array_equal(np.concatenate(parts), whole))
        self._say(f"Step 57 of four ranks, put together, is step 57 of one: {same}.")
        self._say("Which documents were in step 57?")
        self._command("explain", "recipe.toml", "57", "--row", "0")
        segment = feed.explain(57).rows[0].segments[0]
        self._say("And when is that document shown?")
        words = ("--stop-step", "400")
        self._command("where", "recipe.toml", segment.source, str(segment.document), *words)
        hits = feed.where(segment.source, segment.document or 0, stop_step=400)
        return same and any(hit.step == 57 for hit in hits)

    def _flip_a_bit(self) -> bool:
        self._act("5. One flipped bit")
        shard = self._folder / "web" / "train" / "shard_00001.bin"
        _flip_bit(shard, 1_654_321)
        self._command("verify", "web")
        found = not verify_store(self._folder / "web").ok
        _flip_bit(shard, 1_654_321)
        verdict = verify_store(self._folder / "web")
        self._say(f"Flipped back: {size(verdict.num_bytes)} whole again.")
        return found and verdict.ok

    def _kill_half_way(self, *words: str) -> int:
        """Start a command in a process of its own and kill it when a chunk is encoded."""
        self._show_command(words)
        store = self._folder / "web"
        command = [sys.executable, "-m", "tokenreel", *words, "--quiet"]
        silent = subprocess.DEVNULL
        with subprocess.Popen(command, cwd=self._folder, stdout=silent, stderr=silent) as process:
            while process.poll() is None and _num_chunks(store) < 1:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        return _num_chunks(store)

    def _command(self, *words: str) -> None:
        """Run a command as if in the demo's folder."""
        self._show_command(words)
        with contextlib.chdir(self._folder):
            main(list(words))

    def _show_command(self, words: tuple[str, ...]) -> None:
        self._console.print(f"[bold]$ tokenreel {shlex.join(words)}[/bold]", soft_wrap=True)

    def _act(self, title: str) -> None:
        self._console.print()
        self._console.rule(title, align="left")

    def _say(self, text: str) -> None:
        self._console.print(text, style="italic")


def _num_chunks(store: Path) -> int:
    return len(list(store.glob(".build/*/*.chunk")))


def _flip_bit(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
