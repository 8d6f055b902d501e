"""Message trees to conversations: one conversation per tree, along its best answers.

The rule. A tree starts at a message without a parent. From there, at every fork, the child
with the lowest `rank` follows (no rank: last; ties: by message_id). Deleted messages are
dropped with all that answers them, and so are messages whose parent is not there. The path
ends at its last assistant turn; a tree without one gives nothing. `prompter` is the user.
Conversations come in the order in which their first messages come.

A tree may be spread over the whole split, so one split of messages is held in memory
(oasst1: 85,000 messages, about 100 MB).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenreel.text.sources.record import Bad, Record, bad_record
from tokenreel.text.sources.source_protocol import Cursor, Range, Step, TextSource

ROLES = {"prompter": "user", "assistant": "assistant"}
NO_RANK = float("inf")


class MessageTrees(TextSource):
    """Read a source of tree messages as a source of conversations."""

    def __init__(self, source: TextSource) -> None:
        self.name = source.name
        self.options = source.options
        self._source = source

    def identity(self) -> dict[str, Any]:
        """Return the identity of the messages, and the rule."""
        return {"kind": "trees", "rule": "best-ranked path", "source": self._source.identity()}

    def ranges(self, target_bytes: int) -> list[Range]:
        """Return one range: a tree may be spread over all of the messages."""
        parts = self._source.ranges(target_bytes)
        return [Range(kind="stream", num_bytes=sum(part.num_bytes for part in parts))]

    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield the conversation of each tree with the number of the next tree."""
        first = 0 if cursor is None else cursor["tree"]
        records: list[Record] = []
        for messages in self._source.ranges(1 << 62):
            for item, _ in self._source.steps(messages):
                checked = _checked(item)
                if isinstance(checked, Record):
                    records.append(checked)
                elif not first:
                    yield checked, {"tree": 0}
        places = {_message(record)["message_id"]: record.provenance for record in records}
        trees = conversations([_message(record) for record in records])
        for number, (root, turns) in enumerate(trees):
            if number >= first:
                record = Record(value={"messages": turns}, provenance=places[root])
                yield record, {"tree": number + 1}


def conversations(
    messages: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield (id of the first message, turns) for each tree that has an answer.

    >>> ask = {"message_id": "a", "parent_id": None, "role": "prompter", "text": "Hi?"}
    >>> worse = {"message_id": "b", "parent_id": "a", "role": "assistant", "text": "No", "rank": 1}
    >>> best = {"message_id": "c", "parent_id": "a", "role": "assistant", "text": "Yes", "rank": 0}
    >>> [[turn["content"] for turn in turns] for _, turns in conversations([ask, worse, best])]
    [['Hi?', 'Yes']]
    """
    kept = [message for message in messages if not message.get("deleted")]
    answers: dict[str, list[Mapping[str, Any]]] = {}
    for message in kept:
        if message.get("parent_id") is not None:
            answers.setdefault(message["parent_id"], []).append(message)
    for message in kept:
        if message.get("parent_id") is None:
            turns = [_turn(step) for step in _best_path(message, answers)]
            while turns and turns[-1]["role"] != "assistant":
                turns.pop()
            if turns:
                yield message["message_id"], turns


def _best_path(
    root: Mapping[str, Any], answers: Mapping[str, Iterable[Mapping[str, Any]]]
) -> Iterator[Mapping[str, Any]]:
    step: Mapping[str, Any] | None = root
    seen: set[str] = set()
    # A damaged tree may lead back to itself.
    while step is not None and step["message_id"] not in seen:
        seen.add(step["message_id"])
        yield step
        step = min(answers.get(step["message_id"], ()), key=_rank, default=None)


def _rank(message: Mapping[str, Any]) -> tuple[float, str]:
    rank = message.get("rank")
    return (NO_RANK if rank is None else rank, message["message_id"])


def _turn(message: Mapping[str, Any]) -> dict[str, str]:
    return {"role": ROLES.get(message["role"], message["role"]), "content": message["text"]}


def _checked(item: Record | Bad) -> Record | Bad:
    if isinstance(item, Bad):
        return item
    missing = [key for key in ("message_id", "role", "text") if key not in _message(item)]
    if not missing:
        return item
    return bad_record(
        "not a message of a tree",
        item.provenance,
        expected="the keys 'message_id', 'role', 'text'",
        actual=f"the keys {', '.join(map(repr, _message(item)))}",
        remedy='repair the message, or pass on_bad="skip" to count it and go on',
    )


def _message(record: Record) -> dict[str, Any]:
    return record.value or {}
