"""What is built: every choice the bytes of a store depend on, validated once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenreel.builder.build_settings import Choices
from tokenreel.config.settings import declared, identity_of
from tokenreel.text.chats import ModelTemplate, Template
from tokenreel.text.sources.source_protocol import TextSource
from tokenreel.text.tokenizers import EndToken, Tokenizer, find_end, take_end

VERSION = 3  # of the way documents are ordered, split and cut; goes into the manifest


@dataclass(frozen=True, kw_only=True)
class BuildPlan(Choices):
    """The choices of one build, with the template that chats are rendered by.

    end_token "auto" is the one that the tokenizer declares (text/tokenizers/end_of_text.py).
    val_tokens and train_tokens are budgets, filled in this order.
    """

    template: Template | ModelTemplate | None = declared(
        None, "of chats; None: records are documents", identity=False
    )
    pairs: bool = declared(False, "whether records are groups of answers", identity=False)
    prompts: bool = declared(False, "whether records are prompts", identity=False)
    prompt_key: str | None = declared(None, "the field of the prompt", identity=False)

    @property
    def is_chat(self) -> bool:
        """Whether records are chats, rendered by a template."""
        return self.template is not None

    @property
    def has_turns(self) -> bool:
        """Whether records are read whole and documents have turns: chats, groups, prompts."""
        return self.is_chat or self.prompts

    def end(self, tokenizer: Tokenizer) -> EndToken | None:
        """Return the token that ends each document and what it is taken from, or None."""
        if self.has_turns or self.end_token is None:
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
        facts = identity_of(self)
        del facts["end_token"]  # its id counts
        del facts["provenance"]  # a fact of the store, whoever wrote it
        if not self.shuffle.endswith("buffer"):
            facts["shuffle_buffer"] = None
        if self.pairs:  # absent in others, which so keep the facts they always had
            facts["pairs"] = True
        if self.prompts:
            facts["prompts"] = {"text_key": self.prompt_key}
        return facts | {
            "version": VERSION,
            "source": source.fingerprint(),
            "template": None if self.template is None else self.template.fingerprint,
            "end_id": self.end_id(tokenizer),
        }
