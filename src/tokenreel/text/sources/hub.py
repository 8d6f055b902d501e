"""Hugging Face datasets: of the hub, of a local folder, streamed or downloaded.

The revision is resolved to a commit once and everything is read from that commit; no code
of a dataset is ever run. Streamed datasets are one range: the cursor is the client's own
state, taken every 256 records (`state_every`), and the number of records after it, so resuming
reads at most so many again. Downloaded ones are divided by rows. A local folder is identified by
the hashes of its files. The client also retries reads by itself (its STREAMING_* settings);
what it gives up is retried here from the exact record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenreel.errors import ConfigError, InputError, MissingExtraError
from tokenreel.text.provenance import Provenance
from tokenreel.text.sources.chatter import hushed
from tokenreel.text.sources.files import path_key
from tokenreel.text.sources.lines import hash_file
from tokenreel.text.sources.parquet import arrow_record
from tokenreel.text.sources.read_options import ReadOptions
from tokenreel.text.sources.retry import (
    Backoff,
    attempt,
    is_passing,
    is_unreachable,
    retrying,
    unreachable,
)
from tokenreel.text.sources.source_protocol import Cursor, Range, Step, TextSource

STATE_EVERY = 256
CONTACT_SECONDS = 5  # until the hub is asked again
BATCH_ROWS = 256
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubDataset:
    """Name a dataset: an id of the hub or a local folder, and which part of it.

    >>> HubDataset.parse("hf:Salesforce/wikitext/wikitext-103-raw-v1:validation").config
    'wikitext-103-raw-v1'
    """

    id: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    streaming: bool = True

    @classmethod
    def parse(cls, spec: str, **overrides: Any) -> HubDataset:
        """Read `hf:owner/name[/config][:split][@revision]`, or `hf:` and a folder's path."""
        rest = spec.removeprefix("hf:")
        if rest.startswith((".", "/", "~")) or Path(rest).is_dir():
            return cls(**{"id": str(Path(rest).expanduser()), **overrides})
        found = re.fullmatch(r"([\w.-]+/[\w.-]+)(?:/([^:@]+))?(?::([^@]+))?(?:@(.+))?", rest)
        if found is None:
            raise ConfigError(
                "not a dataset of the hub",
                where=spec,
                expected="hf:owner/name[/config][:split][@revision], or hf: and a folder",
            )
        named = dict(zip(("id", "config", "split", "revision"), found.groups(), strict=True))
        return cls(**{**{key: part for key, part in named.items() if part}, **overrides})

    @property
    def is_local(self) -> bool:
        """Whether the id is a folder of this machine."""
        return Path(self.id).is_dir()

    @property
    def label(self) -> str:
        """The dataset in one word, without anything of this machine."""
        name = Path(self.id).name if self.is_local else self.id
        return "/".join(filter(None, (name, self.config))) + f":{self.split}"


@dataclass(slots=True, kw_only=True)
class _Opened:
    """Hold what is resolved or loaded once per process."""

    revision: str | None = None
    was_reached: bool = False  # what is lost later may come back
    table: Any = field(default=None)


