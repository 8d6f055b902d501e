"""Serialize, mask, pack and collate chats: contract 001, function by function.

A face of tokenreel: rendering, masking, turn scanning and truncation are done there. These
functions take and return Python lists and cost accordingly; whole corpora are
better rendered by `tokenreel.text.chats`. torch is imported by `collate_sft_batch`
alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Protocol, TypedDict, cast

import numpy as np

from niels_gpt.format.messages import normalize_messages
from tokenreel.dropin.caches.cache_parts import SpecialIds
from tokenreel.dropin.caches.chat_ids import assistant_mask, oldest_pairs
from tokenreel.errors import ConfigError, InputError, MissingExtraError
from tokenreel.text.chats.render import render
from tokenreel.text.chats.shapes import read_chat
from tokenreel.text.chats.templates import DEFAULT_SYSTEM_TEXT, NGPT
from tokenreel.text.tokenizers import Tokenizer
from tokenreel.text.tokenizers.adapted import AdaptedTokenizer
from tokenreel.text.turns import ROLE_CODES, scan_turns

if TYPE_CHECKING:
    import torch

__all__ = [
    "DEFAULT_SYSTEM_TEXT",
    "IGNORE_INDEX",
    "ChatExample",
    "ChatMsg",
    "collate_sft_batch",
    "pack_sft_ids_and_mask",
    "serialize_chat_to_ids",
    "sft_loss_mask_for_ids",
]

IGNORE_INDEX = -100


class ChatMsg(TypedDict):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


class ChatExample(TypedDict):
    """One chat; the system message may be missing."""

    messages: list[ChatMsg]


class _TokenizerLike(Protocol):
    def encode(self, text: str) -> list[int]: ...

    def special_token_ids(self) -> dict[str, int]: ...


def serialize_chat_to_ids(
    ex: ChatExample,
    *,
    tokenizer: _TokenizerLike,
    default_system_text: str,
) -> list[int]:
    """Return the ids of a chat: per message its role id, its content and an end-of-turn id.

    The system turn comes first and there is one: the system message, wherever it stands,
    several joined by an empty line, or `default_system_text` if there is none. The other
    messages keep their order. Roles may be in upper case, and `prompter` is the user; any
    other role, and a chat without messages, raise InputError. Content that spells a special
    token is ordinary text; if the tokenizer makes a special id of it, that is a
    VocabularyError. The tokenizer needs `encode` and `special_token_ids` and nothing else.
    """
    template = replace(NGPT, default_system=default_system_text)
    messages = normalize_messages(ex.get("messages"))
    chat = read_chat({**ex, "messages": messages}, shape="messages")
    # No `adapt`: it asks for a vocab_size, which rendering does not need.
    adapted = tokenizer if isinstance(tokenizer, Tokenizer) else AdaptedTokenizer(tokenizer)
    rendered = render([chat], template, tokenizer=adapted)
    return [int(token) for token in rendered.ids]


def sft_loss_mask_for_ids(
    ids: list[int],
    *,
    sys_id: int,
    usr_id: int,
    asst_id: int,
    eot_id: int,
) -> list[bool]:
    """Return True for assistant content and the end-of-turn that ends it, False elsewhere.

    Found by scanning, by the rule of `tokenreel.dropin.caches.chat_ids.assistant_mask`,
    which contract 002 uses too: a span opens behind `asst_id` and closes with the next
    `eot_id`, or in front of a role id that comes first. There the contract contradicts
    itself; this way role ids and other speakers' content are never trained.
    """
    special = SpecialIds(roles=(sys_id, usr_id, asst_id), asst=asst_id, eot=eot_id)
    return assistant_mask(np.array([ids], np.int64), ids=special)[0].tolist()


def pack_sft_ids_and_mask(
    ids: list[int],
    mask: list[bool],
    *,
    S: int,  # noqa: N803 - the contract's name
    sys_id: int,
    usr_id: int,
    asst_id: int,
    eot_id: int,
    pad_id: int,
) -> tuple[list[int], list[bool]]:
    """Return ids and mask of length exactly S: whole turns dropped, cut, or padded.

    Too long: user-assistant pairs behind the system turn go, oldest first; then, with
    only the system turn and the last pair left, the last S tokens of them stay. The mask
    is carried along, never found again, so a cut answer is still trained. Too short:
    `pad_id` on the right, masked.

    Imperfect input. No system turn: nothing is put in its place. Tokens before the first
    role id: the first to go. Two users in a row: the older goes by itself, before the
    newer. Two assistants in a row: the older goes alone. No assistant: the last turn
    takes the place of the last answer. Turns behind the last answer stay, unless the last
    S tokens would miss the answer's end-of-turn: then they go and the cut ends with it.
    No role id at all: the last S tokens.
    """
    if S < 1:
        raise ConfigError("a sequence of no tokens", where="S", expected=">= 1", actual=S)
    if len(ids) != len(mask):
        raise InputError("ids and mask differ in length", expected=len(ids), actual=len(mask))
    tokens, trained = np.asarray(ids, np.int64), np.asarray(mask, bool)
    turns = _scan(tokens, sys_id=sys_id, usr_id=usr_id, asst_id=asst_id, eot_id=eot_id)
    if len(tokens) > S and len(turns) and turns["start"][0]:
        loose = turns["start"][0]
        tokens, trained = tokens[loose:], trained[loose:]
        turns["start"] -= loose
    cut = oldest_pairs(turns, len(tokens), max_tokens=S)
    kept_ids, kept_mask = cut.take(tokens).tolist(), cut.take(trained).tolist()
    padding = S - len(kept_ids)
    return kept_ids + [pad_id] * padding, kept_mask + [False] * padding


def collate_sft_batch(
    packed: list[tuple[list[int], list[bool]]],
    *,
    T: int,  # noqa: N803 - the contract's name
    device: str,
    ignore_index: int = IGNORE_INDEX,
) -> tuple[torch.LongTensor, torch.LongTensor, torch.BoolTensor]:
    """Return x, y and loss_mask, each (B, T): y is x shifted, `ignore_index` where masked."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", extra="torch", purpose="collating a batch") from error
    _require_length(packed, T + 1)
    shape = (len(packed), T + 1)
    tokens = np.array([ids for ids, _ in packed], np.int64).reshape(shape)
    loss_mask = np.array([mask for _, mask in packed], bool).reshape(shape)[:, 1:].copy()
    labels = np.where(loss_mask, tokens[:, 1:], ignore_index)
    x, y, trained = (
        torch.from_numpy(array).to(device) for array in (tokens[:, :-1].copy(), labels, loss_mask)
    )
    return cast("tuple[torch.LongTensor, torch.LongTensor, torch.BoolTensor]", (x, y, trained))


def _require_length(packed: list[tuple[list[int], list[bool]]], length: int) -> None:
    for number, (ids, mask) in enumerate(packed):
        if len(ids) != length or len(mask) != length:
            raise InputError(
                f"item {number} of the batch has the wrong length",
                expected=f"{length} ids and flags (T + 1)",
                actual=f"{len(ids)} ids and {len(mask)} flags",
                remedy="pack it with S = T + 1",
            )


def _scan(tokens: np.ndarray, *, sys_id: int, usr_id: int, asst_id: int, eot_id: int) -> np.ndarray:
    role_ids = {
        sys_id: ROLE_CODES["system"],
        usr_id: ROLE_CODES["user"],
        asst_id: ROLE_CODES["assistant"],
    }
    return scan_turns(tokens, role_ids, end_id=eot_id)
