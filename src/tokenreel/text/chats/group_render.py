"""Groups of answers as ids with one turn table each: what a store of groups keeps.

A group is one document: its answers end to end, each rendered in full behind its prompt, by
whatever template chats are rendered by. Nothing of an answer depends on the others.
Where a template puts no control token between prompt and answer, both are encoded as one text, and
a token that holds letters of both is not trained (TRL 1.16 has the same ids, and trains it).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np

from tokenreel.errors import InputError
from tokenreel.text.chats.model_template import ModelTemplate
from tokenreel.text.chats.policy import REMEDY, Policy
from tokenreel.text.chats.preferences import Group
from tokenreel.text.chats.render import MAX_HEAD_TOKENS, Rendered, render
from tokenreel.text.chats.template import Template
from tokenreel.text.tokenizers.tokenizer_protocol import Tokenizer

# A group is one document, so what helps a chat, each answer in a document of its own, does not.
ONE_ANSWER = 'train the last message of each answer alone (policy="last_answer")'


def render_groups(
    groups: Sequence[Group],
    template: Template | ModelTemplate,
    *,
    tokenizer: Tokenizer,
    policy: Policy = "assistant",
) -> Rendered:
    """Render groups; what `Rendered` says of chats holds for groups, as documents."""
    chats = [chat for group in groups for chat in group.answers]
    try:
        rendered = render(chats, template, tokenizer=tokenizer, policy=policy)
    except InputError as error:
        if error.remedy != REMEDY:
            raise
        raise _with_remedy(error, ONE_ANSWER) from error
    counts = [len(group.answers) for group in groups]
    first = np.cumsum([0, *counts])  # the first chat of each group, and the end
    return Rendered(
        ids=rendered.ids,
        offsets=rendered.offsets[first],
        turns=_answer_turns(rendered, groups, np.array(counts, np.int64)),
        turn_offsets=rendered.turn_offsets[first],
        unrendered=[
            list(dict.fromkeys(chain.from_iterable(rendered.unrendered[start:stop])))
            for start, stop in pairwise(first.tolist())
        ],
    )


def _answer_turns(
    rendered: Rendered, groups: Sequence[Group], num_answers: np.ndarray
) -> np.ndarray:
    """Return the turns with starts counted from their group, numbers and labels of answers."""
    turns = rendered.turns.copy()
    num_turns = np.diff(rendered.turn_offsets)
    _refuse_silent(groups, num_turns)
    # The number and the label of each chat, and where it begins in its group; then of each turn.
    numbers = np.concatenate([np.arange(count) for count in num_answers])
    labels = np.array([label for group in groups for label in group.labels])
    begins = rendered.offsets[:-1] - np.repeat(
        rendered.offsets[np.cumsum(num_answers) - num_answers], num_answers
    )
    turns["answer"], turns["label"] = np.repeat(numbers, num_turns), np.repeat(labels, num_turns)
    # What a template writes before the first turn of a chat goes into that turn's head, so that
    # the turn begins with its answer. The head of a turn that weighs nothing says nothing.
    first = rendered.turn_offsets[:-1]
    heads = turns["start"][first].astype(np.int64) + turns["head"][first]
    long = (heads > MAX_HEAD_TOKENS) & (turns["weight"][first] > 0)
    if long.any():
        number = int(np.argmax(long))
        raise InputError(
            "the template writes too much before an answer",
            where=str([chat for group in groups for chat in group.answers][number].provenance),
            expected=f"at most {MAX_HEAD_TOKENS:,} tokens",
            actual=int(heads[number]),
        )
    turns["length"][first] += turns["start"][first].astype(np.uint32)
    turns["head"][first] = np.minimum(heads, MAX_HEAD_TOKENS)
    turns["start"][first] = 0
    turns["start"] += np.repeat(begins, num_turns).astype(np.uint64)
    return turns


def _with_remedy(error: InputError, remedy: str) -> InputError:
    return InputError(
        error.what,
        where=error.where,
        expected=error.expected,
        actual=error.actual,
        remedy=remedy,
    )


def _refuse_silent(groups: Sequence[Group], num_turns: np.ndarray) -> None:
    if not num_turns.all():
        chats = [chat for group in groups for chat in group.answers]
        raise InputError(
            "the template renders no message of an answer and its prompt",
            where=str(chats[int(np.argmin(num_turns))].provenance),
        )
