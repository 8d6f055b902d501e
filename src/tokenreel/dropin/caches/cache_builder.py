"""What the token caches of contract 002 are built with: tokenizer, seed, native stores.

The tokenizer of a folder of caches lies in it: tokenizer/spm.model and its meta.json.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenreel.builder.build import build
from tokenreel.builder.build_plan import BuildPlan
from tokenreel.dropin.caches.cache_folder import discard, read_meta, refuse_existing
from tokenreel.dropin.caches.cache_writer import write_meta
from tokenreel.errors import ConfigError, MismatchError, VocabularyError, differing_fields
from tokenreel.filesystem import LOCAL
from tokenreel.layouts.open_store import open_store
from tokenreel.progress import SILENT, Progress
from tokenreel.store.manifest import MANIFEST_NAME
from tokenreel.store.store import Store
from tokenreel.store.writer import SHARD_BYTES
from tokenreel.text.chats import NGPT
from tokenreel.text.sources.source_protocol import TextSource
from tokenreel.text.tokenizers import NGPT_SPECIALS, Tokenizer

TOKEN_DTYPE = "uint16-le"
MODEL_NAME = "spm.model"
MAX_VOCAB_SIZE = 2**16


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBuilder:
    """What caches are built with.

    `restart` forgets an unfinished build; `keep` takes a finished cache that says the
    same of itself for the one that is asked for.
    """

    tokenizer: Tokenizer
    tokenizer_sha256: str
    seed: int
    workers: int = 1
    restart: bool = False
    keep: bool = False
    progress: Progress = field(default=SILENT, repr=False)

    def __post_init__(self) -> None:
        self.special_token_ids()
        if self.tokenizer.vocab_size > MAX_VOCAB_SIZE:
            raise VocabularyError(
                "the vocabulary does not fit the uint16 of a cache",
                expected=f"at most {MAX_VOCAB_SIZE:,} ids",
                actual=self.tokenizer.vocab_size,
                remedy='build a store with "tokenreel build": it chooses a larger dtype',
            )

    def special_token_ids(self) -> dict[str, int]:
        """Return the ids of the four control tokens under their short names."""
        known = self.tokenizer.control_ids
        missing = [text for text in NGPT_SPECIALS.values() if text not in known]
        if missing:
            raise ConfigError(
                "the tokenizer lacks control tokens of the chat format",
                expected=", ".join(missing),
                remedy='train one with "tokenreel train-tokenizer … --template ngpt"',
            )
        return {name: known[text] for name, text in NGPT_SPECIALS.items()}

    def facts(self, about: Mapping[str, Any]) -> dict[str, Any]:
        """Return what every meta.json says, with what is said of the dataset."""
        return {
            "dataset_config": None,
            **about,
            "seed": self.seed,
            "token_dtype": TOKEN_DTYPE,
            "tokenizer_sha256": self.tokenizer_sha256,
            "vocab_size": self.tokenizer.vocab_size,
            "special_token_ids": self.special_token_ids(),
        }

    def store(
        self,
        source: TextSource,
        folder: Path,
        *,
        chat: bool = False,
        choices: Mapping[str, Any] | None = None,
        shard_bytes: int = SHARD_BYTES,
    ) -> Store:
        """Return the native store of a source; an earlier build may have made some or all of it."""
        chosen: dict[str, Any] = {
            "end_token": None,
            "seed": self.seed,
            "provenance": False,
            **(choices or {}),
        }
        plan = BuildPlan(template=NGPT if chat else None, **chosen)
        if self.restart or not source.can_seek:
            discard(folder)
        if (folder / MANIFEST_NAME).exists():
            wanted = {
                **plan.as_facts(source, self.tokenizer),
                "tokenizer": self.tokenizer.fingerprint,
                "shard_bytes": shard_bytes,
            }
            return _finished(folder, wanted)
        try:
            return build(
                source,
                out=folder,
                tokenizer=self.tokenizer,
                chat=chat,
                template=NGPT if chat else None,
                workers=self.workers,
                shard_size=shard_bytes,
                progress=self.progress,
                **chosen,
            ).store
        except BaseException:
            if not source.can_seek:
                discard(folder)  # nothing could go on from here
            raise


def _finished(folder: Path, wanted: Mapping[str, Any]) -> Store:
    store = open_store(folder, layout="native")
    made: dict[str, Any] = {}
    if store.manifest is not None:
        facts = store.manifest.facts
        fingerprint = (facts.tokenizer or {}).get("fingerprint")
        made = {**facts.build, "tokenizer": fingerprint, "shard_bytes": facts.shard_bytes}
    differing = differing_fields(wanted, made)
    if differing:
        raise MismatchError(
            "an unfinished build of something else is here",
            where=folder.parent,
            differing=differing,
            remedy="pass restart=True to begin anew",
        )
    return store


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def keep_tokenizer(builder: CacheBuilder, model: Path, folder: Path) -> None:
    """Put a copy of the model into `folder`, or see that the one there is the same."""
    facts = builder.facts({"dataset_name": None, "split_rule": None})
    there = folder / MODEL_NAME
    if not there.is_file():
        refuse_existing(folder)
        with LOCAL.whole_folder(folder) as staged:
            with LOCAL.create(staged / MODEL_NAME) as copy:
                copy.append_file(model)
                copy.sync()
            write_meta(staged, facts, filesystem=LOCAL)
        return
    known = file_sha256(there)
    if known != builder.tokenizer_sha256:
        raise MismatchError(
            "the caches here have another tokenizer",
            where=there,
            differing={"tokenizer_sha256": (known, builder.tokenizer_sha256)},
            remedy="choose another folder for the caches, or use the tokenizer that is there",
        )
    if read_meta(folder) is None:
        write_meta(folder, facts, filesystem=LOCAL)
