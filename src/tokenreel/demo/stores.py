"""The first acts: a tokenizer, a store of documents, a store of chats, and a recipe of both."""

from __future__ import annotations

from pathlib import Path

from tokenreel.cli.output import size
from tokenreel.demo.corpus import write_chats, write_documents
from tokenreel.demo.stage import Stage
from tokenreel.layouts.open_store import open_store

TEXT_BYTES = 8_000_000
NUM_CHATS = 4000
STEPS = 100
BUILD = ("--tokenizer", "tokenizer.json", "--val-frac", "0.02", "--shard-size", "3M")
RECIPE = f"""\
seq_len = 192
global_batch_size = 8                  # rows of a step, over all ranks
seed = 7
steps = {STEPS}

[[sources]]
name = "code"
path = "code"
rows = "document_windows"
weight = 0.8

[[sources]]
name = "chat"
path = "chat"
rows = "packed"                 # many chats in a row, apart in attention and loss
weight = 0.2

[[phases]]                      # towards the end, more chats
start_step = 60
ramp_steps = 20
weights = {{ code = 0.5, chat = 0.5 }}
"""


def make_stores(stage: Stage) -> bool:
    """Play them; True if the killed build gave the bytes of one in one go."""
    text = write_documents(stage.folder / "code.jsonl", limit_bytes=TEXT_BYTES)
    write_chats(stage.folder / "chats.jsonl", limit=NUM_CHATS)
    stage.say(
        f"Text that is on this machine: sources of Python's own library, "
        f"{size(text.stat().st_size)}, and {NUM_CHATS:,} of its shorter docstrings as chats."
    )
    stage.act("1. A tokenizer")
    words = ("--kind", "bpe", "--vocab-size", "2000", "--out", "tokenizer.json")
    stage.command("train-tokenizer", "code.jsonl", *words)
    held = _kill_and_build_again(stage)
    stage.act("3. A store of chats, and a recipe that mixes both")
    chats = ("build", "chats.jsonl", "--chat", "--out", "chat")
    stage.command(*chats, "--tokenizer", "tokenizer.json")
    (stage.folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    stage.say("What the assistant says is trained, the rest of a chat is masked. The recipe:")
    stage.command("plan", "recipe.toml")
    return held


def _kill_and_build_again(stage: Stage) -> bool:
    stage.act("2. A store of documents; its build is killed, and run again")
    command = ("build", "code.jsonl", "--out", "code", *BUILD)
    if stage.killed_command(*command, when=lambda: _num_chunks(stage.folder) > 0):
        kept = _num_chunks(stage.folder)
        chunks = "chunk was" if kept == 1 else "chunks were"
        stage.say(f"SIGKILL when {kept} {chunks} encoded. Half a store is no store:")
        stage.command("show", "code")
        stage.say("The same command again goes on:")
    else:
        stage.say("It was done before it could be killed. The same command again:")
    stage.command(*command)
    stage.say("In one go, with one worker, elsewhere:")
    stage.command("build", "code.jsonl", "--out", "again", *BUILD, "--workers", "1")
    one, other = (open_store(stage.folder / name).fingerprint for name in ("code", "again"))
    stage.say("The same bytes." if one == other else "They differ!")
    return one == other


def _num_chunks(folder: Path) -> int:
    return len(list(folder.glob("code/.build/*/*.chunk")))
