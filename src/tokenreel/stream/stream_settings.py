"""Every setting of a stream, declared once: its type, default, bounds and meaning.

help(StreamConfig) shows them all. A seed, a lane or a packer changes the batches; prefetch,
retries, ranks and the cache do not: what a setting decides is declared with it, and the
fingerprint of a stream is made of that. Of a configuration that has been opened, `model` holds
what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

from tokenreel.config.load import STRICT
from tokenreel.config.settings import check_settings, declares_settings, setting
from tokenreel.errors import ConfigError

MAX_SEED = 2**128 - 1
SPLITS = ("train", "eval")
Decides = Literal["documents", "rows", "no batch"]


def option(default: Any, meaning: str, *, decides: Decides = "no batch", **limits: Any) -> Any:
    """Declare a setting of a stream; `limits` are those of config/settings.py.

    `decides` is what depends on it: which documents come in which order, the rows that are made
    of them, or nothing that is in a batch. A setting whose effect is in the identity by content
    (the source, the tokenizer) decides no batch by its value.
    """
    told = setting(meaning, identity=decides != "no batch", **limits)
    return field(default=default, metadata={**told, "decides": decides})


def deciding(settings: Any, what: Decides) -> dict[str, Any]:
    """Return the settings that decide the documents, or the rows, by name."""
    return {
        item.name: getattr(settings, item.name)
        for item in fields(settings)
        if item.metadata.get("decides") == what
    }


@declares_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerSettings:
    """How text becomes ids: the section data.tokenizer."""

    __pydantic_config__: ClassVar[object] = STRICT

    kind: Literal["hf", "byte"] = option("hf", "hf, or byte: a token is a byte")
    hf_name_or_path: str | None = option(None, "tokenizer.json, a folder, or a name of the hub")
    hf_use_fast: bool = option(True, "true alone: ids are those of tokenizer.json")
    hf_trust_remote_code: bool = option(False, "false alone: code of a tokenizer is never run")
    byte_offset: int = option(0, "byte: ids below it are for special tokens", least=0)
    auto_set_special_tokens: bool = option(True, "the tokenizer's special ids win over the model's")
    engine: Literal["auto", "reference"] = option(
        "auto", "auto: the fastest with the same ids; or reference"
    )
    add_bos: bool = option(False, "begin every document with the begin token")
    add_eos: bool = option(False, "end every document with the end token")
    max_doc_tokens: int | None = option(
        None, "cut longer documents (counted); none: never", least=1, decides="documents"
    )
    vocab_size_multiple: int = option(128, "what model.vocab_size is rounded up to", least=1)

    def __post_init__(self) -> None:
        check_settings(self, section="data.tokenizer")
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


@declares_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """Which documents stream, in which order, and how they are packed: the section data."""

    __pydantic_config__: ClassVar[object] = STRICT

    backend: Literal["hf", "local_text"] = option("hf", "hf (a dataset, streamed) or local_text")
    hf_dataset: str | None = option(None, "id of the hub, or a local dataset folder")
    hf_name: str | None = option(None, "its configuration")
    hf_split: str = option("train", "the split that is trained on")
    hf_eval_split: str | None = option(None, 'the split that split="eval" reads')
    hf_revision: str | None = option(None, "commit, tag or branch; resolved to a commit once")
    eval_fraction: float = option(
        0.0, 'chance of a document to be held out for split="eval"', decides="documents"
    )
    local_text: str | None = option(None, "local_text: the text itself, one document")
    local_files: str | Sequence[str] | None = option(
        None, "local_text: paths or globs (JSONL, Parquet, text)"
    )
    text_key: str = option("text", "the field that holds the document")
    on_bad: Literal["error", "skip"] = option(
        "error", "a record that is unusable: error, or skip (counted)"
    )
    shuffle: bool = option(
        True, "in blocks, by a keyed order, exactly restorable", decides="documents"
    )
    shuffle_buffer_size: int = option(10_000, "documents of a block", least=1, decides="documents")
    seed: int = option(0, "of shuffling and holding out", most=MAX_SEED, decides="documents")
    repeat: bool = option(True, "begin again at the end, in another order", decides="rows")
    end: Literal["pad", "drop"] = option(
        "pad", "what the end leaves over: pad, or drop (counted)", decides="rows"
    )
    num_lanes: int = option(
        1, "parts that documents are dealt to; ranks divide it", least=1, decides="documents"
    )
    state_update_interval: int = option(
        256, "documents between two positions asked of the client", least=1
    )
    max_retries: int = option(3, "failures in a row until a failure is an error", least=0)
    retry_delay_sec: float = option(1.0, "wait after the first, doubled up to a minute", least=0)
    packing_mode: Literal["sequential", "bin"] = option(
        "sequential", "sequential (windows), or bin (first fit decreasing)", decides="rows"
    )
    packing_buffer_docs: int = option(
        128, "bin: documents that are packed together, at least", least=1, decides="rows"
    )
    packing_max_docs_per_bin: int | None = option(
        None, "bin: most segments of a row", least=1, decides="rows"
    )
    mask_boundary_loss: bool = option(
        True, "the first token of a segment is nobody's target", decides="rows"
    )
    train_on_eos: bool = option(
        True, "false: labels that are the end token are ignored", decides="rows"
    )
    grain_prefetch: int = option(0, "batches made ahead by Grain's thread", least=0)
    device_put: bool = option(False, "hand over JAX arrays, on the default device")
    tokenizer: TokenizerSettings = field(metadata=setting("how text becomes ids", identity=False))

    def __post_init__(self) -> None:
        check_settings(self, section="data")
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


@declares_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """The shape of a batch, [A, B, T]: the section train."""

    __pydantic_config__: ClassVar[object] = STRICT

    seq_len: int = option(1024, "T: inputs of a row", least=1, decides="rows")
    batch_size: int = option(8, "B: rows of a microbatch, over all ranks", least=1, decides="rows")
    grad_accum: int = option(1, "A: microbatches of a step", least=1, decides="rows")

    def __post_init__(self) -> None:
        check_settings(self, section="train")


@declares_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """What the model says of its vocabulary; see data.tokenizer.auto_set_special_tokens."""

    __pydantic_config__: ClassVar[object] = STRICT

    vocab_size: int | None = option(None, "raised to the tokenizer's and rounded up")
    bos_token_id: int | None = option(None, "the begin token, where the tokenizer names none")
    eos_token_id: int | None = option(None, "the end token, where the tokenizer names none")
    pad_token_id: int | None = option(None, "the padding token, where the tokenizer names none")

    def __post_init__(self) -> None:
        check_settings(self, section="model")


@declares_settings
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Where what streams is kept: the section stream."""

    __pydantic_config__: ClassVar[object] = STRICT

    cache_to: str | None = option(None, "write what streams into a store here")
    cache_shard_bytes: int = option(
        32 << 20, "size of its shards: what a resume encodes again", least=4
    )

    def __post_init__(self) -> None:
        check_settings(self, section="stream")


