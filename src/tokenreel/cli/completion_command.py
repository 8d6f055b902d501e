"""tokenreel completion SHELL: a script by which a shell completes commands, options and files."""

from __future__ import annotations

import argparse

import shtab

from tokenreel.cli.output import emit_text

SHELLS = ("bash", "zsh", "tcsh")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", choices=SHELLS)
    parser.epilog = 'bash: eval "$(tokenreel completion bash)" in ~/.bashrc'


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from tokenreel.cli.main import full_parser

    parser = full_parser()
    _complete_files(parser)
    script = shtab.complete(parser, args.shell)
    emit_text(args, {"shell": args.shell, "script": script}, script)
    return 0


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Offer files wherever a value is asked for that is not one of a few words."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = "what to do"  # it is left out of --help, which would leave it out here
            for command in action.choices.values():
                _complete_files(command)
        elif action.nargs != 0 and not action.choices:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
