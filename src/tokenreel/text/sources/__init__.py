"""Sources of documents and chats, with provenance and cursors that can be resumed."""

from tokenreel.text.sources.memory import InMemory
from tokenreel.text.sources.open import Spec, open_memory, open_source
from tokenreel.text.sources.read_options import ReadOptions
from tokenreel.text.sources.record import Record, Skipped
from tokenreel.text.sources.source_protocol import Cursor, Range, Reader, TextSource

__all__ = [
    "Cursor",
    "InMemory",
    "Range",
    "ReadOptions",
    "Reader",
    "Record",
    "Skipped",
    "Spec",
    "TextSource",
    "open_memory",
    "open_source",
]
