"""The array work of rendering: where every token goes, without a loop over tokens.

For templates that are tight: every content stands between two control tokens of its own turn,
so that what joins two turns is fixed text. Then a turn is

    │ before │ stretch: header's text, content, text up to the next control │ after │ joint │

where `before` and `after` are fixed ids of the role, `joint` fixed ids of the role and the next
one, and the stretches of all turns are encoded in one call. They fill the places that are not the
template's in one masked assignment. About 10 bytes of temporary memory per token.

`template_text.py` does the same for every template, and is what this is tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tokenreel.text.chats.jinja_tokens import Cutter
from tokenreel.text.chats.template import Control, Name, Parts, Template, Text, spelled
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded
from tokenreel.text.turns import ROLE_CODES

NOBODY = len(ROLE_CODES)  # stands before the first turn of a chat, and behind the last
_FOLLOWERS = ("", "a")  # what stands behind a header when its ids are looked for; one token


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What a tight template puts around the messages of a role.

    opening: text before the first control token, which joins the turn before; header: text of
    the stretch before the content, split where a name goes; footer: text of the stretch behind
    it; before, after: control tokens and the text between them; num_trained: how many parts of
    `after` are trained; closing: text behind the last control token.
    """

    opening: str
    before: Parts
    header: Parts
    footer: str
    after: Parts
    num_trained: int
    closing: str


def frame(template: Template, role: str) -> Frame | None:
    """Return what stands around the messages of a role, or None if that is not tight."""
    header = dict(template.headers)[role]
    end = template.end_of(role)
    behind = (*end, *template.tail)
    left, right = _control_places(header), _control_places(behind)
    if not left or not right:
        return None
    opening, before, rest = (
        header[: left[0]],
        header[left[0] : left[-1] + 1],
        header[left[-1] + 1 :],
    )
    if any(isinstance(part, Name) for part in (*opening, *before)):
        return None
    # The trained span ends with the stretch, or with a control token: else only characters tell.
    num_trained = max(0, len(end) - right[0])
    is_untold = spelled(behind[len(end) : right[0]]) or len(end) > right[-1] + 1
    if is_untold or (num_trained and not isinstance(end[-1], Control)):
        return None
    return Frame(
        opening=spelled(opening),
        before=before,
        header=rest,
        footer=spelled(behind[: right[0]]),
        after=behind[right[0] : right[-1] + 1],
        num_trained=num_trained,
        closing=spelled(behind[right[-1] + 1 :]),
    )


