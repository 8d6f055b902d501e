"""YAML that can only say plain things: no tags that run code, no aliases, no key twice.

PyYAML is imported only where there is YAML.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenreel.errors import FormatError, MissingExtraError

MAX_DEPTH = 64  # the time it takes to read a file grows with the square of its levels


def parse_yaml(data: bytes, where: Path) -> dict[str, Any]:
    """Return the mapping that a YAML document is, or raise FormatError."""
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("pyyaml", extra="all", purpose=f"reading {where.name}") from error

    class Loader(yaml.SafeLoader):
        """Without aliases, by which a few lines could stand for gigabytes; MAX_DEPTH deep."""

        num_levels = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            line = self.peek_event().start_mark.line + 1
            if self.check_event(yaml.events.AliasEvent):
                raise FormatError(f"line {line} uses a YAML alias", where=where)
            self.num_levels += 1
            if self.num_levels > MAX_DEPTH:
                raise FormatError(
                    f"line {line} is nested too deeply",
                    where=where,
                    expected=f"<= {MAX_DEPTH} levels",
                )
            made = super().compose_node(parent, index)
            self.num_levels -= 1
            return made

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            made = super().construct_mapping(node, deep=deep)
            if len(made) != len(node.value):
                line = node.start_mark.line + 1
                raise FormatError(f"the mapping at line {line} has a key twice", where=where)
            return made

    try:
        content = yaml.load(data.decode(), Loader)
    except UnicodeDecodeError as error:
        raise FormatError(f"not UTF-8 at byte {error.start:,}", where=where) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FormatError(f"not plain YAML: {' '.join(str(error).split())}", where=where) from error
    if not isinstance(content, dict):
        raise FormatError("not a YAML mapping", where=where, actual=type(content).__name__)
    return content
