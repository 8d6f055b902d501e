"""Two runs side by side: are the batches the same, and how far apart are the losses?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from tokenreel.demo.step_record import Trained

TOLERANCE = 1e-3  # of a loss: floats are added in another order, for fifty steps
BAR = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A run that was left alone, and one made of parts, later parts in place of earlier ones."""

    alone: Mapping[int, Trained]
    parts: Sequence[Mapping[int, Trained]]

    @property
    def joined(self) -> dict[int, Trained]:
        """The steps of all parts as one run."""
        return {step: trained for part in self.parts for step, trained in part.items()}

    def same_batches(self) -> bool:
        """Was every step of every part trained on the rows it has in the run left alone?"""
        return self.joined.keys() == self.alone.keys() and all(
            trained.rows == self.alone[step].rows
            for part in self.parts
            for step, trained in part.items()
        )

    def loss_gap(self) -> float:
        """Return the largest difference of losses."""
        return max(abs(done.loss - self.alone[step].loss) for step, done in self.joined.items())

    def holds(self) -> bool:
        """Are the batches the same and the losses within the tolerance?"""
        return self.same_batches() and self.loss_gap() < TOLERANCE

    def table(self, steps: Sequence[int]) -> Table:
        """Draw the losses of some steps."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("step", "left alone", "killed, resumed", "ranks"):
            table.add_column(name, justify="right")
        table.add_column("batch")
        table.add_column("loss")
        most = max(trained.loss for trained in self.alone.values())
        joined = self.joined
        for step in steps:
            alone, other = self.alone[step], joined[step]
            table.add_row(
                str(step),
                f"{alone.loss:.5f}",
                f"{other.loss:.5f}",
                str(other.world_size),
                "same" if alone.rows == other.rows else "[red]differs[/red]",
                "█" * round(BAR * other.loss / most),
            )
        return table
