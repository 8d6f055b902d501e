"""The account of a build: where every document and every token went."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tokenreel.builder.file_counts import FileCounts
from tokenreel.builder.spill import Summary
from tokenreel.store.document_batch import DocumentBatch
from tokenreel.text.chats import Policy
from tokenreel.text.chats.policy import BY_ANSWER
from tokenreel.text.chats.preferences import NOT_KEPT, SOME_FIELD
from tokenreel.text.turns import trained_lengths

NUM_CLASSES = 64
MAX_PLACES = 100
MAX_FIELDS = 20  # that are named, of those that are not kept


@dataclass(slots=True, kw_only=True)
class SplitAccount:
    """What one split got; `lengths[k]` counts documents of 2**(k-1) to 2**k - 1 tokens."""

    documents: int = 0
    tokens: int = 0
    trained: int = 0
    is_full: bool = False
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(NUM_CLASSES, np.int64))


@dataclass(slots=True, kw_only=True)
class Account:
    """Counts that grow with a store; trained + masked + truncated + dropped = total."""

    documents: int = 0
    tokens_total: int = 0
    text_bytes: int = 0
    truncated: int = 0
    splits: dict[str, SplitAccount] = field(default_factory=dict)
    dropped_documents: dict[str, int] = field(default_factory=dict)
    dropped_tokens: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    places: list[dict[str, Any]] = field(default_factory=list)
    dirt: dict[str, int] = field(default_factory=dict)
    dirt_places: list[dict[str, Any]] = field(default_factory=list)
    files: FileCounts = field(default_factory=FileCounts)
    policy: Policy | None = None  # of chats
    expects_targets: bool = True  # prompts have none, and are not told as chats without
    untrained_chats: int = 0
    engines: set[str] = field(default_factory=set)

    def add_chunk(self, summary: Summary) -> None:
        """Count what came in with a chunk."""
        self.documents += summary.documents
        self.tokens_total += summary.tokens
        self.text_bytes += summary.text_bytes
        if summary.documents:
            self.engines.add(summary.engine)
        for reason, count in summary.skipped.items():
            self.skipped[reason] = self.skipped.get(reason, 0) + count
        self.places += summary.places[: MAX_PLACES - len(self.places)]
        for reason, count in summary.dirt.items():
            self.dirt[reason] = self.dirt.get(reason, 0) + count
        self.dirt_places += summary.dirt_places[: MAX_PLACES - len(self.dirt_places)]
        self.files.add_rows(summary.files)

    def keep(self, split: str, documents: DocumentBatch) -> None:
        """Count documents that go into a split."""
        account = self._split(split)
        lengths = np.diff(documents.offsets)
        account.documents += len(documents)
        account.tokens += len(documents.ids)
        account.trained += self._trained(documents)
        # The binary exponent: n = m * 2**k with 1/2 <= m < 1, and 0 for 0.
        classes = np.frexp(lengths.astype(np.float64))[1]
        account.lengths += np.bincount(classes, minlength=NUM_CLASSES)

    def _trained(self, documents: DocumentBatch) -> int:
        """Return how many tokens are trained; chats of which none is are counted."""
        turns, turn_offsets = documents.turns, documents.turn_offsets
        if turns is None or turn_offsets is None:
            return len(documents.ids)
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(trained_lengths(turns))))
        of_chats = np.diff(before[turn_offsets])
        if self.expects_targets:
            self.untrained_chats += int(np.count_nonzero(of_chats == 0))
        return int(of_chats.sum())

    def drop(self, reason: str, lengths: np.ndarray) -> None:
        """Count documents that are left out."""
        if len(lengths):
            count = self.dropped_documents.get(reason, 0) + len(lengths)
            self.dropped_documents[reason] = count
            self.dropped_tokens[reason] = self.dropped_tokens.get(reason, 0) + int(lengths.sum())

    def truncate(self, num_tokens: int) -> None:
        """Count tokens cut off to fit a budget."""
        self.truncated += num_tokens

    def fill(self, split: str) -> None:
        """Note that the budget of a split is used up."""
        self._split(split).is_full = True

    def is_full(self, split: str) -> bool:
        """Tell whether the budget of a split is used up."""
        return split in self.splits and self.splits[split].is_full

    def tokens(self, split: str) -> int:
        """Return how many tokens a split has so far."""
        return self.splits[split].tokens if split in self.splits else 0

    def _split(self, name: str) -> SplitAccount:
        return self.splits.setdefault(name, SplitAccount())

    def as_dict(self) -> dict[str, Any]:
        """Return the account, ready for JSON; `ledger` adds up to its total."""
        kept = sum(split.tokens for split in self.splits.values())
        trained = sum(split.trained for split in self.splits.values())
        dropped = sum(self.dropped_tokens.values())
        return {
            "documents": self.documents,
            "text_bytes": self.text_bytes,
            "bytes_per_token": self.text_bytes / self.tokens_total if self.tokens_total else None,
            "tokenizer_engines": sorted(self.engines),
            "ledger": {
                "trained": trained,
                "masked": kept - trained,
                "truncated": self.truncated,
                "dropped": dropped,
                "total": self.tokens_total,
            },
            "dropped": {
                reason: {"documents": count, "tokens": self.dropped_tokens[reason]}
                for reason, count in sorted(self.dropped_documents.items())
            },
            "skipped": dict(sorted(self.skipped.items())),
            "skipped_places": self.places,
            "dirt": _told_dirt(self.dirt),
            "dirt_places": self.dirt_places,
            "untrained_chats": self.untrained_chats,
            "untrained_reason": _untrained_reason(self.policy) if self.untrained_chats else None,
            "files": self.files.rows(),
            "splits": {
                name: {
                    "documents": split.documents,
                    "tokens": split.tokens,
                    "trained": split.trained,
                    "histogram": [
                        {"at_least_tokens": 2 ** (k - 1) if k else 0, "documents": int(count)}
                        for k, count in enumerate(split.lengths)
                        if count
                    ],
                }
                for name, split in sorted(self.splits.items())
            },
        }


def _told_dirt(dirt: Mapping[str, int]) -> dict[str, int]:
    """Return the kinds of dirt in order; of many fields that are not kept, the most frequent ones.

    >>> _told_dirt({SOME_FIELD: 3, "the field margin, not kept": 2, "NUL": 1})
    {'NUL': 1, 'the field margin, not kept': 2}
    """
    told = {kind: count for kind, count in dirt.items() if not kind.endswith(NOT_KEPT)}
    fields = [kind for kind in dirt if kind.endswith(NOT_KEPT) and kind != SOME_FIELD]
    if len(fields) > MAX_FIELDS:  # the names come from the data, which may have any number
        told[f"{len(fields):,} fields in all{NOT_KEPT}"] = dirt[SOME_FIELD]
    named = sorted(fields, key=lambda kind: (-dirt[kind], kind))[:MAX_FIELDS]
    return dict(sorted((told | {kind: dirt[kind] for kind in named}).items()))


def _untrained_reason(policy: Policy | None) -> str:
    """Return why no token of a chat is trained, in the words of the policy."""
    if policy in ("assistant", "last_assistant", *BY_ANSWER):
        return "no assistant turn that is trained"
    if policy == "all":
        return "no turn with a token in it"
    return "no turn that the policy trains"


def told_template(settings: Mapping[str, Any]) -> str:
    """Return the chat template of a build with its arguments and date, "" if it has none.

    >>> told_template({"template": "qwen", "template_arg": {"enable_thinking": False}})
    'qwen, enable_thinking=false'
    """
    args = settings.get("template_arg") or {}
    date = settings.get("template_date")
    told = [
        str(settings.get("template") or ""),
        *(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in args.items()),
        *([f"date {date}"] if date else ()),
    ]
    return ", ".join(told) if told[0] else ""
