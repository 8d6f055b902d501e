"""The last acts: from a step to its documents and back, and one flipped bit."""

from __future__ import annotations

from pathlib import Path

from tokenreel.cli.output import size
from tokenreel.demo.stage import Stage
from tokenreel.feed.feed import Feed
from tokenreel.inspect.verify import verify_store

ASKED = 57


def ask(stage: Stage) -> bool:
    """Play it; True if the document that step shows is found in that step."""
    stage.act(f"5. Which documents were in step {ASKED}?")
    stage.command("explain", "recipe.toml", str(ASKED), "--tokenizer", "tokenizer.json")
    feed = Feed(stage.folder / "recipe.toml")
    segment = feed.explain(ASKED).rows[0].segments[0]
    stage.say("And when was the first of them seen?")
    stage.command("where", "recipe.toml", segment.source, str(segment.document))
    hits = feed.where(segment.source, segment.document or 0)
    return any(hit.step == ASKED for hit in hits)


def flip_a_bit(stage: Stage) -> bool:
    """Play it; True if the bit was found and everything else is whole."""
    stage.act("6. One flipped bit")
    shard = stage.folder / "code" / "train" / "shard_00001.bin"
    offset = shard.stat().st_size // 2
    _flip_bit(shard, offset)
    stage.command("verify", "code")
    found = not verify_store(stage.folder / "code").ok
    _flip_bit(shard, offset)
    verdict = verify_store(stage.folder / "code")
    stage.say(f"Flipped back: {size(verdict.num_bytes)} {'whole again' if verdict.ok else 'bad'}.")
    return found and verdict.ok


def _flip_bit(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
