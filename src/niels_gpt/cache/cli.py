"""python -m niels_gpt.cache.cli build-all --cache-dir cache --seed 42: all caches of contract 002.

    pretrain/fineweb_edu   streamed, shuffled, up to the token budgets
    pretrain/roam          all of a folder of Markdown, split by its files; else a stub
    pretrain/wikitext      all, by the splits it comes with
    pretrain/gutenberg     a folder of text where there is one, else a stub
    sft/dolly15k, sft/oasst1   val_frac of the examples are validation
    tokenizer/             the tokenizer they are made with

A source that fails is reported and the others are built; the exit code is then 1. Run
again, finished caches are kept and unfinished ones go on where they were. Nothing that is
there is overwritten: a cache that was built with other settings is an error.

The tokenizer is that of --tokenizer, else CACHE/tokenizer/spm.model (a file or a link), else
what the original project trains, artifacts/tokenizer/spm.model. A folder of notes that is
named and absent is a failure; the usual ones may be absent, as in the original.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from niels_gpt.cache import formats
from niels_gpt.cache.build_cache import BUDGET_RULE, EXAMPLE_RULE
from niels_gpt.cache.meta import sha256_file
from tokenreel.cli.output import emit
from tokenreel.dropin.caches.cache_build import (
    Cached,
    build_budgeted,
    build_by_file,
    build_chats,
    build_presplit,
    build_stub,
)
from tokenreel.dropin.caches.cache_builder import MODEL_NAME, CacheBuilder, keep_tokenizer
from tokenreel.dropin.caches.cache_folder import NOT_BUILT
from tokenreel.errors import ConfigError, TokenreelError
from tokenreel.progress import bars
from tokenreel.text.sources.mixed_files import FileSource
from tokenreel.text.sources.named import Absent, named_source
from tokenreel.text.tokenizers import load_tokenizer

logger = logging.getLogger(__name__)

FILE_RULE = "by file: torch.randperm(files by name) by seed, the first val_frac of it is val"
OWN_RULE = "the dataset's own: train is train, validation is val"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 1 if a source failed, 2 for wrong usage."""
    args = _parser().parse_args(argv)
    level = logging.ERROR if args.quiet else logging.INFO
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    logger.setLevel(level)
    try:
        return build_all(args)
    except TokenreelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        kept = "; what was finished is kept" if _has_finished_work(args.cache_dir) else ""
        print(f"interrupted{kept}", file=sys.stderr)
        return 130


def _has_finished_work(cache_dir: Path) -> bool:
    """Tell whether a cache is finished, or a chunk of one that is not."""
    return any(cache_dir.glob("*/*/meta.json")) or any(cache_dir.rglob("*.chunk"))


def build_all(args: argparse.Namespace) -> int:
    """Build every cache, print the summary, return 0 if none failed and 1 otherwise."""
    model = _model(args)
    tokenizer = load_tokenizer(model)
    with bars(quiet=args.quiet or args.json) as progress:
        builder = CacheBuilder(
            tokenizer=tokenizer,
            tokenizer_sha256=sha256_file(str(model)),
            seed=args.seed,
            workers=args.workers,
            restart=args.restart,
            keep=True,
            progress=progress,
        )
        keep_tokenizer(builder, model, args.cache_dir / "tokenizer")
        results = [_attempt(name, work) for name, work in _works(builder, args).items()]
    failed = [result for result in results if result["state"] == "failed"]
    report = {"cache_dir": str(args.cache_dir), "caches": results, "failed": len(failed)}
    emit(args, report, lambda console: _draw(console, results))
    return 1 if failed else 0


def _attempt(name: str, work: Callable[[], Cached]) -> dict[str, Any]:
    """Build one cache; whatever goes wrong with it must not keep the others from being built."""
    logger.info("%s: begun", name)
    began = time.monotonic()
    result: dict[str, Any] = {"cache": name, "state": "failed"}
    try:
        cached = work()
    except Exception as error:
        said = (
            str(error) if isinstance(error, TokenreelError) else f"{type(error).__name__}: {error}"
        )
        logger.error("%s: failed: %s", name, said)
        logger.debug("%s: failed", name, exc_info=True)
        result["error"] = said
    else:
        state = "kept" if cached.was_there else "built"
        result["state"] = "not built" if cached.meta.get(NOT_BUILT) else state
        result["totals"] = cached.meta["totals"]
        logger.info("%s: %s", name, result["state"])
    result["seconds"] = round(time.monotonic() - began, 3)
    return result


