"""The array work of rendering: where every token goes, without a loop over tokens.

Texts were encoded in the order in which they appear in the output, so they fill
the places that are not the template's in one masked assignment; the template's ids
are written per role. About 10 bytes of temporary memory per token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenreel.text.chats.template import Bound
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded
from tokenreel.text.turns import ROLE_CODES, TURN


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How long everything is and where it starts; one entry per turn unless said otherwise.

    names and contents are lengths in tokens; starts count from the first token of the
    first chat; offsets: int64 [chats + 1].
    """

    roles: np.ndarray
    heads: np.ndarray
    names: np.ndarray
    contents: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    offsets: np.ndarray


def lay_out(
    encoded: Encoded,
    roles: np.ndarray,
    *,
    named: np.ndarray,
    turn_offsets: np.ndarray,
    bound: Bound,
) -> Layout:
    """Return where everything goes; the text of a turn in `named` is its name, then its content."""
    text_lengths = np.diff(encoded.offsets)
    names = np.zeros(len(roles), np.int64)
    is_content = np.ones(len(text_lengths), bool)
    if len(named):
        name_texts = named + np.arange(len(named))
        names[named] = text_lengths[name_texts]
        is_content[name_texts] = False
    contents = text_lengths[is_content]
    fixed = np.zeros(len(ROLE_CODES), np.int64)
    for role, header in bound.headers.items():
        fixed[ROLE_CODES[role]] = len(header.before) + len(header.after)
    heads = fixed[roles] + names
    lengths = heads + contents + len(bound.end) + len(bound.tail)
    sums = np.concatenate(([0], np.cumsum(lengths)))
    preambles = np.arange(len(turn_offsets)) * len(bound.preamble)
    offsets = sums[turn_offsets] + preambles
    starts = sums[:-1] + np.repeat(preambles[1:], np.diff(turn_offsets))
    return Layout(
        roles=roles,
        heads=heads,
        names=names,
        contents=contents,
        starts=starts,
        lengths=lengths,
        offsets=offsets,
    )


def turn_table(
    layout: Layout, weights: np.ndarray, *, turn_offsets: np.ndarray, tail: int
) -> np.ndarray:
    """Return the TURN records, starts counted from the first token of each chat."""
    turns = np.zeros(len(layout.roles), TURN)
    turns["start"] = layout.starts - np.repeat(layout.offsets[:-1], np.diff(turn_offsets))
    turns["length"] = layout.lengths
    turns["head"] = layout.heads
    turns["tail"] = tail
    turns["weight"] = weights
    turns["role"] = layout.roles
    return turns


def assemble(encoded: Encoded, layout: Layout, *, bound: Bound) -> np.ndarray:
    """Return the ids of all chats, uint32 [total]."""
    ids = np.empty(layout.offsets[-1], np.uint32)
    is_text = np.ones(len(ids), bool)

    def write(starts: np.ndarray, fixed: np.ndarray) -> None:
        for number, token in enumerate(fixed):
            ids[starts + number] = token
            is_text[starts + number] = False

    write(layout.offsets[:-1], bound.preamble)
    for role, header in bound.headers.items():
        turns = np.flatnonzero(layout.roles == ROLE_CODES[role])
        starts = layout.starts[turns]
        write(starts, header.before)
        write(starts + len(header.before) + layout.names[turns], header.after)
    stops = layout.starts + layout.heads + layout.contents
    write(stops, bound.end)
    write(stops + len(bound.end), bound.tail)
    if len(encoded.ids):
        np.place(ids, is_text, encoded.ids)
    return ids
