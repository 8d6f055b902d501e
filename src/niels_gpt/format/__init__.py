"""Chats as token ids, loss masks and batches, with the interface of contract 001."""

from niels_gpt.format.sft import (
    DEFAULT_SYSTEM_TEXT,
    IGNORE_INDEX,
    ChatExample,
    ChatMsg,
    collate_sft_batch,
    pack_sft_ids_and_mask,
    serialize_chat_to_ids,
    sft_loss_mask_for_ids,
)

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
