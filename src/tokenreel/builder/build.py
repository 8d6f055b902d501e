"""`build()`: from sources to a store, the same bytes on one process, many, or a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tokenreel.builder.assemble import assemble
from tokenreel.builder.encode import Job
from tokenreel.builder.engines import local, ray
from tokenreel.builder.plan import BuildPlan
from tokenreel.builder.report import Account
from tokenreel.builder.spill import Spill, Summary
from tokenreel.builder.work import divide
from tokenreel.errors import ConfigError
from tokenreel.progress import SILENT, Progress
from tokenreel.store.door import open_store
from tokenreel.store.store import Store
from tokenreel.store.target import BUILD_FOLDER
from tokenreel.store.writer import SHARD_BYTES, StoreWriter
from tokenreel.text.chats import Template, load_template
from tokenreel.text.sources import Spec, open_source
from tokenreel.text.sources.protocol import TextSource
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer

ENGINES = ("local", "ray")
SPILL_FOLDER = "chunks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A finished build: the opened store and the account of it."""

    store: Store
    report: dict[str, Any]


def build(
    sources: Spec,
    *,
    out: str | PathLike[str],
    tokenizer: str | Path | Tokenizer,
    chat: bool = False,
    template: str | Template = "ngpt",
    workers: int = 1,
    engine: str = "local",
    address: str = "local",
    tokenizer_engine: str = "auto",
    shard_bytes: int = SHARD_BYTES,
    replace: bool = False,
    restart: bool = False,
    progress: Progress = SILENT,
    source_options: dict[str, Any] | None = None,
    **choices: Any,
) -> Built:
    """Build a store; `choices` are the fields of BuildPlan (seed, val_frac, shuffle, …).

    Killed and called again with the same arguments it goes on where it was. The
    store does not depend on workers, engine, address or tokenizer_engine.

    >>> import tempfile
    >>> built = build(iter(["one", "two"]), out=tempfile.mkdtemp() + "/s", tokenizer="byte")
    >>> built.store.num_documents, built.report["ledger"]["total"]
    (2, 8)
    """
    if engine not in ENGINES:
        raise ConfigError("unknown engine", expected=" or ".join(ENGINES), actual=repr(engine))
    if workers < 1:
        raise ConfigError("bad number of workers", expected=">= 1", actual=workers)
    options = {"text_key": None, **(source_options or {})} if chat else (source_options or {})
    source = open_source(sources, **options)
    encoder = load_tokenizer(tokenizer, engine=tokenizer_engine)
    plan = BuildPlan(template=_template(template) if chat else None, **choices)
    account = Account()
    with StoreWriter(
        out,
        vocab_size=encoder.vocab_size,
        shard_bytes=shard_bytes,
        turns=chat,
        provenance=plan.provenance,
        tokenizer=_tokenizer_facts(encoder, tokenizer),
        build=plan.as_facts(source, encoder),
        replace=replace,
        restart=restart,
    ) as writer:
        spill = Spill(Path(out) / BUILD_FOLDER / SPILL_FOLDER)
        spill.folder.mkdir(exist_ok=True)
        job = Job(
            source=source,
            tokenizer=encoder,
            plan=plan,
            spill_folder=spill.folder.absolute(),
            dtype=writer.facts.token_dtype,
        )
        runner = _Runner(engine=engine, workers=workers, address=address)
        summaries = _reported(runner.run(job, spill), source, plan, progress)
        end_tokens = 0 if plan.end_id(encoder) is None else 1
        for split, documents in assemble(
            summaries, spill, plan=plan, end_tokens=end_tokens, account=account
        ):
            writer.add_batch(documents, split=split)
        writer.notes.update(tokenizer_engines=sorted(account.engines))
        shutil.rmtree(spill.folder)
    return Built(store=open_store(out), report=account.as_dict())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Runner:
    engine: str
    workers: int
    address: str

    def run(self, job: Job, spill: Spill) -> Iterator[Summary]:
        def done(number: int) -> dict[str, Any] | None:
            summary = spill.summary(number)
            return None if summary is None else summary.cursor

        chunks = divide(job.source, job.plan.chunk_bytes, done=done)
        if self.engine == "ray":
            return ray.run_on_ray(job, chunks, address=self.address, workers=self.workers)
        if self.workers == 1:
            return local.run_here(job, chunks)
        return local.run_in_processes(job, chunks, workers=self.workers)


def _reported(
    summaries: Iterator[Summary], source: TextSource, plan: BuildPlan, progress: Progress
) -> Iterator[Summary]:
    total = sum(part.num_bytes for part in source.ranges(plan.chunk_bytes))
    progress.start("building", total=total or None, unit="B")
    for summary in summaries:
        progress.advance(summary.text_bytes)
        yield summary


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
