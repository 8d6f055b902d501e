"""The tokenizer of a folder of caches: tokenizer/spm.model and its meta.json."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tokenreel.builder.cache_builder import CacheBuilder
from tokenreel.builder.cache_target import read_meta, refuse_existing
from tokenreel.errors import MismatchError
from tokenreel.filesystem import LOCAL
from tokenreel.layouts.cache_writer import write_meta

MODEL_NAME = "spm.model"


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
