"""`build()`: from sources to a store, the same bytes on one process, many, or a cluster."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tokenreel.builder.assemble import assemble
from tokenreel.builder.encode import Advance, Job
from tokenreel.builder.engines.local import Workers, end_if_main_is_imported, run_here
from tokenreel.builder.engines.ray import run_on_ray
from tokenreel.builder.plan import make_plan
from tokenreel.builder.report import Account
from tokenreel.builder.reported import REPORT_NOTE, finished_build, report_of
from tokenreel.builder.spill import Spill, Summary
from tokenreel.builder.work import Chunk, divide, sendable
from tokenreel.errors import ConfigError, EmptyError, MismatchError, differing_fields
from tokenreel.progress import Progress, shown
from tokenreel.store.canonical import digest
from tokenreel.store.door import open_store
from tokenreel.store.store import Store
from tokenreel.store.target import BUILD_FOLDER
from tokenreel.store.writer import SHARD_BYTES, StoreWriter
from tokenreel.text.chats import Template, load_template
from tokenreel.text.sources import Spec, open_memory, open_source
from tokenreel.text.sources.protocol import TextSource
from tokenreel.text.sources.table import records_of
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer

ENGINES = ("local", "ray")
SPILL_PREFIX = "chunks-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A finished build: the opened store and the account of it."""

    store: Store
    report: dict[str, Any]


def build(
    sources: Spec | None = None,
    *,
    out: str | PathLike[str],
    tokenizer: str | Path | Tokenizer,
    texts: Iterable[str] | None = None,
    chats: Iterable[Any] | None = None,
    chat: bool = False,
    template: str | Template = "ngpt",
    workers: int = 1,
    engine: str = "local",
    address: str = "local",
    tokenizer_engine: str = "auto",
    shard_bytes: int = SHARD_BYTES,
    replace: bool = False,
    restart: bool = False,
    keep: bool = False,
    progress: bool | Progress = True,
    watch: Callable[[Account], None] = lambda account: None,
    source_options: dict[str, Any] | None = None,
    **choices: Any,
) -> Built:
    """Build a store; `choices` are the fields of BuildPlan (seed, val_frac, shuffle, …).

    `sources` are paths, globs, folders, `hf:` names, opened sources, a data frame, an Arrow
    table, a dataset, or a list of records; what is in memory comes as `texts` or `chats`, any
    iterable of them.

    Killed and called again with the same arguments it goes on where it was; a build of
    something else is refused until `restart`. A finished store is refused too, unless
    `keep`, and it is this very build: it is then returned as it is. The tokens do not
    depend on workers, engine, address or tokenizer_engine, whose name goes into the
    manifest's notes with the rest of the report. While it runs it needs twice the
    disk of the store: encoded chunks wait in `.build/` until all is written. `watch` is
    shown the account after every chunk. A bar shows how far the build is, in a terminal and in a
    notebook, unless `progress` is False. With workers, a script needs the usual
    `if __name__ == "__main__":` where they cannot be forked (engines/local.py).

    >>> import tempfile
    >>> built = build(texts=["one", "two"], out=tempfile.mkdtemp() + "/s", tokenizer="byte")
    >>> built.store.num_documents, built.report["ledger"]["total"]
    (2, 8)
    """
    end_if_main_is_imported()
    if engine not in ENGINES:
        raise ConfigError("unknown engine", expected=" or ".join(ENGINES), actual=repr(engine))
    if workers < 1:
        raise ConfigError("bad number of workers", expected=">= 1", actual=workers)
    chat = chat or chats is not None
    plan = make_plan(template=_template(template) if chat else None, **choices)
    options = _source_options(sources, source_options or {}, chat=chat)
    source = _open(sources, texts=texts, chats=chats, options=options)
    encoder = load_tokenizer(tokenizer, engine=tokenizer_engine)
    end = plan.end(encoder)
    # Workers append what was found here, whatever becomes of the files that declare it.
    plan = dataclasses.replace(plan, end_token=None if end is None else end.token)
    # Workers take a second to load: they do it while the source is fingerprinted.
    with (
        closing(_Runner(engine, workers=workers, address=address, tokenizer=encoder)) as runner,
        shown(progress) as bar,
    ):
        bar.start("reading the sources", total=None)
        account = Account()
        facts = {
            "vocab_size": encoder.vocab_size,
            "shard_bytes": shard_bytes,
            "turns": chat,
            "provenance": plan.provenance,
            "tokenizer": _tokenizer_facts(encoder, tokenizer),
            "build": plan.as_facts(source, encoder),
        }
        if keep and source.can_seek and (kept := finished_build(Path(out), facts)) is not None:
            return Built(store=kept, report=report_of(kept))
        with _open_writer(out, **facts, replace=replace, restart=restart) as writer:
            spill = _open_spill(writer, restart=restart)
            job = Job(
                source=sendable(source),
                tokenizer=encoder,
                plan=plan,
                spill_folder=spill.folder.absolute(),
                dtype=writer.facts.token_dtype,
            )
            parts = source.ranges(plan.chunk_bytes)
            bar.start("building", total=sum(part.num_bytes for part in parts) or None, unit="B")
            chunks = divide(source, parts, chunk_bytes=plan.chunk_bytes, known=spill.verified)
            end_tokens = 0 if end is None else 1
            with closing(runner.run(job, chunks, advance=bar.advance)) as summaries:
                for split, documents in assemble(
                    _watched(summaries, account, bar, watch),
                    spill,
                    plan=plan,
                    end_tokens=end_tokens,
                    account=account,
                ):
                    writer.add_batch(documents, split=split)
            recorded = None if end is None else asdict(end)
            writer.notes[REPORT_NOTE] = {**account.as_dict(), "end_token": recorded}
            _refuse_empty(account, writer.path)
            spill.remove()
    store = open_store(out)
    return Built(store=store, report=report_of(store))