class HubSource(TextSource):
    """Read a dataset through the `datasets` package."""

    def __init__(
        self,
        dataset: HubDataset,
        *,
        name: str | None = None,
        options: ReadOptions | None = None,
        backoff: Backoff | None = None,
        state_every: int = STATE_EVERY,
    ) -> None:
        self.name = name or dataset.label
        self.options = options or ReadOptions()
        self.dataset = dataset
        self._backoff = backoff or Backoff()
        self._state_every = state_every
        self._opened = _Opened()

    def __getstate__(self) -> dict[str, Any]:
        # The commit travels so that every process reads the same one; the open table cannot.
        known = _Opened(revision=self.revision(), was_reached=self._opened.was_reached)
        return {**self.__dict__, "_opened": known}

    def identity(self) -> dict[str, Any]:
        """Return id, config, split and commit; for a folder the hashes of its files."""
        chosen = {"config": self.dataset.config, "split": self.dataset.split}
        if self.dataset.is_local:
            content: dict[str, Any] = {"kind": "dataset", "files": _folder_sums(self.dataset.id)}
        else:
            content = {"kind": "hub", "id": self.dataset.id, "revision": self.revision()}
        return {**content, **chosen, **self.options.identity()}

    def revision(self) -> str | None:
        """Return the commit that is read; None for a local folder."""
        wanted = self.dataset.revision
        if self._opened.revision is None and wanted is not None and COMMIT.fullmatch(wanted):
            self._opened.revision = wanted
        return self._opened.revision or self._contact()

    def _contact(self) -> str | None:
        """Ask the hub for the commit, once: its client waits 30 s for a hub out of reach."""
        if not self._opened.was_reached and not self.dataset.is_local:
            self._opened.revision = attempt(
                lambda: _commit_of(self.dataset.id, self.dataset.revision),
                backoff=self._backoff,
                where=self.name,
            )
            self._opened.was_reached = True
        return self._opened.revision

    def ranges(self, target_bytes: int) -> list[Range]:
        """Divide a downloaded dataset by rows; a streamed one is one range."""
        if self.dataset.streaming:
            return [Range(kind="stream", file=self.dataset.label)]
        table = self._table()
        if not len(table):
            return []
        row_bytes = max(1, table.data.nbytes // len(table))
        rows = max(1, target_bytes // row_bytes)
        starts = range(0, len(table), rows)
        return [
            Range(
                kind="rows",
                file=self.dataset.label,
                start=start,
                stop=min(start + rows, len(table)),
                row=start,
                num_bytes=row_bytes * min(rows, len(table) - start),
            )
            for start in starts
        ]

    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield each row's record, opened again at the next one where the connection fails."""
        if part.kind == "rows":
            return self._row_steps(part, cursor)
        return retrying(
            self._stream_steps, cursor=cursor, backoff=self._backoff, where=self.dataset.label
        )

    def _row_steps(self, part: Range, cursor: Cursor | None) -> Iterator[Step]:
        first = part.start if cursor is None else cursor["row"]
        table = self._table()
        if self.options.text_key in table.column_names:
            wanted = (self.options.text_key, self.options.id_key)
            table = table.select_columns([key for key in table.column_names if key in wanted])
        for start in range(first, part.stop, BATCH_ROWS):
            stop = min(start + BATCH_ROWS, part.stop)
            for row, value in enumerate(_rows(table, start, stop), start=start):
                place = Provenance(file=self.dataset.label, row=row)
                yield arrow_record(value, place, self.options), {"row": row + 1}

    def _stream_steps(self, cursor: Cursor | None) -> Iterator[Step]:
        dataset = self._load()
        cursor = cursor or {"state": None, "after": 0, "row": 0}
        if cursor["state"] is not None:
            dataset.load_state_dict(json.loads(json.dumps(cursor["state"])))
        state, skip = cursor["state"], cursor["after"]
        row, after = cursor["row"] - skip, 0
        for value in dataset:
            row, after = row + 1, after + 1
            if after <= skip:
                continue
            if after >= self._state_every:
                state, after, skip = dataset.state_dict(), 0, 0
            place = Provenance(file=self.dataset.label, row=row - 1)
            following = {"state": state, "after": after, "row": row}
            yield arrow_record(value, place, self.options), following

    def _table(self) -> Any:
        if self._opened.table is None:
            self._opened.table = attempt(self._load, backoff=self._backoff, where=self.name)
        return self._opened.table

    def _load(self) -> Any:
        datasets = _datasets()
        chosen = self.dataset
        if chosen.is_local and _was_saved_to_disk(chosen.id):
            loaded = datasets.load_from_disk(chosen.id)
            table = loaded[chosen.split] if isinstance(loaded, dict) else loaded
            return table.to_iterable_dataset() if chosen.streaming else table
        revision = self._contact() if chosen.streaming else self.revision()
        try:
            # A download shows its bar: it may take hours.
            with hushed(bars=chosen.streaming):
                loaded = datasets.load_dataset(
                    chosen.id,
                    chosen.config,
                    split=chosen.split,
                    revision=revision,
                    streaming=chosen.streaming,
                )
        except (ValueError, FileNotFoundError) as error:
            raise _unopened(chosen.label, error) from error
        except OSError as error:
            if self._opened.was_reached or not is_unreachable(error):
                raise
            raise unreachable(chosen.label, error) from error
        self._opened.was_reached = True
        return loaded


def _datasets() -> Any:
    try:
        with hushed():  # it tells which other packages it found
            import datasets  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError("datasets", extra="hf", purpose="reading datasets") from error
    return datasets


def _rows(table: Any, start: int, stop: int) -> Iterator[Any]:
    try:
        columns = table[start:stop]
    except UnicodeDecodeError as error:
        if stop - start == 1:
            yield error
            return
        for row in range(start, stop):
            yield from _rows(table, row, row + 1)
        return
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _commit_of(dataset_id: str, revision: str | None) -> str:
    _datasets()
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    try:
        with hushed():
            found = HfApi().dataset_info(dataset_id, revision=revision, timeout=CONTACT_SECONDS)
        return str(found.sha)
    except OfflineModeIsEnabled as error:
        raise unreachable(dataset_id, error) from error
    except HfHubHTTPError as error:
        if is_passing(error):
            raise
        raise _unopened(dataset_id, error) from error


def _unopened(where: str, error: Exception) -> InputError:
    said = (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(
        f"the dataset cannot be opened ({said})",
        where=where,
        remedy="check id, config, split and revision",
    )


def _was_saved_to_disk(folder: str) -> bool:
    return any(Path(folder, name).exists() for name in ("state.json", "dataset_dict.json"))


def _folder_sums(folder: str) -> list[list[str]]:
    base = Path(folder)
    names = [path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file()]
    return [[name, hash_file(base / name).xxh3] for name in sorted(names, key=path_key)]
