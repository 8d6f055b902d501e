"""The settings of a build, each declared once: type, default, bounds and meaning.

From a field here come the keyword of `build` that type checkers know, its check, its line in
help(build), the flag of "tokenreel build" and whether it is kept with the store. What the bytes of
a store depend on (`Choices`) is shared with the plan of a build (build_plan.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from os import PathLike
from typing import Any, Literal, Protocol, TypeVar

from tokenreel.builder.report import Account
from tokenreel.config.settings import check_settings, declared, optional, setting
from tokenreel.errors import ConfigError
from tokenreel.progress import Progress
from tokenreel.store.writer import SHARD_BYTES
from tokenreel.text.chats import ModelTemplate, Template
from tokenreel.text.sources import Spec
from tokenreel.text.sources.read_options import FileKind, OnBad, ReadOptions
from tokenreel.text.sources.retry import Backoff
from tokenreel.text.tokenizers import TokenizerSpec

CHUNK_BYTES = 8 * 1024 * 1024
Engine = Literal["local", "ray"]
PolicyName = Literal["assistant", "last_assistant", "each_answer", "last_answer", "all"]
Shuffle = Literal["none", "buffer", "torch-buffer", "global"]
TokenizerEngine = Literal["auto", "reference"]
# The headings of settings in help(build) and "tokenreel build --help".
READING, CHATS, CONTENT, RUNNING = "Reading", "Chats", "What goes in", "Running"
Item = TypeVar("Item", covariant=True)


class Iterated(Protocol[Item]):
    """Any iterable, to type checkers; what it is when a build begins, inputs.py judges."""

    def __iter__(self) -> Iterator[Item]: ...


@dataclass(frozen=True, kw_only=True)
class InputSettings:
    """What is read and how, and where the store is made."""

    sources: Spec | None = field(
        default=None,
        kw_only=False,
        metadata=setting(
            "paths, folders or globs of JSONL, Parquet or text files, hf:owner/name, or a named "
            "source; in Python also opened sources, a data frame, an Arrow table, a dataset or a "
            "list of records",
            identity=False,
            checked=False,
        ),
    )
    out: str | PathLike[str] = field(
        metadata=setting("the folder of the new store", identity=False)
    )
    tokenizer: TokenizerSpec = field(
        metadata=setting(
            'a tokenizer.json, .model or .tiktoken file, a folder with one, or "byte"; in Python '
            "also a tokenizer of transformers, tokenizers, sentencepiece or tiktoken",
            identity=False,
        )
    )
    texts: Iterated[str] | None = declared(
        None,
        "any iterable of texts, in place of sources",
        identity=False,
        checked=False,
    )
    chats: Iterated[Any] | None = declared(
        None,
        "any iterable of chats, in place of sources",
        identity=False,
        checked=False,
    )
    text_key: str | None = optional(ReadOptions, "text_key", group=READING)
    id_key: str | None = optional(ReadOptions, "id_key", group=READING)
    kind: FileKind | None = declared(
        None,
        'how files are read: "jsonl", "parquet" or "text" (default: by their names)',
        group=READING,
    )
    on_bad: OnBad | None = optional(ReadOptions, "on_bad", group=READING)
    max_retries: int | None = optional(Backoff, "max_retries", group=READING)
    retry_delay: float | None = optional(Backoff, "retry_delay", group=READING)
    streaming: bool | None = declared(
        None,
        "read datasets of the hub while they are downloaded (default: True for hf:)",
        identity=False,
        group=READING,
    )
    max_record_bytes: int | str | None = optional(ReadOptions, "max_record_bytes", group=READING)
    max_uncompressed_bytes: int | str | None = optional(
        ReadOptions, "max_uncompressed_bytes", group=READING
    )
    max_ratio: float | None = optional(ReadOptions, "max_ratio", group=READING)
    chat: bool | None = declared(
        None,
        "records are chats; in Python those of chats=… always are (default: they are documents)",
        group=CHATS,
    )
    pairs: bool | None = declared(
        None,
        "records are preferences: prompt, chosen and rejected; prompt, completion and label; or "
        "prompt and answers, the best first; each becomes one document, a group of answers "
        "(default: they are not)",
        group=CHATS,
    )
    prompts: bool | None = declared(
        None,
        "records are prompts without targets: prompt, messages or text, or the field that text_key "
        "names; their other fields are kept as JSON. Rendered with chat or template, else plain "
        "text (default: they are not)",
        group=CHATS,
    )
    template: str | Template | ModelTemplate | None = declared(
        None,
        'chat template: a name, a TOML file, "model" for the tokenizer\'s own, or the folder, '
        "tokenizer_config.json or chat_template.jinja of a model (default: the built-in one whose "
        "control tokens the tokenizer has)",
        group=CHATS,
        identity=False,  # by its name and content, not by its path
    )
    template_arg: Mapping[str, Any] | None = declared(
        None,
        "argument of a model's own template, such as enable_thinking=false; repeat for more; in "
        "Python an object with all of them (default: none)",
        group=CHATS,
    )
    template_date: str | date | None = declared(
        None,
        "the date that a model's own template may write, such as 2026-07-26 (default: the day on "
        "which the build was begun)",
        group=CHATS,
    )


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the bytes of a store depend on, besides its source, tokenizer and template."""

    policy: PolicyName | Mapping[str, float] = declared(
        "assistant",
        'which turns are trained: "assistant", "last_assistant" or "all"; "each_answer" makes a '
        'document of every answer and what leads to it, "last_answer" of the last alone; in Python '
        "also a weight for each role (default: assistant)",
        group=CHATS,
    )
    end_token: str | None = declared(
        "auto",
        "token that ends each document; chats end by their template; in Python None for none "
        "(default: the one the tokenizer declares)",
        group=CONTENT,
    )
    seed: int = declared(42, "of split and shuffle (default: 42)", most=2**128 - 1, group=CONTENT)
    val_frac: float = declared(
        0.0,
        "chance of each document to be validation, from 0 to below 1 (default: 0)",
        least=0,
        below=1,
        group=CONTENT,
    )
    val_tokens: int | None = declared(
        None,
        "fill val with this many tokens first, the last document cut to fit (default: no val)",
        least=1,
        group=CONTENT,
    )
    train_tokens: int | None = declared(
        None,
        "stop train at this many tokens, the last document cut to fit (default: no end)",
        least=1,
        group=CONTENT,
    )
    shuffle: Shuffle = declared(
        "none",
        'order of documents: "none" as they are read, "buffer" mixed within buffers, "global" '
        "all of them (default: none)",
        accepts="'none', 'buffer' or 'global'",
        hidden=("torch-buffer",),  # contract 002 alone: "buffer" by torch's generator
        group=CONTENT,
    )
    shuffle_buffer: int = declared(
        10_000, "documents in a buffer (default: 10,000)", least=1, group=CONTENT
    )
    deduplicate: bool = declared(False, "drop exact copies (default: keep them)", group=CONTENT)
    min_tokens: int = declared(
        1,
        "drop documents with fewer tokens, the end not counted (default: 1)",
        least=1,
        group=CONTENT,
    )
    provenance: bool = declared(
        True, "keep file, line and id of each document (default: True)", group=CONTENT
    )
    chunk_bytes: int | str = declared(
        CHUNK_BYTES,
        'text encoded at a time, in bytes or such as "8M"; what is lost when a build is killed '
        "(default: 8 MiB)",
        size=True,
        group=CONTENT,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.val_frac and self.val_tokens is not None:
            raise ConfigError(
                "val_frac and val_tokens exclude each other", remedy="give one of them"
            )


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How a build is written and runs: no token depends on these."""

    shard_size: int | str = declared(
        SHARD_BYTES,
        'size of a token file, in bytes or such as "128M" (default: 128 MiB)',
        size=True,
        group=CONTENT,
    )
    workers: int = declared(
        1,
        "processes that encode (default: 1; in the command line: as many as cores)",
        least=1,
        group=RUNNING,
        identity=False,
    )
    engine: Engine = declared(
        "local",
        'who encodes: "local" this machine, "ray" a cluster (default: local)',
        group=RUNNING,
        identity=False,
    )
    address: str = declared(
        "local",
        'of Ray: "local", "auto" or an address (default: local)',
        group=RUNNING,
        identity=False,
    )
    tokenizer_engine: TokenizerEngine = declared(
        "auto",
        '"auto" the fastest that gives the ids of the reference, "reference" that itself '
        "(default: auto)",
        group=RUNNING,
        identity=False,
    )
    replace: bool = declared(
        False, "replace a finished store (default: refuse)", group=RUNNING, identity=False
    )
    restart: bool = declared(
        False,
        "forget an unfinished build of other settings (default: refuse)",
        group=RUNNING,
        identity=False,
    )
    progress: bool | Progress = declared(
        True,
        "show a bar in a terminal or notebook; or what takes its place (default: True)",
        group=RUNNING,
        identity=False,
    )
    watch: Callable[[Account], None] = declared(
        lambda account: None,
        "called with the account after every chunk",
        group=RUNNING,
        identity=False,
    )


@dataclass(frozen=True, kw_only=True)
class BuildSettings(RunSettings, Choices, InputSettings):
    """All settings of a build; dataclasses put the fields of the last base first."""

    def __post_init__(self) -> None:
        Choices.__post_init__(self)
        if self.chats is not None and self.chat is False:
            raise ConfigError("chats=… and chat=False exclude each other", remedy="leave out chat")
        if self.pairs and self.policy == "each_answer":
            raise ConfigError(
                "policy each_answer makes several documents of a chat; an answer of a pair is one",
                expected='a policy such as "assistant" or "last_answer"',
            )
        if self.prompts:
            self._refuse_targets()
        for name in ("template", "template_arg", "template_date"):
            if getattr(self, name) is not None and not self.is_chat:
                raise ConfigError(
                    f"{name} does not apply to documents",
                    remedy="pass chat=True or pairs=True, or leave it out",
                )

    def _refuse_targets(self) -> None:
        """Raise ConfigError for what trains something, where prompts are built."""
        if self.pairs:
            raise ConfigError("prompts and pairs exclude each other", remedy="give one of them")
        if self.policy != "assistant":
            raise ConfigError(
                "policy does not apply to prompts: nothing in them is trained",
                actual=self.policy,
                remedy="leave it out",
            )

    @property
    def is_chat(self) -> bool:
        """Whether records are rendered by a template: chats, groups of them, prompts so asked."""
        is_asked = bool(self.prompts) and self.template is not None
        return bool(self.chat or self.pairs) or self.chats is not None or is_asked

    def reading(self) -> dict[str, Any]:
        """Return how the sources are read, as far as it is said."""
        named = [item.name for item in fields(self) if item.metadata["group"] == READING]
        return {name: getattr(self, name) for name in named if getattr(self, name) is not None}
