"""The fields of a batch that adapters hand on."""

from __future__ import annotations

from collections.abc import Sequence

from tokenreel.errors import ConfigError

FIELDS = (
    "input_ids",
    "labels",
    "loss_weights",
    "segment_ids",
    "position_ids",
    "attention_mask",
    "source_ids",
)
GROUP_FIELDS = ("group_ids", "answer_labels")  # of rows of pairs; of others on request
EXTRA = ("attention_mask", "document_ids", *GROUP_FIELDS, "records")  # made on request alone
ARRAYS = (*FIELDS, "document_ids", *GROUP_FIELDS)
ALL = (*ARRAYS, "records")  # which are objects


def known_fields(fields: Sequence[str], *, known: Sequence[str] = ARRAYS) -> tuple[str, ...]:
    """Return the fields; ConfigError names those that no batch has."""
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise ConfigError(
            "unknown fields of a batch", expected=", ".join(known), actual=", ".join(unknown)
        )
    return tuple(fields)


def default_fields(fields: Sequence[str], *, has_groups: bool) -> Sequence[str]:
    """Return the fields; to those that are handed on unless others are asked for come GROUP_FIELDS.

    Labels of pairs without group_ids are refused: rejected answers could not be told from text.

    >>> default_fields(FIELDS, has_groups=True)[-2:], default_fields(["labels"], has_groups=False)
    (('group_ids', 'answer_labels'), ['labels'])
    """
    if has_groups and tuple(fields) == FIELDS:
        return (*fields, *GROUP_FIELDS)
    if has_groups and "labels" in fields and "group_ids" not in fields:
        raise ConfigError(
            "labels of pairs without group_ids: rejected answers could not be told from text",
            expected=f"{' and '.join(GROUP_FIELDS)} beside labels",
            actual=", ".join(fields),
            remedy=f"add {' and '.join(GROUP_FIELDS)} to fields, or leave fields out",
        )
    return fields


def extra_of(fields: Sequence[str]) -> tuple[str, ...]:
    """Return those of the fields that a feed must be asked for."""
    return tuple(name for name in fields if name in EXTRA)