SECTIONS = {
    "train": TrainSettings,
    "data": DataSettings,
    "data.tokenizer": TokenizerSettings,
    "model": ModelSettings,
    "stream": CacheSettings,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """Everything a stream depends on.

    A trainer's own sections, and its keys of `train` and `model`, may stand beside these in a
    file or a mapping. Every key, its default and what it means:

    """

    __pydantic_config__: ClassVar[object] = STRICT

    data: DataSettings
    train: TrainSettings = field(default_factory=TrainSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    stream: CacheSettings = field(default_factory=CacheSettings)

    def __post_init__(self) -> None:
        if self.train.batch_size % self.data.num_lanes:
            raise ConfigError(
                "the lanes do not divide the batch",
                expected=f"train.batch_size as a multiple of {self.data.num_lanes}",
                actual=self.train.batch_size,
            )
        if self.stream.cache_to is not None and self.data.num_lanes > 1:
            raise ConfigError(
                "a store is written in one order, by one lane",
                expected="data.num_lanes = 1 with stream.cache_to",
                actual=self.data.num_lanes,
                remedy='build the store first ("tokenreel build") and train with Feed',
            )

    def for_split(self, split: str) -> StreamConfig:
        """Return the configuration as it is for a split.

        Evaluation reads its own split, or the documents that training holds out; where neither
        is configured it is an error, and never the training data. It is one pass, in order.
        """
        if split not in SPLITS:
            raise ConfigError("unknown split", expected=" or ".join(SPLITS), actual=repr(split))
        if split == "train":
            return self
        data = self.data
        if data.hf_eval_split is None and not data.eval_fraction:
            raise ConfigError(
                "there is nothing to evaluate on, and training data is never used for it",
                expected="data.hf_eval_split or data.eval_fraction > 0",
            )
        data = replace(
            data,
            hf_split=data.hf_eval_split or data.hf_split,
            hf_eval_split=None,
            shuffle=False,
            repeat=False,
            end="pad",
        )
        return replace(self, data=data, stream=replace(self.stream, cache_to=None))


def _key_table() -> str:
    """Return a line for each key: its name, its default and its meaning."""
    return "\n".join(
        f"    {f'{section}.{item.name}':<31} {str(item.default).lower():<11} "
        f"{item.metadata['meaning']}"
        for section, kind in SECTIONS.items()
        for item in fields(kind)
        if item.default is not MISSING
    )


StreamConfig.__doc__ = f"{(StreamConfig.__doc__ or '').rstrip()}\n\n{_key_table()}\n    "
