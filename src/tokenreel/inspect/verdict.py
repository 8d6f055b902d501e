"""What an inspection found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenreel.errors import TokenreelError


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An exact verdict: every problem by file and offset, or none."""

    path: Path
    layout: str
    has_checksums: bool
    num_files: int
    num_bytes: int
    num_tokens: int
    problems: Sequence[TokenreelError]
    notes: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def as_dict(self) -> dict[str, object]:
        """Return the verdict, ready for JSON."""
        return {
            "path": str(self.path),
            "ok": self.ok,
            "layout": self.layout,
            "has_checksums": self.has_checksums,
            "files": self.num_files,
            "bytes": self.num_bytes,
            "tokens": self.num_tokens,
            "problems": [problem.as_dict() for problem in self.problems],
            "notes": list(self.notes),
        }
