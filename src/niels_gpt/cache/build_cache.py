"""Build token caches from texts and chats in memory: contract 002's two builders.

Faces of `tokenreel.dropin.caches.cache_build`. The cache appears whole, meta.json included, or not
at all; a folder that is there already, unless empty, is refused and never altered. The
input is read once, in order, and never held; equal input and seed give equal bytes.
Nothing can be resumed, because an iterable cannot be read again from its middle.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict

from niels_gpt.cache.meta import sha256_file
from niels_gpt.format.messages import normalize_messages
from tokenreel.dropin.caches.cache_build import build_budgeted, build_chats
from tokenreel.dropin.caches.cache_builder import CacheBuilder
from tokenreel.errors import ConfigError
from tokenreel.text.sources import InMemory, ReadOptions
from tokenreel.text.tokenizers import adapt

BUDGET_RULE = "one stream of tokens: the first max_val_tokens are val, the next ones train"
EXAMPLE_RULE = "by example: torch.randperm(examples) by seed, the first val_frac of it is val"
UNNAMED = "in memory"  # the folder's name would make equal caches differ


class Message(TypedDict):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


def build_pretrain_cache(
    texts: Iterable[str],
    out_dir: str,
    *,
    tokenizer: Any,
    max_train_tokens: int,
    max_val_tokens: int,
    shard_bytes: int,
    seed: int,
    shuffle_buffer: int | None,
) -> None:
    """Write out_dir/train/shard_*.bin, out_dir/val/shard_*.bin and out_dir/meta.json.

    The tokens of all texts are one stream without separators. Its first `max_val_tokens`
    are validation and the next `max_train_tokens` training: both are ceilings, a text that
    validation cuts goes on in training. Reading stops when both are full, with the 8 MiB of
    text that were being encoded. Texts that fill neither give what they have: `train/`, or
    with max_val_tokens 0 `val/`, is then empty. Texts are shuffled in blocks of
    `shuffle_buffer`, each block by torch.randperm; None or 0 keeps their order. No token at
    all is an EmptyError.
    """
    if isinstance(texts, str):
        raise ConfigError("texts is one string, not many", remedy="pass a list: [text]")
    build_budgeted(
        _builder(tokenizer, seed),
        InMemory(iter(texts)),
        Path(out_dir),
        about={"dataset_name": UNNAMED, "split_rule": BUDGET_RULE},
        val_tokens=max_val_tokens,
        train_tokens=max_train_tokens,
        shuffle_buffer=shuffle_buffer or None,
        shard_bytes=shard_bytes,
    )


def build_sft_cache(
    examples: Iterable[list[Message]],
    out_dir: str,
    *,
    tokenizer: Any,
    val_frac: float,
    seed: int,
) -> None:
    """Write out_dir/{train,val}_tokens.bin, {train,val}_idx.npy (offsets only) and meta.json.

    A chat is rendered as in contract 001: one system turn first, with the default text where
    there is none, and per message its role id, its content and the end-of-turn id. Content never
    becomes a control id: a tokenizer that makes one of it is a VocabularyError. Round
    (val_frac x examples) of them, one at least, are validation; both keep their order.
    """
    build_chats(
        _builder(tokenizer, seed),
        InMemory(
            map(normalize_messages, examples), options=ReadOptions(text_key=None, id_key=None)
        ),
        Path(out_dir),
        about={"dataset_name": UNNAMED, "split_rule": EXAMPLE_RULE},
        val_frac=val_frac,
    )


def _builder(tokenizer: Any, seed: int) -> CacheBuilder:
    adapted = adapt(tokenizer)
    model = Path(getattr(tokenizer, "model_path", None) or "")
    sha256 = sha256_file(str(model)) if model.is_file() else adapted.fingerprint
    return CacheBuilder(tokenizer=adapted, tokenizer_sha256=sha256, seed=seed)
