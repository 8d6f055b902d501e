"""The fields of a batch that adapters hand on."""

from __future__ import annotations

from collections.abc import Sequence

from tokenreel.errors import ConfigError

FIELDS = ("input_ids", "labels", "loss_weights", "segment_ids", "position_ids", "attention_mask")


def known_fields(fields: Sequence[str]) -> tuple[str, ...]:
    """Return the fields; ConfigError names those that no batch has."""
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise ConfigError(
            "unknown fields of a batch", expected=", ".join(FIELDS), actual=", ".join(unknown)
        )
    return tuple(fields)
