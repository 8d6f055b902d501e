"""How records are taken out of files and rows, validated once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tokenreel.errors import ConfigError

MIB = 1 << 20
GIB = 1 << 30
MAX_RECORD_BYTES = 64 * MIB
OnBad = Literal["error", "skip"]
FileKind = Literal["jsonl", "parquet", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Say which field is the text, what to do with a bad record, and the limits.

    text_key
        the field that holds the document; None hands over the whole object as `value`
    chat_key
        the field that holds the chat, where objects are handed over; None: all of the object.
        A build with chat=True calls it text_key, since one setting names what is read
    id_key
        the field that names a record in its provenance, where it is present
    on_bad
        "error" raises at the first record that cannot be used, "skip" counts it and goes on
        (a build skips chats that cannot be read or rendered, too)
    max_record_bytes
        the longest JSONL line, text file or text value that is read
    max_uncompressed_bytes, max_ratio
        where a compressed file is given up as a bomb; the ratio counts after 1 MiB of output
    """

    text_key: str | None = "text"
    chat_key: str | None = None
    id_key: str | None = "id"
    on_bad: str = "error"
    max_record_bytes: int = MAX_RECORD_BYTES
    max_uncompressed_bytes: int = 256 * GIB
    max_ratio: float = 250.0

    def __post_init__(self) -> None:
        if self.on_bad not in get_args(OnBad):
            raise ConfigError(
                "on_bad is not a known policy",
                expected=" or ".join(map(repr, get_args(OnBad))),
                actual=repr(self.on_bad),
            )
        for limit in ("max_record_bytes", "max_uncompressed_bytes", "max_ratio"):
            if getattr(self, limit) <= 0:
                raise ConfigError(
                    f"{limit} must be positive", expected="> 0", actual=getattr(self, limit)
                )

    def identity(self) -> dict[str, object]:
        """Return the options on which the records depend, ready for JSON.

        `on_bad` is left out: where both policies succeed they give the same records, and
        choosing "skip" after an error must not throw away what was built before it.
        """
        chosen: dict[str, object] = {"text_key": self.text_key, "id_key": self.id_key}
        if self.chat_key is not None:
            chosen["chat_key"] = self.chat_key
        if self.on_bad == "skip" and self.max_record_bytes != MAX_RECORD_BYTES:
            chosen["max_record_bytes"] = self.max_record_bytes
        return chosen
