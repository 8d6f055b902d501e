"""tokenreel verify PATH: check every byte and every index."""

from __future__ import annotations

import argparse
from dataclasses import replace

from rich.console import Console
from rich.markup import escape

from tokenreel.cli.output import emit, size
from tokenreel.cli.spoken import for_command
from tokenreel.cli.store_flags import add_open_options, open_options
from tokenreel.errors import NoStoreError
from tokenreel.inspect.repair import repair_store
from tokenreel.inspect.verdict import Verdict
from tokenreel.inspect.verify import verify
from tokenreel.progress import bars


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("path", help="a store, or a folder of another layout")
    parser.add_argument("--threads", type=int, help="threads to hash on (default: one per core)")
    parser.add_argument(
        "--repair",
        action="store_true",
        help="first rebuild what can be rebuilt from what is intact: records, the manifest",
    )
    add_open_options(parser.add_argument_group("reading another layout"))


def run(args: argparse.Namespace) -> int:
    """Verify, after repairing where asked for; exit code 1 if anything is wrong."""
    with bars(quiet=args.quiet or args.json) as progress:
        actions = repair_store(args.path, progress=progress) if args.repair else []
        verdict = verify(args.path, threads=args.threads, progress=progress, **open_options(args))
    problems = [for_command(problem, args.flags) for problem in verdict.problems]
    verdict = replace(verdict, problems=tuple(problems))
    for problem in verdict.problems:
        if isinstance(problem, NoStoreError):
            raise problem  # nothing is damaged where nothing is
    result = {**verdict.as_dict(), "repaired": actions}
    emit(args, result, lambda console: _draw(console, verdict, actions))
    return 0 if verdict.ok else 1


def _draw(console: Console, verdict: Verdict, actions: list[str]) -> None:
    for action in actions:
        console.print(f"[bold]repaired[/bold] {escape(action)}")
    for problem in verdict.problems:
        console.print(f"[bold red]damaged[/bold red]  {escape(problem._message())}")
    for note in verdict.notes:
        console.print(f"[bold]note[/bold]     {escape(note)}")
    looked_at = (
        f"{verdict.num_files:,} files, {size(verdict.num_bytes)}, {verdict.num_tokens:,} tokens"
    )
    if not verdict.ok:
        number = len(verdict.problems)
        console.print(f"{number:,} problem{'s' if number > 1 else ''} found; {looked_at}")
    elif verdict.has_checksums:
        console.print(
            f"[bold green]whole[/bold green]: every byte is as it was written; {looked_at}"
        )
    else:
        console.print(f"[bold green]sound[/bold green]: nothing wrong found; {looked_at}")
