"""`build()`: from sources to a store, the same bytes on one process, many, or a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

from tokenreel.builder.assemble import assemble
from tokenreel.builder.build_plan import CHUNK_BYTES, BuildPlan, Shuffle
from tokenreel.builder.encode import Advance, Job
from tokenreel.builder.engines.local import (
    Workers,
    end_if_main_is_imported,
    no_main_guard,
    run_here,
)
from tokenreel.builder.engines.ray import run_on_ray
from tokenreel.builder.first import check_first_record
from tokenreel.builder.given_settings import Made, note_of, portable, settings_of
from tokenreel.builder.inputs import Iterated, open_inputs
from tokenreel.builder.out_folder import (
    by_recorded_name,
    finished_store,
    keeping_what_is_finished,
    open_spill,
    open_writer,
    refuse_empty,
)
from tokenreel.builder.report import Account
from tokenreel.builder.report_files import REPORT_NOTE, report_beside, report_of
from tokenreel.builder.spill import Summary
from tokenreel.builder.work import Chunk, divide, sendable
from tokenreel.config.keywords import check_keywords
from tokenreel.config.paths import usable_path
from tokenreel.config.sizes import parse_size
from tokenreel.display import count_of, named, never_raising
from tokenreel.errors import ConfigError
from tokenreel.layouts.open_store import open_store
from tokenreel.progress import Progress, shown
from tokenreel.store.store import Store
from tokenreel.store.writer import SHARD_BYTES
from tokenreel.text.chats import Template, fitting_template, load_template
from tokenreel.text.sources import Spec
from tokenreel.text.sources.read_options import FileKind, OnBad
from tokenreel.text.tokenizers import Tokenizer, TokenizerSpec, load_tokenizer

Engine = Literal["local", "ray"]
TokenizerEngine = Literal["auto", "reference"]
PolicyName = Literal["assistant", "last_assistant", "all"]
READING = ["text_key", "id_key", "kind", "on_bad", "max_retries", "retry_delay", "streaming"]
READING += ["max_record_bytes", "max_uncompressed_bytes", "max_ratio"]
PLANNED = tuple(field.name for field in dataclasses.fields(BuildPlan) if field.name != "template")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A finished build: the opened store, the account of it, and whether it was there before."""

    store: Store
    report: dict[str, Any]
    tokenizer: Tokenizer
    already_built: bool = False

    @never_raising
    def __repr__(self) -> str:
        ledger: dict[str, int] = self.report["ledger"]
        names = ("trained", "masked", "truncated", "dropped")
        tokens = [f"{ledger[name]:,} {name}" for name in names if ledger[name]]
        facts = [count_of(self.report["documents"], "document"), f"tokens: {', '.join(tokens)}"]
        return named("Built", ["already there" * self.already_built, *facts], [repr(self.store)])

    def _repr_html_(self) -> str:
        return self.store._repr_html_()


