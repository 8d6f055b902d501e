"""Build a store on a Ray cluster: the bytes are those of a build on one process.

    python examples/ray_build.py "docs/*.jsonl" --out store --tokenizer tokenizer.json
    python examples/ray_build.py "docs/*.jsonl" --out store --address auto    # your cluster

Chunks are encoded by tasks anywhere and written to a folder that all nodes see; one process
assembles them in order. Killed, or after a node was lost, the same command goes on.
`tokenreel build --engine ray` is the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import tokenreel


def main() -> None:
    """Build and say what was built."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("text", nargs="+", help="files, folders or globs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokenizer", default="byte")
    parser.add_argument("--address", default="local", help='"local" starts Ray here')
    parser.add_argument("--workers", type=int, default=2, help="tasks at once")
    args = parser.parse_args()
    built = tokenreel.build(
        args.text,
        out=args.out,
        tokenizer=args.tokenizer,
        engine="ray",
        address=args.address,
        workers=args.workers,
        val_frac=0.02,
    )
    ledger = built.report["ledger"]
    parts = " + ".join(f"{ledger[name]:,} {name}" for name in ("trained", "masked", "dropped"))
    print(f"{built.report['documents']:,} documents, {ledger['total']:,} tokens: {parts}")
    print(f"fingerprint {built.store.fingerprint}")


if __name__ == "__main__":
    main()
