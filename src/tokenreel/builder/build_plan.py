"""What is built: every choice the bytes of a store depend on, validated once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tokenreel.errors import ConfigError
from tokenreel.text.chats import Policy, Template
from tokenreel.text.sources.source_protocol import TextSource
from tokenreel.text.tokenizers import EndToken, Tokenizer, find_end, take_end

VERSION = 3  # of the way documents are ordered, split and cut; goes into the manifest
Shuffle = Literal["none", "buffer", "torch-buffer", "global"]
CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildPlan:
    """The choices of one build.

    end_token ends every document ("auto": the one the tokenizer declares, see
    text/tokenizers/end_of_text.py; None: nothing is appended; chats end by their
    template). val_frac gives each document a seeded chance to be validation; val_tokens
    and train_tokens are budgets, filled in this order, the last document of each cut to
    fit. min_tokens counts without the end.
    shuffle "torch-buffer" is "buffer" with torch's generator in place of a hash.
    """

    template: Template | None = None
    policy: Policy = "assistant"
    end_token: str | None = "auto"
    seed: int = 42
    val_frac: float = 0.0
    val_tokens: int | None = None
    train_tokens: int | None = None
    shuffle: Shuffle = "none"
    shuffle_buffer: int = 10_000
    deduplicate: bool = False
    min_tokens: int = 1
    provenance: bool = True
    chunk_bytes: int = CHUNK_BYTES

    def __post_init__(self) -> None:
        if self.shuffle not in get_args(Shuffle):
            known = ", ".join(get_args(Shuffle))
            raise ConfigError("bad shuffle", expected=known, actual=repr(self.shuffle))
        if not 0 <= self.val_frac < 1:
            raise ConfigError("bad val_frac", expected=">= 0 and < 1", actual=self.val_frac)
        if self.val_frac and self.val_tokens is not None:
            raise ConfigError(
                "val_frac and val_tokens exclude each other", remedy="give one of them"
            )
        for name in ("val_tokens", "train_tokens", "shuffle_buffer", "min_tokens", "chunk_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"bad {name}", expected=">= 1", actual=value)

    @property
    def is_chat(self) -> bool:
        """Whether records are chats, rendered by a template."""
        return self.template is not None

    def end(self, tokenizer: Tokenizer) -> EndToken | None:
        """Return the token that ends each document and what it is taken from, or None."""
        if self.is_chat or self.end_token is None:
            return None
        if self.end_token == "auto":
            return find_end(tokenizer)
        return take_end(tokenizer.control_ids, self.end_token, source="argument")

    def end_id(self, tokenizer: Tokenizer) -> int | None:
        """Return the id that ends each document, or None."""
        end = self.end(tokenizer)
        return None if end is None else end.id

    def as_facts(self, source: TextSource, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return what goes into the manifest: equal facts, equal bytes."""
        return {
            "version": VERSION,
            "source": source.fingerprint(),
            "template": None if self.template is None else self.template.fingerprint,
            "policy": dict(self.policy) if isinstance(self.policy, Mapping) else self.policy,
            "end_id": self.end_id(tokenizer),
            "seed": self.seed,
            "val_frac": self.val_frac,
            "val_tokens": self.val_tokens,
            "train_tokens": self.train_tokens,
            "shuffle": self.shuffle,
            "shuffle_buffer": self.shuffle_buffer if self.shuffle.endswith("buffer") else None,
            "deduplicate": self.deduplicate,
            "min_tokens": self.min_tokens,
            "chunk_bytes": self.chunk_bytes,
        }
