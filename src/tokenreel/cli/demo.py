"""tokenreel demo: see it work, in a minute, on this machine.

Real text that every Python has (its own standard library) becomes a store; the
build is killed half-way and run again; one bit is flipped and found; the store is
opened in another project's layout.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from tokenreel.cli.main import main
from tokenreel.cli.output import size
from tokenreel.errors import ConfigError
from tokenreel.inspect.verify import verify_store
from tokenreel.store.door import open_store
from tokenreel.store.writer import StoreWriter
from tokenreel.text.provenance import Provenance

END_OF_TEXT = 256
SHARD_BYTES = 2 * 1024 * 1024


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("--out", type=Path, help="keep the demo's folder here")
    parser.add_argument("--build-only", type=Path, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Play the demo; with --build-only, be the process that it kills."""
    if args.build_only:
        build(args.build_only)
        return 0
    if args.out and args.out.exists():
        raise ConfigError("the folder exists", where=args.out, remedy="choose a new one")
    with tempfile.TemporaryDirectory() as temporary:
        return _play(Console(highlight=False), args.out or Path(temporary) / "demo")


def build(target: Path) -> None:
    """Write the standard library's sources into a store, byte by byte, as it is with no tokenizer."""
    library = Path(sysconfig.get_path("stdlib"))
    with StoreWriter(
        target,
        vocab_size=257,
        shard_bytes=SHARD_BYTES,
        provenance=True,
        tokenizer={"kind": "byte", "name": "byte"},
    ) as writer:
        for path in sorted(library.rglob("*.py"))[:1500]:
            if "site-packages" in path.parts:
                continue
            ids = np.frombuffer(path.read_bytes(), np.uint8).astype(np.uint16)
            writer.add(
                np.append(ids, np.uint16(END_OF_TEXT)),
                provenance=Provenance(file=str(path.relative_to(library)), row=0, byte=0),
            )


def _play(console: Console, folder: Path) -> int:
    folder.mkdir(parents=True)
    store_path = folder / "stdlib"
    console.rule("1. A build that is killed")
    kept = _build_and_kill(store_path)
    console.print(f"SIGKILL after {kept} finished shards. The folder is not a store, and says so:")
    _command(console, "show", store_path)

    console.rule("2. The same command again")
    begin = time.perf_counter()
    build(store_path)
    store = open_store(store_path)
    shards = len(store["train"].shards)
    console.print(
        f"{shards} shards, {kept} of them kept from before; {store.num_tokens:,} tokens in "
        f"{time.perf_counter() - begin:.1f} s. Built in one go elsewhere, it has the same bytes:"
    )
    build(folder / "again")
    again = open_store(folder / "again").fingerprint
    console.print(f"  {store.fingerprint[:24]}…\n  {again[:24]}…")
    if again != store.fingerprint:
        console.print("[bold red]they differ: this is a bug[/bold red]")
        return 1

    console.rule("3. What is in it")
    _command(console, "show", store_path)

    console.rule("4. One flipped bit")
    _flip_bit(store_path / "train" / "shard_00001.bin", 1_234_567)
    _command(console, "verify", store_path)
    _flip_bit(store_path / "train" / "shard_00001.bin", 1_234_567)
    found = verify_store(store_path)
    console.print(f"Flipped back: {size(found.num_bytes)} checked, {len(found.problems)} problems.")

    console.rule("5. For other tools, and from them")
    _command(console, "convert", store_path, folder / "flat", "--to", "flat")
    _command(console, "prepare", folder / "flat")
    console.rule()
    console.print("Next: tokenreel --help · README.md · FORMAT.md (the store, byte by byte)")
    return 0


def _build_and_kill(target: Path) -> int:
    """Start a build in a process of its own, kill it half-way, return its finished shards."""
    words = [sys.executable, "-m", "tokenreel", "demo", "--build-only", str(target)]
    with subprocess.Popen(words) as process:
        while process.poll() is None and _num_finished(target) < 3:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    return _num_finished(target)


def _num_finished(target: Path) -> int:
    return len(list(target.glob("train/shard_*.json")))


def _command(console: Console, *words: str | Path) -> None:
    line = " ".join(str(word) if isinstance(word, str) else word.name for word in words)
    console.print(f"[bold]$ tokenreel {line}[/bold]")
    main([str(word) for word in words])


def _flip_bit(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))
