"""tokenreel doctor: what this installation has and lacks."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from tokenreel.cli.output import emit, facts_table, size
from tokenreel.inspect.installation import examine


def configure(parser: argparse.ArgumentParser) -> None:
    """The command has no arguments of its own."""


def run(args: argparse.Namespace) -> int:
    """Examine the installation."""
    facts = examine()
    emit(args, facts, lambda console: _draw(console, facts))
    return 0


def _draw(console: Console, facts: dict[str, Any]) -> None:
    facts_table(
        console,
        {
            "tokenreel": facts["tokenreel"],
            "python": facts["python"],
            "system": facts["system"],
            "kernels": facts["kernels"],
            "cores": f"{facts['cores']} ({facts['usable_cores']} usable)",
            "free disk": size(facts["free_disk_bytes"]),
            "core": _versions(facts["core"]),
        },
    )
    console.print()
    for extra, packages in facts["extras"].items():
        missing = [name for name, version in packages.items() if version is None]
        state = "[green]ready[/green]" if not missing else "[yellow]missing[/yellow]"
        console.print(f"{extra:<6} {state}  {_versions(packages)}")
        if missing:
            console.print(f'       install with: pip install "tokenreel\\[{extra}]"')


def _versions(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or '(not installed)'}" for name, version in packages.items())