class _Runner:
    """The engine of one build; worker processes are started with it."""

    def __init__(self, engine: str, *, workers: int, address: str, tokenizer: Tokenizer) -> None:
        self._engine = engine
        self._num_workers = workers
        self._address = address
        is_many = engine == "local" and workers > 1
        self._workers = Workers(tokenizer, workers) if is_many else None

    def run(
        self, job: Job, chunks: Iterator[Chunk], *, advance: Advance
    ) -> Generator[Summary, None, None]:
        if self._engine == "ray":
            yield from run_on_ray(
                job, chunks, address=self._address, workers=self._num_workers, advance=advance
            )
        elif self._workers is None:
            yield from run_here(job, chunks, advance=advance)
        else:
            yield from self._workers.run(job, chunks, advance=advance)

    def close(self) -> None:
        if self._workers is not None:
            self._workers.close()


def _watched(
    summaries: Iterable[Summary],
    account: Account,
    bar: Progress,
    watch: Callable[[Account], None],
) -> Iterator[Summary]:
    for summary in summaries:
        yield summary
        bar.note(f"{account.documents:,} documents, {account.tokens_total:,} tokens")
        watch(account)


def _open_writer(out: str | PathLike[str], **facts: Any) -> StoreWriter:
    """Open the writer; if another build is unfinished here, say field by field what differs."""
    try:
        return StoreWriter(out, **facts)
    except MismatchError as error:
        raise MismatchError(
            "an unfinished build of something else is here",
            where=error.where,
            differing=_by_name(error.differing),
            remedy="build that one to its end, or restart (--restart) to begin anew",
        ) from None


