"""Which turns are trained, and how much.

    assistant        every assistant turn weighs 1 (the default)
    last_assistant   only the last assistant turn of a chat weighs 1
    each_answer      the same, in documents that end with the answer which they train: one for
                     each answer of a chat
    last_answer      of these the last
    all              every turn weighs 1, tool results excepted
    {role: weight}   as said; a role that is not named weighs 0

A message's own `train` or `weight` outranks the policy. Tool calls are part of the
assistant's turn and trained with it; tool results never are, under no policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tokenreel.errors import ConfigError
from tokenreel.text.chats.messages import Chat
from tokenreel.text.turns import ROLE_CODES, ROLES

Policy = str | Mapping[str, float]

BY_ANSWER = ("each_answer", "last_answer")
# For chats in which a template writes earlier answers in another way once more messages follow.
REMEDY = (
    'train each answer in a document of its own (policy="each_answer"), or the last alone '
    '(policy="last_answer")'
)
# For a document that ends with its answer already: the template rewrites what leads to it.
_REMEDY_BY_ANSWER = (
    "leave such chats out, or change the template so that it writes what leads to an answer in "
    "the same way with the answer and without"
)

_NAMED: Mapping[str, Mapping[str, float]] = {
    "assistant": {"assistant": 1.0},
    "last_assistant": {"assistant": 1.0},
    "each_answer": {"assistant": 1.0},
    "last_answer": {"assistant": 1.0},
    "all": {"system": 1.0, "user": 1.0, "assistant": 1.0},
}


def remedy_of(policy: Policy) -> str:
    """Return what to do where a template writes an answer in another way once more follows."""
    return _REMEDY_BY_ANSWER if policy in BY_ANSWER else REMEDY


def turn_weights(roles: np.ndarray, turn_offsets: np.ndarray, *, policy: Policy) -> np.ndarray:
    """Return the weight of each turn under a policy, float32 [turns].

    roles: role codes [turns]; turn_offsets: where each chat's turns begin [chats + 1].

    >>> roles = np.array([1, 2, 1, 2], np.uint8)
    >>> turn_weights(roles, np.array([0, 4]), policy="last_assistant").tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    table = np.zeros(len(ROLES), np.float32)
    for role, weight in _role_weights(policy).items():
        table[ROLE_CODES[role]] = weight
    weights = table[roles]
    if policy in ("last_assistant", *BY_ANSWER):
        spoken = np.flatnonzero(roles == ROLE_CODES["assistant"])
        chat = np.searchsorted(turn_offsets, spoken, side="right")
        weights[spoken[:-1][chat[:-1] == chat[1:]]] = 0
    return weights


def _role_weights(policy: Policy) -> Mapping[str, float]:
    if isinstance(policy, str):
        if policy in _NAMED:
            return _NAMED[policy]
        raise ConfigError(
            "no such loss policy",
            expected=f"one of {', '.join(_NAMED)}, or a weight per role",
            actual=repr(policy),
        )
    for role, weight in policy.items():
        if role not in ROLES:
            raise ConfigError(
                "a loss policy for an unknown role",
                expected=f"one of {', '.join(ROLES)}",
                actual=repr(role),
            )
        if not (math.isfinite(weight) and weight >= 0):
            raise ConfigError(
                f"the weight of role {role!r} is not a number from 0 up", actual=repr(weight)
            )
    if policy.get("tool", 0) > 0:
        raise ConfigError(
            "a loss policy that trains tool results", remedy="leave the role 'tool' out"
        )
    return policy


def by_answer(chats: Sequence[Chat], *, policy: Policy) -> list[Chat]:
    """Return the chats that a policy trains: one for each answer, where the policy says so.

    Each ends with its answer, and only that one may weigh. A chat without an answer that weighs
    stays one chat, of which nothing is trained.

    >>> from tokenreel.text.chats.messages import Message
    >>> said = tuple(Message(role=role, content="") for role in ("user", "assistant") * 2)
    >>> documents = by_answer([Chat(messages=said)], policy="each_answer")
    >>> [len(document.messages) for document in documents]
    [2, 4]
    """
    if policy not in BY_ANSWER:
        return list(chats)
    documents = []
    for chat in chats:
        stops = [
            number
            for number, message in enumerate(chat.messages, 1)
            if message.role == "assistant" and message.weight != 0
        ]
        stops = stops if policy == "each_answer" else stops[-1:]
        unweighted = tuple(replace(message, weight=0.0) for message in chat.messages)
        for stop in stops or [0]:
            messages = (*unweighted[: stop - 1], chat.messages[stop - 1]) if stop else unweighted
            documents.append(replace(chat, messages=messages))
    return documents