def _control_places(parts: Parts) -> list[int]:
    return [number for number, part in enumerate(parts) if isinstance(part, Control)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Joint:
    """Fixed ids between two turns; the first `num_first` of them belong to the first turn."""

    ids: np.ndarray
    num_first: int


class Tight:
    """A tight template for one tokenizer."""

    def __init__(self, template: Template, cutter: Cutter, control_ids: dict[str, int]) -> None:
        self._cutter = cutter
        self._control_ids = control_ids
        self._template = template
        frames = {role: frame(template, role) for role, _ in template.headers}
        self.frames = {role: known for role, known in frames.items() if known is not None}
        self.is_tight = len(self.frames) == len(frames) and not cutter.strips(template.controls)

    @cached_property
    def _by_code(self) -> dict[int, Frame]:
        return {ROLE_CODES[role]: known for role, known in self.frames.items()}

    def texts(
        self, roles: Sequence[str], contents: Sequence[str], names: dict[int, str]
    ) -> tuple[list[str], dict[str, str], dict[int, int]]:
        """Return the stretches, the header's text of each role, and the lengths of named ones."""
        headers = {role: spelled(known.header) for role, known in self.frames.items()}
        texts = [headers[role] + content for role, content in zip(roles, contents, strict=True)]
        named = {}
        for index, name in names.items():
            parts = self.frames[roles[index]].header
            head = "".join(
                part.name + name if isinstance(part, Name) else spelled((part,)) for part in parts
            )
            texts[index] = head + contents[index]
            named[index] = len(head)
        footers = {role: known.footer for role, known in self.frames.items()}
        if any(footers.values()):
            texts = [text + footers[role] for text, role in zip(texts, roles, strict=True)]
        return texts, headers, named

    def fixed_ids(self, parts: Parts, *, is_first: bool = False) -> np.ndarray:
        """Return the ids of parts that begin and end with control tokens, or of text alone."""
        pieces, text = [np.empty(0, np.uint32)], ""
        for part in (*parts, None):
            if isinstance(part, Text):
                text += part.text
                continue
            pieces.append(self._cutter.encode_one(text, is_first=is_first))
            text, is_first = "", False
            if isinstance(part, Control):
                pieces.append(np.array([self._control_ids[part.control]], np.uint32))
        return np.concatenate(pieces)

    def joint(self, code: int, following: int) -> _Joint:
        """Return what joins two turns by the codes of their roles."""
        opening = self._by_code[following].opening if following != NOBODY else ""
        if code == NOBODY:
            places = _control_places(self._template.preamble)
            stop = places[-1] + 1 if places else 0
            fixed = self.fixed_ids(self._template.preamble[:stop], is_first=True)
            closing, is_first = spelled(self._template.preamble[stop:]), not places
        else:
            fixed, closing, is_first = np.empty(0, np.uint32), self._by_code[code].closing, False
        ids = self._cutter.encode_one(closing + opening, is_first=is_first)
        num_first = len(ids)
        if opening:
            text = closing + opening
            num_first = self._cutter.cut_ids(text, ids, len(closing), is_first=is_first)[1]
        return _Joint(ids=np.concatenate((fixed, ids)), num_first=len(fixed) + num_first)

    def header_ids(self, header: str) -> list[np.ndarray]:
        """Return how the text of a header may be encoded where a content follows."""
        found: list[np.ndarray] = []
        for follower in _FOLLOWERS:
            ids = self._cutter.encode_one(header + follower, is_first=False)
            ids = ids[: len(ids) - len(follower)]
            if self._cutter.spells(ids, header):
                found.append(ids)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where everything goes; one entry per turn unless said otherwise, counted in tokens.

    before, stretches: where these begin, from the first token of the first chat; pairs: the codes
    of a turn's role and the next one, as one number; joints, firsts: what joins turns and begins
    chats, by these numbers and by role codes; offsets: int64 [chats + 1].
    """

    roles: np.ndarray
    before: np.ndarray
    stretches: np.ndarray
    lengths: np.ndarray
    after: np.ndarray
    pairs: np.ndarray
    joints: dict[int, _Joint]
    firsts: dict[int, _Joint]
    fixed: dict[int, tuple[np.ndarray, np.ndarray]]
    starts: np.ndarray
    span_stops: np.ndarray
    stops: np.ndarray
    offsets: np.ndarray


def lay_out(
    tight: Tight, encoded: Encoded, roles: np.ndarray, *, turn_offsets: np.ndarray
) -> Layout:
    """Return where everything goes; no chat is empty."""
    codes = np.unique(roles).tolist()
    by_code = {ROLE_CODES[role]: known for role, known in tight.frames.items()}
    fixed = {
        c: (tight.fixed_ids(by_code[c].before), tight.fixed_ids(by_code[c].after)) for c in codes
    }
    num_before, num_after = (
        _table({c: len(both[side]) for c, both in fixed.items()}, roles) for side in (0, 1)
    )
    trained = {c: len(tight.fixed_ids(by_code[c].after[: by_code[c].num_trained])) for c in codes}
    # The role behind each turn; nobody behind the last of a chat.
    following = np.append(roles[1:], np.uint8(NOBODY))[: len(roles)].astype(np.int64)
    following[turn_offsets[1:] - 1] = NOBODY
    pairs = roles.astype(np.int64) * (NOBODY + 1) + following
    joints = {p: tight.joint(*divmod(p, NOBODY + 1)) for p in np.unique(pairs).tolist()}
    num_joint, num_closing = _sizes(joints, pairs)
    # What begins a chat stands before its first turn.
    first_roles = roles[turn_offsets[:-1]]
    firsts = {c: tight.joint(NOBODY, c) for c in np.unique(first_roles).tolist()}
    num_first, num_preamble = _sizes(firsts, first_roles)
    lead = np.zeros(len(roles), np.int64)
    lead[turn_offsets[:-1]] = num_first
    lengths = np.diff(encoded.offsets)
    ends = np.cumsum(lead + num_before + lengths + num_after + num_joint)
    after = ends - num_joint - num_after
    stretches = after - lengths
    stops = after + num_after + num_closing
    # A turn begins where the one before stops, or behind its chat's preamble.
    starts = np.concatenate(([0], stops))[: len(roles)]
    offsets = np.concatenate(([0], ends))[turn_offsets]
    starts[turn_offsets[:-1]] = offsets[:-1] + num_preamble
    return Layout(
        roles=roles,
        before=stretches - num_before,
        stretches=stretches,
        lengths=lengths,
        after=after,
        pairs=pairs,
        joints=joints,
        firsts=firsts,
        fixed=fixed,
        starts=starts,
        span_stops=after + _table(trained, roles),
        stops=stops,
        offsets=offsets,
    )


def _table(by_code: dict[int, int], codes: np.ndarray) -> np.ndarray:
    """Return the number of each code, int64."""
    table = np.zeros(max(by_code, default=0) + 1, np.int64)
    for code, number in by_code.items():
        table[code] = number
    return table[codes]


def _sizes(joints: dict[int, _Joint], numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how many tokens joints have, and how many of these belong to the first turn."""
    return (
        _table({number: len(joint.ids) for number, joint in joints.items()}, numbers),
        _table({number: joint.num_first for number, joint in joints.items()}, numbers),
    )


def assemble(encoded: Encoded, layout: Layout, *, turn_offsets: np.ndarray) -> np.ndarray:
    """Return the ids of all chats, uint32 [total]."""
    ids = np.empty(layout.offsets[-1], np.uint32)
    is_text = np.ones(len(ids), bool)

    def put(starts: np.ndarray, fixed: np.ndarray) -> None:
        for number, token in enumerate(fixed):
            ids[starts + number] = token
            is_text[starts + number] = False

    first_roles = layout.roles[turn_offsets[:-1]]
    for code, first in layout.firsts.items():
        put(layout.offsets[:-1][first_roles == code], first.ids)
    for code, (before, after) in layout.fixed.items():
        turns = np.flatnonzero(layout.roles == code)
        put(layout.before[turns], before)
        put(layout.after[turns], after)
    for pair, joint in layout.joints.items():
        turns = np.flatnonzero(layout.pairs == pair)
        num_after = len(layout.fixed[pair // (NOBODY + 1)][1])
        put(layout.after[turns] + num_after, joint.ids)
    if len(encoded.ids):
        np.place(ids, is_text, encoded.ids)
    return ids


def begun_before(
    encoded: Encoded, chosen: np.ndarray, candidates: Sequence[np.ndarray]
) -> np.ndarray:
    """Return how many tokens of the chosen stretches are the header's, int64; -1 if unknown.

    A stretch that begins with the ids of a candidate has its content behind them.
    """
    begun = np.full(len(chosen), -1, np.int64)
    starts, lengths = encoded.offsets[chosen], np.diff(encoded.offsets)[chosen]
    for candidate in candidates:
        open_ = np.flatnonzero((begun < 0) & (lengths >= len(candidate)))
        for number, token in enumerate(candidate):
            open_ = open_[encoded.ids[starts[open_] + number] == token]
        begun[open_] = len(candidate)
    return begun
