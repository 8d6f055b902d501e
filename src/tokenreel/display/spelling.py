"""From ids to what they say, one chip at a time.

A token by itself may be half a character, or lose the blank in front of it. So each is decoded
behind the chip before it, at the price of two short calls a token, and half a character waits for
its other half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Decode = Callable[[Sequence[int]], str]
INCOMPLETE = "\ufffd"  # what decoders put where bytes are no character
MOST_BYTES = 4  # of a character in UTF-8: so many ids are waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelled:
    """Ids start to stop, which are shown as one, and what they say."""

    start: int
    stop: int
    text: str
    is_control: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Speller:
    """Says what ids are: by a tokenizer's `decode` and the names of its control ids.

    Without `decode` the ids are shown as numbers.
    """

    decode: Decode | None = None
    control_names: Mapping[int, str] = field(default_factory=dict)

    def spell(self, ids: Sequence[int], borders: Sequence[object]) -> Iterator[Spelled]:
        """Yield the chips of some ids; none goes over a border, where `borders` changes.

        >>> speller = Speller(decode=lambda ids: bytes(ids).decode(errors="replace"),
        ...                   control_names={256: "<s>"})
        >>> [chip.text for chip in speller.spell([256, 110, 195, 175], [0, 0, 1, 1])]
        ['<s>', 'n', 'ï']
        """
        known = 0  # where what the next chip is decoded behind begins
        start = 0
        for stop in range(1, len(ids) + 1):
            token = ids[stop - 1]
            if token in self.control_names:
                yield Spelled(
                    start=start, stop=stop, text=self.control_names[token], is_control=True
                )
                known = start = stop
                continue
            text = self._added(ids[known:start], ids[start:stop])
            is_end = stop == len(ids) or borders[stop] != borders[start]
            is_end = is_end or ids[stop] in self.control_names
            if text.endswith(INCOMPLETE) and stop - start < MOST_BYTES and not is_end:
                continue
            yield Spelled(start=start, stop=stop, text=text)
            # Behind half a character its other half would be decoded into nothing.
            known = stop if text.endswith(INCOMPLETE) else start
            start = stop

    def _added(self, before: Sequence[int], ids: Sequence[int]) -> str:
        """Return what ids say behind others; ids that the tokenizer lacks as ⟨number⟩."""
        if self.decode is None:
            return " ".join(map(str, ids))
        try:
            told = self.decode(before) if before else ""
            whole = self.decode([*before, *ids])
            if whole.startswith(told):
                return whole[len(told) :]
        except Exception:  # a decoder is anybody's, and may lack the ids before
            pass
        try:
            return self.decode(ids)
        except Exception:
            return "".join(f"⟨{number}⟩" for number in ids)