@check_keywords
def build(
    sources: Spec | None = None,
    *,
    out: str | PathLike[str],
    tokenizer: TokenizerSpec,
    texts: Iterated[str] | None = None,
    chats: Iterated[Any] | None = None,
    text_key: str | None = None,
    id_key: str | None = None,
    kind: FileKind | None = None,
    on_bad: OnBad | None = None,
    max_retries: int | None = None,
    retry_delay: float | None = None,
    streaming: bool | None = None,
    max_record_bytes: int | str | None = None,
    max_uncompressed_bytes: int | str | None = None,
    max_ratio: float | None = None,
    chat: bool | None = None,
    template: str | Template | None = None,
    policy: PolicyName | Mapping[str, float] = "assistant",
    end_token: str | None = "auto",
    seed: int = 42,
    val_frac: float = 0.0,
    val_tokens: int | None = None,
    train_tokens: int | None = None,
    shuffle: Shuffle = "none",
    shuffle_buffer: int = 10_000,
    deduplicate: bool = False,
    min_tokens: int = 1,
    provenance: bool = True,
    shard_size: int | str = SHARD_BYTES,
    chunk_bytes: int | str = CHUNK_BYTES,
    workers: int = 1,
    engine: Engine = "local",
    address: str = "local",
    tokenizer_engine: TokenizerEngine = "auto",
    replace: bool = False,
    restart: bool = False,
    progress: bool | Progress = True,
    watch: Callable[[Account], None] = lambda account: None,
) -> Built:
    """Build a store of text or chats, and return it with the account of it.

    >>> import tempfile
    >>> built = build(texts=["one", "two"], out=tempfile.mkdtemp() + "/s", tokenizer="byte")
    >>> built.store.num_documents, built.report["ledger"]["total"]
    (2, 8)

    Killed and called again with the same arguments it goes on where it was. A store that was
    finished with these settings is returned as it is (`already_built`); one of other settings,
    finished or not, is refused until `replace` or `restart`, and the error says what differs.
    While it runs it needs twice the disk of the store: encoded chunks wait in `.build/` until
    all is written. The tokens depend on none of the settings under "Running"; the name of the
    tokenizer's engine goes into the report. The settings:

    sources
        paths, folders or globs of JSONL, Parquet or text files, hf:owner/name, or a named
        source; in Python also opened sources, a data frame, an Arrow table, a dataset or a
        list of records
    out
        the folder of the new store
    tokenizer
        a tokenizer.json, .model or .tiktoken file, a folder with one, or "byte"; in Python
        also a tokenizer of transformers, tokenizers, sentencepiece or tiktoken
    texts, chats
        any iterable of texts, or of chats, in place of sources

    Reading:

    text_key
        field or column of the text, or of the chat (default: "text"; of chats the whole record)
    id_key
        field or column that names a document in its provenance (default: "id", if present)
    kind
        how files are read: "jsonl", "parquet" or "text" (default: by their names)
    on_bad
        "error" ends the build at the first record that cannot be used, "skip" counts it and
        goes on (default: error)
    max_retries
        how often a failed read of the hub is tried again (default: 5)
    retry_delay
        seconds before the first retry, then doubled (default: 1)
    streaming
        read datasets of the hub while they are downloaded (default: True for hf:)
    max_record_bytes
        the longest record that is read, in bytes or such as "1M" (default: 64 MiB)
    max_uncompressed_bytes
        where a compressed file is given up as a bomb (default: 256 GiB)
    max_ratio
        how far a file may unpack before it is given up as a bomb (default: 250)

    Chats:

    chat
        records are chats; in Python those of chats=… always are (default: they are documents)
    template
        chat template: a name or a TOML file (default: the built-in one whose control tokens
        the tokenizer has)
    policy
        which turns are trained: "assistant", "last_assistant" or "all"; in Python also a
        weight for each role (default: assistant)

    What goes in:

    end_token
        token that ends each document; chats end by their template; in Python None for none
        (default: the one the tokenizer declares)
    seed
        of split and shuffle (default: 42)
    val_frac
        chance of each document to be validation, from 0 to below 1 (default: 0)
    val_tokens
        fill val with this many tokens first, the last document cut to fit (default: no val)
    train_tokens
        stop train at this many tokens, the last document cut to fit (default: no end)
    shuffle
        order of documents: "none" as they are read, "buffer" mixed within buffers,
        "torch-buffer" the same by torch's generator, "global" all of them (default: none)
    shuffle_buffer
        documents in a buffer (default: 10,000)
    deduplicate
        drop exact copies (default: keep them)
    min_tokens
        drop documents with fewer tokens, the end not counted (default: 1)
    provenance
        keep file, line and id of each document (default: True)
    shard_size
        size of a token file, in bytes or such as "128M" (default: 128 MiB)
    chunk_bytes
        text encoded at a time, in bytes or such as "8M"; what is lost when a build is killed
        (default: 8 MiB)

    Running:

    workers
        processes that encode (default: 1; in the command line: as many as cores)
    engine
        who encodes: "local" this machine, "ray" a cluster (default: local)
    address
        of Ray: "local", "auto" or an address (default: local)
    tokenizer_engine
        "auto" the fastest that gives the ids of the reference, "reference" that itself
        (default: auto)
    replace
        replace a finished store (default: refuse)
    restart
        forget an unfinished build of other settings (default: refuse)
    progress
        show a bar in a terminal or notebook; or what takes its place (default: True)
    watch
        called with the account after every chunk

    With workers, a script needs the usual `if __name__ == "__main__":` where they cannot be
    forked (engines/local.py).
    """
    shard_size = parse_size(shard_size, name="shard_size")
    chunk_bytes = parse_size(chunk_bytes, name="chunk_bytes")
    if max_record_bytes is not None:
        max_record_bytes = parse_size(max_record_bytes, name="max_record_bytes")
    if max_uncompressed_bytes is not None:
        max_uncompressed_bytes = parse_size(max_uncompressed_bytes, name="max_uncompressed_bytes")
    given = dict(locals())  # the signature is the one list of settings
    end_if_main_is_imported()
    if chats is not None and chat is False:
        raise ConfigError("chats=… and chat=False exclude each other", remedy="leave out chat")
    chat = bool(chat) or chats is not None
    _check(workers=workers, template=template if not chat else None)
    reading = {name: given[name] for name in READING}
    source = open_inputs(sources, texts=texts, chats=chats, chat=chat, reading=reading)
    encoder = load_tokenizer(tokenizer, engine=tokenizer_engine)
    plan = BuildPlan(
        template=_template(template, encoder) if chat else None,
        **{name: given[name] for name in PLANNED},
    )
    end = plan.end(encoder)
    # Workers append what was found here, whatever becomes of the files that declare it.
    plan = dataclasses.replace(plan, end_token=None if end is None else end.token)
    # Workers take a second to load: they do it while the source is fingerprinted.
    with (
        _Runner(engine, workers=workers, address=address, tokenizer=encoder) as runner,
        shown(progress) as bar,
    ):
        bar.start("reading the sources", total=None)
        check_first_record(source, plan, encoder)
        account = Account()
        facts = {
            "vocab_size": encoder.vocab_size,
            "shard_bytes": shard_size,
            "turns": chat,
            "provenance": plan.provenance,
            "tokenizer": _tokenizer_facts(encoder, tokenizer),
            "build": plan.as_facts(source, encoder),
        }
        picked = None if plan.template is None else plan.template.name
        settings = settings_of(given, source, template=picked, end=end)
        folder = usable_path(out)
        made = Made(note=note_of(settings, source), facts=facts)
        made = by_recorded_name(folder, made, replace=replace, restart=restart)
        if not replace and (kept := finished_store(folder, made, can_seek=source.can_seek)):
            report_beside(folder, kept, tokenizer=encoder)
            return Built(store=kept, report=report_of(kept), tokenizer=encoder, already_built=True)
        with (
            open_writer(out, made, replace=replace, restart=restart) as writer,
            keeping_what_is_finished(writer, stop=runner.stop),
        ):
            spill = open_spill(writer, restart=restart)
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
            writer.notes[REPORT_NOTE] = {
                **account.as_dict(),
                "end_token": None if end is None else asdict(end),
                "settings": portable(settings),
            }
            refuse_empty(account, writer.path)
            spill.remove()
    store = open_store(out)
    report_beside(folder, store, tokenizer=encoder)
    return Built(store=store, report=report_of(store), tokenizer=encoder)


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

    def stop(self, error: BaseException) -> None:
        """End the workers; one that runs the script again may be the cause of a missing file."""
        if self._workers is not None:
            if FileNotFoundError in (type(error), type(error.__cause__)):
                self._workers.wait_for_main()
            self._workers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._workers is None:
            return
        if error is None:
            self._workers.close()
        else:
            self.stop(error)
        if isinstance(error, Exception) and self._workers.has_started_main:
            # Whatever the error says: a script that runs a second time may have removed the folder.
            raise no_main_guard() from None


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


def _check(*, workers: int, template: object) -> None:
    """Refuse settings without sense; `template` is one that was given for documents."""
    if workers < 1:
        raise ConfigError("bad workers", expected=">= 1", actual=workers)
    if template is not None:
        raise ConfigError(
            "template does not apply to documents", remedy="pass chat=True, or leave it out"
        )


def _template(template: str | Template | None, tokenizer: Tokenizer) -> Template:
    if template is None:
        return fitting_template(tokenizer)
    return load_template(template) if isinstance(template, str) else template


def _tokenizer_facts(tokenizer: Tokenizer, spec: object) -> dict[str, Any]:
    name = Path(spec).name if isinstance(spec, (str, Path)) else type(spec).__name__
    return {
        "name": name,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "control_ids": dict(tokenizer.control_ids),
    }
