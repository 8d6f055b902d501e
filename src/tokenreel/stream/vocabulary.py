"""The tokenizer of a stream, its special ids, and the size of vocabulary a model needs.

The size is the larger of the model's and the tokenizer's, rounded up to the multiple.
Special ids come from the model's settings, else from what the tokenizer's own files name
(tokenizer_config.json, special_tokens_map.json), else from the usual strings. A name of the
hub is fetched once, files of the tokenizer alone; code that comes with it is never run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenreel.errors import ConfigError, FormatError, InputError, MissingExtraError
from tokenreel.stream.settings import ModelSettings, TokenizerSettings
from tokenreel.text.tokenizers import END_OF_TEXT, NGPT_SPECIALS, Tokenizer, load_tokenizer

USUAL = {
    "bos": ("<s>", "<|begin_of_text|>", "<bos>", END_OF_TEXT),
    "eos": (END_OF_TEXT, "</s>", "<|end_of_text|>", "<eos>", NGPT_SPECIALS["eot"]),
    "pad": ("<pad>", "<|pad|>", "<|finetune_right_pad_id|>", "[PAD]"),
}
NAMING_FILES = ("tokenizer_config.json", "special_tokens_map.json")
FETCHED = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """A tokenizer with its special ids; `size` is rounded up, `pad_id` is never None."""

    tokenizer: Tokenizer
    size: int
    bos_id: int | None
    eos_id: int | None
    pad_id: int

    def as_settings(self) -> ModelSettings:
        """Return what a model is to be made with."""
        return ModelSettings(
            vocab_size=self.size,
            bos_token_id=self.bos_id,
            eos_token_id=self.eos_id,
            pad_token_id=self.pad_id,
        )


def open_vocabulary(
    settings: TokenizerSettings, model: ModelSettings, *, tokenizer: Tokenizer | None = None
) -> Vocabulary:
    """Return the vocabulary of a stream; ids outside it raise ConfigError.

    `tokenizer`, where given, takes the place of the one that the settings name.
    """
    spec: str | Path = "byte"
    if tokenizer is None and settings.kind == "hf":
        spec = _local(settings.hf_name_or_path or "")
    named = {} if spec == "byte" else _named_tokens(Path(spec))
    tokenizer = load_tokenizer(tokenizer or spec, engine=settings.engine)
    given = {"bos": model.bos_token_id, "eos": model.eos_token_id, "pad": model.pad_token_id}
    ids = {
        role: _found(role, tokenizer.control_ids, named) if given[role] is None else given[role]
        for role in given
    }
    multiple = settings.vocab_size_multiple
    size = -(-max(model.vocab_size or 0, tokenizer.vocab_size) // multiple) * multiple
    _check_ids(ids, size)
    for role, is_added in (("bos", settings.add_bos), ("eos", settings.add_eos)):
        if is_added and ids[role] is None:
            raise ConfigError(
                f"data.tokenizer.add_{role} is asked for, and the tokenizer names no such token",
                where=str(spec),
                expected=" or ".join(USUAL[role]),
                actual=", ".join(sorted(tokenizer.control_ids)) or "no control tokens",
                remedy=f"say which with model.{role}_token_id",
            )
    # Padding is known by position: where no token is meant for it, any will do.
    pad = next((ids[role] for role in ("pad", "eos") if ids[role] is not None), 0)
    return Vocabulary(
        tokenizer=tokenizer, size=size, bos_id=ids["bos"], eos_id=ids["eos"], pad_id=pad or 0
    )


def _found(role: str, control_ids: Mapping[str, int], named: Mapping[str, str]) -> int | None:
    known = [token for token in (named.get(role), *USUAL[role]) if token in control_ids]
    return control_ids[known[0]] if known and known[0] is not None else None


def _check_ids(ids: Mapping[str, int | None], size: int) -> None:
    for role, number in ids.items():
        if number is not None and not 0 <= number < size:
            raise ConfigError(
                f"model.{role}_token_id is outside the vocabulary",
                expected=f"0 to {size - 1:,}",
                actual=number,
            )


def _named_tokens(spec: Path) -> dict[str, str]:
    """Return the tokens that a tokenizer's own files name, by role."""
    folder = spec if spec.is_dir() else spec.parent
    named: dict[str, str] = {}
    for path in (folder / name for name in NAMING_FILES):
        if not path.is_file():
            continue
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
        except ValueError as error:
            raise FormatError(f"no JSON: {error}", where=path) from None
        for role in USUAL:
            token = content.get(f"{role}_token")
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                named.setdefault(role, token)
    return named


def _local(name: str) -> Path:
    """Return a tokenizer's path; a name of the hub is fetched, or found in its cache."""
    path = Path(name).expanduser()
    if path.exists():
        return path
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingExtraError(
            "huggingface_hub", extra="hf", purpose="a tokenizer of the hub"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=list(FETCHED)))
    except Exception as error:  # of the client's many kinds, all mean that it is not to be had
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"no such tokenizer: neither a path, nor to be had from the hub ({said})",
            where=name,
            remedy="check data.tokenizer.hf_name_or_path",
        ) from error
