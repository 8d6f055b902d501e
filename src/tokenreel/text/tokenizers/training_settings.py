"""The settings of the training of a tokenizer, each declared once, as those of a build are.

From a field here come the keyword of `train_tokenizer`, its check, its line in help and the flag
of "tokenreel train-tokenizer".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal

from tokenreel.config.settings import check_settings, declared, setting
from tokenreel.progress import SILENT, Progress
from tokenreel.text.sources.open import Spec
from tokenreel.text.sources.read_options import OnBad
from tokenreel.text.tokenizers.specials import DEFAULT_SPECIALS

Kind = Literal["sentencepiece", "bpe"]
READING, VOCABULARY = "Reading", "The vocabulary"


@dataclass(frozen=True, kw_only=True)
class TokenizerTraining:
    """What a tokenizer is trained on, what becomes of it, and where it is written."""

    sources: Spec | None = field(
        default=None,
        kw_only=False,
        metadata=setting(
            "files of text, JSONL or Parquet, folders, globs, hf:owner/name, or a named source; in "
            "Python also what else `tokenreel.build` reads, such as a data frame or a dataset",
            checked=False,
        ),
    )
    out: str | PathLike[str] = field(
        metadata=setting(
            "the file to write, which must not be there yet: .json for byte-level BPE, .model for "
            "SentencePiece"
        )
    )
    texts: Iterable[str] | None = declared(
        None, "any iterable of texts, in place of sources", checked=False
    )
    chats: Iterable[Any] | None = declared(
        None, "any iterable of chats, in place of sources", checked=False
    )
    text_key: str | None = declared(
        None,
        'the field that holds the text, or the chat (default: "text"; of chats the whole record)',
        group=READING,
    )
    chat: bool = declared(
        False,
        "records are chats, in any shape that a build reads; the text of all their turns, tool "
        "calls and tool schemas is learned from",
        group=READING,
    )
    on_bad: OnBad = declared(
        "error",
        "error: stop at the first record that cannot be used; skip: count it and go on "
        "(default: error)",
        group=READING,
    )
    sample_bytes: int | str | None = declared(
        200_000_000,
        "if there is more text, take so much of it, evenly from all files, in bytes or such as 50M "
        "(default: 200M; None: no limit)",
        size=True,
        group=READING,
    )
    kind: Kind | None = declared(
        None, "what is trained (default: as the ending of out says)", group=VOCABULARY
    )
    vocab_size: int = declared(
        16_000,
        "how many ids there are, control tokens included, before rounding (default: 16,000)",
        group=VOCABULARY,
    )
    round_to: int = declared(
        128,
        "round that up to a multiple, which is faster to compute with; what it adds is learned too "
        "(default: 128; 1: do not round)",
        least=1,
        group=VOCABULARY,
    )
    specials: Sequence[str] = declared(
        DEFAULT_SPECIALS, "the control tokens, in the order of their ids", group=VOCABULARY
    )
    progress: bool | Progress = declared(
        SILENT,
        "is told how much was read, and which part of the training has begun; True: a bar in a "
        "terminal or notebook",
        checked=False,
    )

    def __post_init__(self) -> None:
        check_settings(self)