def _works(builder: CacheBuilder, args: argparse.Namespace) -> Mapping[str, Callable[[], Cached]]:
    works: dict[str, Callable[[CacheBuilder, argparse.Namespace, Path], Cached]] = {
        "pretrain/fineweb_edu": _fineweb,
        "pretrain/roam": partial(
            _folder, name="roam", path=args.roam_dir or _usual_notes(), is_named=bool(args.roam_dir)
        ),
        "pretrain/wikitext": _wikitext,
        "pretrain/gutenberg": partial(_folder, name="gutenberg", path=args.gutenberg_dir),
        "sft/dolly15k": partial(_chats, name="dolly15k", id=args.dolly_id),
        "sft/oasst1": partial(_chats, name="oasst1", id=args.oasst1_id),
    }
    return {
        name: partial(work, builder, args, args.cache_dir / name) for name, work in works.items()
    }


def _fineweb(builder: CacheBuilder, args: argparse.Namespace, out: Path) -> Cached:
    chosen = {"id": args.fineweb_id, "config": args.fineweb_config}
    return build_budgeted(
        builder,
        # Its own shuffle is by a hash; the one of the contract is by torch's generator.
        named_source("fineweb-edu", buffer=None, **chosen, **_retries(args)),
        out,
        about=_about(chosen, split_rule=BUDGET_RULE, streaming=True),
        val_tokens=args.max_val_tokens,
        train_tokens=args.max_train_tokens,
        shuffle_buffer=args.shuffle_buffer or None,
        shard_bytes=args.shard_bytes,
    )


def _wikitext(builder: CacheBuilder, args: argparse.Namespace, out: Path) -> Cached:
    chosen = {"id": args.wikitext_id, "config": args.wikitext_config}
    sources = {
        split: named_source("wikitext", split=theirs, **chosen, **_retries(args))
        for split, theirs in (("train", "train"), ("val", "validation"))
    }
    about = _about(chosen, split_rule=OWN_RULE, streaming=False)
    return build_presplit(builder, sources, out, about=about, shard_bytes=args.shard_bytes)


def _folder(
    builder: CacheBuilder,
    args: argparse.Namespace,
    out: Path,
    *,
    name: str,
    path: Path,
    is_named: bool = False,
) -> Cached:
    source = named_source(name, path=str(path), split="all", may_be_absent=not is_named)
    about = {"dataset_name": name, "split_rule": FILE_RULE}
    if isinstance(source, FileSource):
        sizes = {"val_frac": args.val_frac, "shard_bytes": args.shard_bytes}
        return build_by_file(builder, source, out, about=about, **sizes)
    reason = source.reason if isinstance(source, Absent) else "no folder of files"
    return build_stub(builder, out, about={**about, "reason": reason})


def _chats(
    builder: CacheBuilder, args: argparse.Namespace, out: Path, *, name: str, id: str
) -> Cached:
    source = named_source(name, id=id, **_retries(args))
    about = _about({"id": id}, split_rule=EXAMPLE_RULE, streaming=False)
    return build_chats(builder, source, out, about=about, val_frac=args.val_frac)


def _about(chosen: Mapping[str, Any], **facts: Any) -> dict[str, Any]:
    return {"dataset_name": chosen["id"], "dataset_config": chosen.get("config"), **facts}


def _retries(args: argparse.Namespace) -> dict[str, Any]:
    return {"max_retries": args.max_retries, "retry_delay": args.retry_delay}


def _usual_notes() -> Path:
    """Return the first folder of notes that is there; the first of all if none is."""
    usual = [Path(path) for path in formats.ROAM_DIRS]
    return next((path for path in usual if path.is_dir()), usual[0])


