"""Open what a configuration reads, for training or for evaluation.

Evaluation reads its own split, or the documents that training holds out; where neither is
configured it is an error, and never the training data. It is one pass, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tokenreel.errors import ConfigError
from tokenreel.stream.config import StreamConfig
from tokenreel.stream.settings import DataSettings
from tokenreel.text.sources import InMemory, ReadOptions, TextSource, open_source
from tokenreel.text.sources.hub import HubDataset, HubSource
from tokenreel.text.sources.retry import Backoff

SPLITS = ("train", "eval")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedBackoff(Backoff):
    """A backoff that notes how long each retry waited."""

    waits: list[float] = field(default_factory=list)

    def wait(self, failures: int) -> float:
        """Return the seconds to wait, and note them."""
        seconds = Backoff.wait(self, failures)
        self.waits.append(seconds)
        return seconds


def for_split(config: StreamConfig, split: str) -> StreamConfig:
    """Return the configuration as it is for a split."""
    if split not in SPLITS:
        raise ConfigError("unknown split", expected=" or ".join(SPLITS), actual=repr(split))
    if split == "train":
        return config
    data = config.data
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
    return replace(config, data=data, stream=replace(config.stream, cache_to=None))


def open_text(settings: DataSettings, backoff: Backoff) -> TextSource:
    """Return the source of the documents."""
    options = ReadOptions(text_key=settings.text_key, on_bad=settings.on_bad)
    if settings.backend == "hf":
        dataset = HubDataset(
            id=settings.hf_dataset or "",
            config=settings.hf_name,
            split=settings.hf_split,
            revision=settings.hf_revision,
        )
        return HubSource(
            dataset,
            options=options,
            backoff=backoff,
            state_every=settings.state_update_interval,
        )
    if settings.local_text is not None:
        return InMemory([settings.local_text], name="data.local_text", options=options)
    files = settings.local_files or ()
    return open_source(
        files if isinstance(files, str) else list(files),
        text_key=settings.text_key,
        on_bad=settings.on_bad,
    )