def _by_name(differing: Mapping[str, tuple[Any, Any]]) -> dict[str, tuple[object, object]]:
    """Return the fields inside `build`, and of `tokenizer` its fingerprint, as fields."""
    fields: dict[str, tuple[object, object]] = {}
    for name, (expected, actual) in differing.items():
        if name == "tokenizer" and isinstance(expected, Mapping) and isinstance(actual, Mapping):
            inner = differing_fields(expected, actual)
            fields[name] = inner.get("fingerprint", (expected.get("name"), actual.get("name")))
        elif name == "build" and isinstance(expected, Mapping) and isinstance(actual, Mapping):
            fields |= differing_fields(expected, actual)
        else:
            fields[name] = (expected, actual)
    return fields


def _open_spill(writer: StoreWriter, *, restart: bool) -> Spill:
    """Return the folder of encoded chunks; its name says of which build, so none are mixed up."""
    parent = writer.path / BUILD_FOLDER
    name = f"{SPILL_PREFIX}{digest(asdict(writer.facts))[:16]}"
    for folder in parent.glob(f"{SPILL_PREFIX}*"):
        if restart or folder.name != name:
            shutil.rmtree(folder)
    spill = Spill(parent / name, writer.facts.token_dtype)
    spill.begin()
    return spill


def _refuse_empty(account: Account, path: Path) -> None:
    if any(split.tokens for split in account.splits.values()):
        return
    report = account.as_dict()
    reasons = {reason: counts["documents"] for reason, counts in report["dropped"].items()}
    reasons |= {f"skipped: {reason}": count for reason, count in report["skipped"].items()}
    gone = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items())
    raise EmptyError(
        "nothing is left of the sources, so there is no store",
        where=path,
        expected="at least one token",
        actual=f"{account.documents:,} documents" + (f" ({gone})" if gone else ""),
        remedy="look at the sources and at what is dropped (min_tokens, budgets, on_bad)",
    )


def _open(
    sources: Spec | None,
    *,
    texts: Iterable[str] | None,
    chats: Iterable[Any] | None,
    options: dict[str, Any],
) -> TextSource:
    """Open what is to be built; nothing guesses whether a string is a path or a text."""
    given = {"sources": sources, "texts": texts, "chats": chats}
    named = [name for name, value in given.items() if value is not None]
    if len(named) != 1:
        raise ConfigError(
            "a build has one kind of input",
            expected="sources, texts=… or chats=…",
            actual=" and ".join(named) or "none",
        )
    held = texts if texts is not None else chats
    if isinstance(held, (str, bytes, Mapping)) or not (held is None or isinstance(held, Iterable)):
        raise ConfigError(
            f"bad {named[0]}", expected="an iterable of them", actual=type(held).__name__
        )
    if held is not None:
        return open_memory(held, **options)
    assert sources is not None
    if not _is_named(sources):
        raise ConfigError(
            "it cannot be told what these sources are",
            expected="paths, opened sources, a table or dataset, or a list of records",
            actual=type(sources).__name__,
            remedy="give texts as texts=…, chats as chats=…",
        )
    return open_source(sources, **options)


def _is_named(sources: Spec) -> bool:
    """Return whether sources say by their type what they are."""
    one = (str, PathLike, TextSource)
    if isinstance(sources, (list, tuple)):
        return all(isinstance(item, one) for item in sources) or all(
            isinstance(item, Mapping) for item in sources
        )
    return isinstance(sources, one) or records_of(sources) is not None


def _source_options(sources: Spec | None, options: dict[str, Any], *, chat: bool) -> dict[str, Any]:
    opened = isinstance(sources, TextSource) or (
        isinstance(sources, (list, tuple)) and all(isinstance(s, TextSource) for s in sources)
    )
    # A source that is open already has its own options.
    return {"text_key": None, **options} if chat and not opened else options


def _template(template: str | Template) -> Template:
    return load_template(template) if isinstance(template, str) else template


def _tokenizer_facts(tokenizer: Tokenizer, spec: object) -> dict[str, Any]:
    name = Path(spec).name if isinstance(spec, (str, Path)) else type(tokenizer).__name__
    return {
        "name": name,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "control_ids": dict(tokenizer.control_ids),
    }
