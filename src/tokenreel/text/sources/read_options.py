"""How records are taken out of files and rows, validated once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenreel.config.settings import check_settings, declared, declares_settings

MIB = 1 << 20
GIB = 1 << 30
MAX_RECORD_BYTES = 64 * MIB
OnBad = Literal["error", "skip"]
FileKind = Literal["jsonl", "parquet", "text"]


@declares_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Which field is the text, what happens to a bad record, and the limits."""

    text_key: str | None = declared(
        "text",
        'field or column of the text, or of the chat (default: "text"; of chats the whole record)',
    )
    chat_key: str | None = declared(
        None,
        "field that holds the chat, where whole objects are handed over because text_key is None; "
        "a build with chat=True calls it text_key, since one setting names what is read",
    )
    id_key: str | None = declared(
        "id", 'field or column that names a document in its provenance (default: "id", if present)'
    )
    on_bad: OnBad = declared(
        "error",
        '"error" ends the build at the first record that cannot be used, "skip" counts it and '
        "goes on (default: error)",
    )
    max_record_bytes: int = declared(
        MAX_RECORD_BYTES,
        'the longest record that is read, in bytes or such as "1M" (default: 64 MiB)',
        size=True,
    )
    max_uncompressed_bytes: int = declared(
        256 * GIB,
        "where a compressed file is given up as a bomb (default: 256 GiB)",
        size=True,
    )
    max_ratio: float = declared(
        250.0,
        "how far a file may unpack before it is given up as a bomb (default: 250)",
        above=0,
    )

    def __post_init__(self) -> None:
        check_settings(self)

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
