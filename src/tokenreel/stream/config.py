"""What a stream is made of, validated once. Every key, its default and what it means:

    train.seq_len                1024          T: inputs of a row
    train.batch_size             8             B: rows of a microbatch, over all ranks
    train.grad_accum             1             A: microbatches of a step
    data.backend                 hf            hf (a dataset, streamed) or local_text
    data.hf_dataset              none          id of the hub, or a local dataset folder
    data.hf_name                 none          its configuration
    data.hf_split                train         the split that is trained on
    data.hf_eval_split           none          the split that split="eval" reads
    data.hf_revision             none          commit, tag or branch; resolved to a commit once
    data.eval_fraction           0.0           chance of a document to be held out for split="eval"
    data.local_text              none          local_text: the text itself, one document
    data.local_files             none          local_text: paths or globs (JSONL, Parquet, text)
    data.text_key                text          the field that holds the document
    data.on_bad                  error         a record that is unusable: error, or skip (counted)
    data.shuffle                 true          in blocks, by a keyed order, exactly restorable
    data.shuffle_buffer_size     10000         documents of a block
    data.seed                    0             of shuffling and holding out
    data.repeat                  true          begin again at the end, in another order
    data.end                     pad           what the end leaves over: pad, or drop (counted)
    data.num_lanes               1             parts that documents are dealt to; ranks divide it
    data.state_update_interval   256           documents between two positions asked of the client
    data.max_retries             3             failures in a row until a failure is an error
    data.retry_delay_sec         1.0           wait after the first, doubled up to a minute
    data.packing_mode            sequential    sequential (windows), or bin (first fit decreasing)
    data.packing_buffer_docs     128           bin: documents that are packed together, at least
    data.packing_max_docs_per_bin none         bin: most segments of a row
    data.mask_boundary_loss      true          the first token of a segment is nobody's target
    data.train_on_eos            true          false: labels that are the end token are ignored
    data.grain_prefetch          0             batches made ahead by Grain's thread
    data.device_put              false         hand over JAX arrays, on the default device
    data.tokenizer.kind          hf            hf or byte
    data.tokenizer.hf_name_or_path none        tokenizer.json, a folder, or a name of the hub
    data.tokenizer.hf_use_fast   true          true alone: ids are those of tokenizer.json
    data.tokenizer.hf_trust_remote_code false  false alone: code of a tokenizer is never run
    data.tokenizer.byte_offset   0             byte: ids below it are for special tokens
    data.tokenizer.auto_set_special_tokens true the tokenizer's special ids win over the model's
    data.tokenizer.engine        auto          auto: the fastest with the same ids; or reference
    data.tokenizer.add_bos       false         begin every document with the begin token
    data.tokenizer.add_eos       false         end every document with the end token
    data.tokenizer.max_doc_tokens none         cut longer documents (counted); none: never
    data.tokenizer.vocab_size_multiple 128     what model.vocab_size is rounded up to
    model.vocab_size             none          raised to the tokenizer's and rounded up
    model.bos_token_id           none          where the tokenizer names none; so for eos and pad
    model.eos_token_id           none
    model.pad_token_id           none
    stream.cache_to              none          write what streams into a store here
    stream.cache_shard_bytes     33554432      size of its shards: what a resume encodes again

A seed, a lane or a packer changes the stream; prefetch, retries, ranks and the cache do not.
A trainer's own sections, and its keys of `train` and `model`, may stand beside these: see
sections.py. Of a configuration that has been opened, `model` holds what was found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, ClassVar

from tokenreel.config.config_file import Table, read_table
from tokenreel.config.load import STRICT, make
from tokenreel.config.overrides import override
from tokenreel.errors import ConfigError
from tokenreel.stream.sections import own_part
from tokenreel.stream.settings import CacheSettings, DataSettings, ModelSettings, TrainSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """Everything a stream depends on; see the module for every key."""

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


Configured = StreamConfig | Mapping[str, Any] | str | PathLike[str]


def read_config(config: Configured, *, overrides: Sequence[str] = ()) -> StreamConfig:
    """Return the configuration of an object, a nested mapping, or a TOML, YAML or XML file.

    Paths in a file count from its folder. `overrides` are settings such as "data.seed=3".

    >>> read_config({"data": {"backend": "local_text", "local_text": "hello",
    ...                       "tokenizer": {"kind": "byte"}}}).train.seq_len
    1024
    """
    if isinstance(config, StreamConfig):
        if not overrides:
            return config
        config = asdict(config)
    if isinstance(config, Mapping):
        table = Table(content=_plain(config), where=None)
    else:
        table = read_table(config)
    own_part(override({}, overrides), where=None)  # what is in the file excuses no misspelling
    content = own_part(override(table.content, overrides), where=table.where)
    made = make(StreamConfig, content, where=table.where, typed=table.typed)
    return made if isinstance(config, Mapping) else _below(made, Path(config).parent)


def _plain(value: Any) -> Any:
    """Return a setting as a file would hold it: paths as text."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return fspath(value) if isinstance(value, PathLike) else value


def _below(config: StreamConfig, folder: Path) -> StreamConfig:
    """Return the configuration with its paths taken from a folder."""
    data, tokenizer, cache = config.data, config.data.tokenizer, config.stream
    files = data.local_files
    if files is not None:
        given = [files] if isinstance(files, str) else files
        data = replace(data, local_files=[str(folder / item) for item in given])
    if data.hf_dataset is not None and (folder / data.hf_dataset).is_dir():
        data = replace(data, hf_dataset=str(folder / data.hf_dataset))
    name = tokenizer.hf_name_or_path
    if name is not None and (folder / name).exists():
        tokenizer = replace(tokenizer, hf_name_or_path=str(folder / name))
    if cache.cache_to is not None:
        cache = replace(cache, cache_to=str(folder / cache.cache_to))
    return replace(config, data=replace(data, tokenizer=tokenizer), stream=cache)