def _model(args: argparse.Namespace) -> Path:
    """Return the SentencePiece model: the one that is given, else the first that is there."""
    there: Path = args.cache_dir / "tokenizer" / MODEL_NAME
    places = [args.tokenizer] if args.tokenizer else [there, Path(formats.TRAINED_MODEL)]
    for model in places:
        if model.is_file():
            return model
    raise ConfigError(
        "there is no tokenizer",
        where=" or ".join(map(str, places)),
        expected="a SentencePiece model with the four control tokens",
        remedy=f'run "mkdir -p {there.parent}" and put it there: copy or link the one you have '
        f'("cp spm.model {there}"), or train one '
        f'("tokenreel train-tokenizer FILE… --template ngpt --vocab-size 16004 --round-to 1 '
        f'--out {there}"); or pass --tokenizer spm.model',
    )


def _draw(console: Console, results: Sequence[Mapping[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for column, side in (
        ("cache", "left"),
        ("state", "left"),
        ("train", "right"),
        ("val", "right"),
    ):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for result in results:
        totals = result.get("totals", {})
        counts = [_count(totals, split) for split in ("train", "val")]
        table.add_row(result["cache"], result["state"], *counts)
    console.print(table)
    for result in results:
        if "error" in result:
            console.print(f"[bold]{result['cache']}[/bold]: {escape(result['error'])}")


def _count(totals: Mapping[str, int], split: str) -> str:
    if f"{split}_examples" in totals:
        return f"{totals[f'{split}_examples']:,} examples"
    return f"{totals[f'{split}_tokens']:,} tokens" if totals else ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m niels_gpt.cache.cli")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser("build-all", help="build every cache")
    command.add_argument("--cache-dir", type=Path, default=Path("cache"))
    command.add_argument("--seed", type=int, default=formats.SEED)
    command.add_argument(
        "--tokenizer",
        type=Path,
        help=f"SentencePiece model (default: tokenizer/{MODEL_NAME} there)",
    )
    _add_sources(command.add_argument_group("sources"))
    _add_sizes(command.add_argument_group("sizes"))
    running = command.add_argument_group("running")
    running.add_argument("--workers", type=int, default=1, help="processes that encode")
    running.add_argument("--restart", action="store_true", help="forget unfinished builds")
    running.add_argument("--max-retries", type=int, default=5, help="of a failed read")
    running.add_argument("--retry-delay", type=float, default=1.0, help="seconds, then doubled")
    running.add_argument("--json", action="store_true", help="print the result as one JSON object")
    running.add_argument("--quiet", action="store_true", help="no progress, no notices")
    return parser


def _add_sources(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--fineweb-id", default=formats.FINEWEB_ID)
    group.add_argument("--fineweb-config", default=formats.FINEWEB_CONFIG)
    group.add_argument("--wikitext-id", default=formats.WIKITEXT_ID)
    group.add_argument("--wikitext-config", default=formats.WIKITEXT_CONFIG)
    group.add_argument("--dolly-id", default=formats.DOLLY_ID)
    group.add_argument("--oasst1-id", default=formats.OASST1_ID)
    group.add_argument(
        "--roam-dir", type=Path, help=f"(default: {' or '.join(formats.ROAM_DIRS)}, if it is there)"
    )
    group.add_argument("--gutenberg-dir", type=Path, default=Path(formats.GUTENBERG_DIR))


def _add_sizes(group: argparse._ArgumentGroup) -> None:
    budgets = "of fineweb-edu; the others are cached whole"
    for split, tokens in (("train", formats.TRAIN_TOKENS), ("val", formats.VAL_TOKENS)):
        names = f"--max-{split}-tokens", f"--fineweb-{split}-tokens"  # the original's is the second
        group.add_argument(*names, type=int, default=tokens, metavar="TOKENS", help=budgets)
    group.add_argument("--shard-bytes", type=int, default=formats.SHARD_BYTES)
    group.add_argument(
        "--shuffle-buffer",
        type=int,
        default=formats.SHUFFLE_BUFFER,
        metavar="DOCUMENTS",
        help="of fineweb-edu; 0: no shuffle",
    )
    group.add_argument("--val-frac", type=float, default=formats.VAL_FRAC)


if __name__ == "__main__":
    sys.exit(main())
