"""The sections of a stream's configuration; config.py says what every key means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tokenreel.config.load import STRICT
from tokenreel.errors import ConfigError

CHOICES = {
    "backend": ("hf", "local_text"),
    "on_bad": ("error", "skip"),
    "end": ("pad", "drop"),
    "packing_mode": ("sequential", "bin"),
    "kind": ("hf", "byte"),
    "engine": ("auto", "reference"),
}
LEAST = {
    "shuffle_buffer_size": 1,
    "num_lanes": 1,
    "state_update_interval": 1,
    "max_retries": 0,
    "retry_delay_sec": 0,
    "packing_buffer_docs": 1,
    "packing_max_docs_per_bin": 1,
    "grain_prefetch": 0,
    "max_doc_tokens": 1,
    "byte_offset": 0,
    "vocab_size_multiple": 1,
    "seq_len": 1,
    "batch_size": 1,
    "grad_accum": 1,
    "cache_shard_bytes": 4,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSettings:
    """How text becomes ids."""

    __pydantic_config__: ClassVar[object] = STRICT

    kind: str = "hf"
    hf_name_or_path: str | None = None
    hf_use_fast: bool = True
    hf_trust_remote_code: bool = False
    byte_offset: int = 0
    auto_set_special_tokens: bool = True
    engine: str = "auto"
    add_bos: bool = False
    add_eos: bool = False
    max_doc_tokens: int | None = None
    vocab_size_multiple: int = 128

    def __post_init__(self) -> None:
        _check(self, "data.tokenizer")
        if self.kind == "hf" and self.hf_name_or_path is None:
            raise ConfigError(
                "data.tokenizer.hf_name_or_path is missing",
                expected="a tokenizer.json, a folder, or a name of the hub",
                remedy='give it, or choose data.tokenizer.kind = "byte"',
            )
        if not self.hf_use_fast:
            raise ConfigError(
                "data.tokenizer.hf_use_fast = false is not offered",
                expected="the ids of tokenizer.json, which the slow tokenizers give as well",
                remedy='leave it out; data.tokenizer.engine = "reference" is the plainest engine',
            )
        if self.hf_trust_remote_code:
            raise ConfigError(
                "data.tokenizer.hf_trust_remote_code = true is not offered",
                expected="a tokenizer that is data; code that comes with one is never run",
                remedy="save it as a tokenizer.json and give that as hf_name_or_path",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """Which documents stream, in which order, and how they are packed."""

    __pydantic_config__: ClassVar[object] = STRICT

    backend: str = "hf"
    hf_dataset: str | None = None
    hf_name: str | None = None
    hf_split: str = "train"
    hf_eval_split: str | None = None
    hf_revision: str | None = None
    eval_fraction: float = 0.0
    local_text: str | None = None
    local_files: str | Sequence[str] | None = None
    text_key: str = "text"
    on_bad: str = "error"
    shuffle: bool = True
    shuffle_buffer_size: int = 10_000
    seed: int = 0
    repeat: bool = True
    end: str = "pad"
    num_lanes: int = 1
    state_update_interval: int = 256
    max_retries: int = 3
    retry_delay_sec: float = 1.0
    packing_mode: str = "sequential"
    packing_buffer_docs: int = 128
    packing_max_docs_per_bin: int | None = None
    mask_boundary_loss: bool = True
    train_on_eos: bool = True
    grain_prefetch: int = 0
    device_put: bool = False
    tokenizer: TokenizerSettings

    def __post_init__(self) -> None:
        _check(self, "data")
        if not 0 <= self.eval_fraction < 1:
            raise ConfigError(
                "bad data.eval_fraction",
                expected="0 <= eval_fraction < 1",
                actual=self.eval_fraction,
            )
        self._check_source()
        self._check_evaluation()

    def _check_source(self) -> None:
        if self.backend == "hf" and self.hf_dataset is None:
            raise ConfigError(
                "data.hf_dataset is missing",
                expected="an id of the hub, or a dataset folder",
                remedy='give it, or choose data.backend = "local_text"',
            )
        if self.backend == "local_text" and (self.local_text is None) == (self.local_files is None):
            raise ConfigError(
                "local_text reads one thing", expected="either data.local_text or data.local_files"
            )

    def _check_evaluation(self) -> None:
        if self.hf_eval_split is None:
            return
        if self.hf_eval_split == self.hf_split:
            raise ConfigError(
                "the evaluation split is the training split",
                expected="another split than data.hf_split",
                actual=self.hf_eval_split,
                remedy="hold documents out with data.eval_fraction instead",
            )
        if self.eval_fraction or self.backend != "hf":
            raise ConfigError(
                "data.hf_eval_split has no place here",
                expected="a dataset (backend hf) without data.eval_fraction",
                remedy="choose one of the two ways to evaluate",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """The shape of a batch, [A, B, T]."""

    __pydantic_config__: ClassVar[object] = STRICT

    seq_len: int = 1024
    batch_size: int = 8
    grad_accum: int = 1

    def __post_init__(self) -> None:
        _check(self, "train")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """What the model says of its vocabulary; see data.tokenizer.auto_set_special_tokens."""

    __pydantic_config__: ClassVar[object] = STRICT

    vocab_size: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Where what streams is kept."""

    __pydantic_config__: ClassVar[object] = STRICT

    cache_to: str | None = None
    cache_shard_bytes: int = 32 << 20

    def __post_init__(self) -> None:
        _check(self, "stream")


def _check(settings: Any, section: str) -> None:
    for name, allowed in CHOICES.items():
        if getattr(settings, name, allowed[0]) not in allowed:
            raise ConfigError(
                f"bad {section}.{name}",
                expected=" or ".join(allowed),
                actual=repr(getattr(settings, name)),
            )
    for name, least in LEAST.items():
        value = getattr(settings, name, None)
        if value is not None and value < least:
            raise ConfigError(f"bad {section}.{name}", expected=f">= {least}", actual=value)
