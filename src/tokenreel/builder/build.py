"""`build()`: from sources to a store, the same bytes on one process, many, or a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tokenreel.builder.assemble import assemble
from tokenreel.builder.build_plan import BuildPlan
from tokenreel.builder.build_settings import BuildSettings, Choices
from tokenreel.builder.chat_template import DATE, date_written, pick_template
from tokenreel.builder.encode import Job
from tokenreel.builder.engines.local import end_if_main_is_imported
from tokenreel.builder.engines.runner import Runner
from tokenreel.builder.first import check_first_record
from tokenreel.builder.given_settings import Made, note_of, portable, settings_of
from tokenreel.builder.inputs import open_inputs
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
from tokenreel.builder.spill import Spill, Summary
from tokenreel.builder.work import divide, sendable
from tokenreel.config.keywords import takes_settings
from tokenreel.config.paths import usable_path
from tokenreel.config.sizes import parse_size
from tokenreel.display import count_of, named, never_raising
from tokenreel.layouts.open_store import open_store
from tokenreel.progress import Progress, shown
from tokenreel.store.store import Store
from tokenreel.store.writer import StoreWriter
from tokenreel.text.sources.source_protocol import TextSource
from tokenreel.text.tokenizers import EndToken, Tokenizer, load_tokenizer


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

    def _repr_html_(self) -> str | None:
        return self.store._repr_html_()


@takes_settings(BuildSettings)
def build(settings: BuildSettings) -> Built:
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
    tokenizer's engine goes into the report. With workers, a script needs the usual
    `if __name__ == "__main__":` where they cannot be forked (engines/local.py). The settings:
    """
    end_if_main_is_imported()
    opened = _open(settings)
    source, tokenizer = opened.source, opened.tokenizer
    run = {"replace": settings.replace, "restart": settings.restart}
    # Workers take a second to load: they do it while the source is fingerprinted.
    with (
        Runner(
            settings.engine,
            workers=settings.workers,
            address=settings.address,
            tokenizer=tokenizer,
        ) as runner,
        shown(settings.progress) as bar,
    ):
        bar.start("reading the sources", total=None)
        check_first_record(source, opened.plan, tokenizer)
        given = opened.given(settings)
        folder = usable_path(settings.out)
        made = Made(note=note_of(given, source), facts=opened.facts(settings))
        made = by_recorded_name(folder, made, **run)
        if not settings.replace and (
            kept := finished_store(folder, made, can_seek=source.can_seek)
        ):
            report_beside(folder, kept, tokenizer=tokenizer)
            return Built(
                store=kept, report=report_of(kept), tokenizer=tokenizer, already_built=True
            )
        with (
            open_writer(settings.out, made, **run) as writer,
            keeping_what_is_finished(writer, stop=runner.stop),
        ):
            spill = open_spill(writer, restart=settings.restart)
            account = _encode(opened, writer, spill, runner=runner, bar=bar, watch=settings.watch)
            writer.notes[REPORT_NOTE] = {
                **account.as_dict(),
                "end_token": None if opened.end is None else asdict(opened.end),
                "settings": portable(given),
            }
            refuse_empty(account, writer.path)
            spill.remove()
    store = open_store(settings.out)
    report_beside(folder, store, tokenizer=tokenizer)
    return Built(store=store, report=report_of(store), tokenizer=tokenizer)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Opened:
    """What the settings of a build name, opened."""

    source: TextSource
    tokenizer: Tokenizer
    plan: BuildPlan
    end: EndToken | None

    def given(self, settings: BuildSettings) -> dict[str, Any]:
        """Return the settings as they are kept with the build."""
        template = None if self.plan.template is None else self.plan.template.name
        given = settings_of(settings, self.source, template=template, end=self.end)
        given.pop(DATE, None)
        written = date_written(self.plan.template)
        return given if written is None else {**given, DATE: written}

    def facts(self, settings: BuildSettings) -> dict[str, Any]:
        """Return the facts of the new store."""
        later = {"groups": self.plan.pairs, "records": self.plan.prompts}
        return {name: True for name, is_so in later.items() if is_so} | {
            "vocab_size": self.tokenizer.vocab_size,
            "shard_bytes": settings.shard_size,
            "turns": self.plan.has_turns,
            "provenance": self.plan.provenance,
            "tokenizer": _tokenizer_facts(self.tokenizer, settings.tokenizer),
            "build": self.plan.as_facts(self.source, self.tokenizer),
        }


def _open(settings: BuildSettings) -> _Opened:
    """Open the source and the tokenizer, and pick the template and the end token."""
    source = open_inputs(settings)
    tokenizer = load_tokenizer(settings.tokenizer, engine=settings.tokenizer_engine)
    plan = BuildPlan(
        template=pick_template(settings, tokenizer),
        pairs=bool(settings.pairs),
        prompts=bool(settings.prompts),
        prompt_key=settings.text_key if settings.prompts else None,
        **{item.name: getattr(settings, item.name) for item in dataclasses.fields(Choices)},
    )
    end = plan.end(tokenizer)
    # Workers append what was found here, whatever becomes of the files that declare it.
    plan = dataclasses.replace(plan, end_token=None if end is None else end.token)
    return _Opened(source=source, tokenizer=tokenizer, plan=plan, end=end)


def _encode(
    opened: _Opened,
    writer: StoreWriter,
    spill: Spill,
    *,
    runner: Runner,
    bar: Progress,
    watch: Callable[[Account], None],
) -> Account:
    """Encode the source chunk by chunk and write what is kept of it; return the account."""
    source, plan, account = opened.source, opened.plan, Account()
    job = Job(
        source=sendable(source),
        tokenizer=opened.tokenizer,
        plan=plan,
        spill_folder=spill.folder.absolute(),
        dtype=writer.facts.token_dtype,
    )
    chunk_bytes = parse_size(plan.chunk_bytes)
    parts = source.ranges(chunk_bytes)
    bar.start("building", total=sum(part.num_bytes for part in parts) or None, unit="B")
    chunks = divide(source, parts, chunk_bytes=chunk_bytes, known=spill.verified)
    with closing(runner.run(job, chunks, advance=bar.advance)) as summaries:
        for split, documents in assemble(
            _watched(summaries, account, bar, watch),
            spill,
            plan=plan,
            end_tokens=0 if opened.end is None else 1,
            account=account,
        ):
            writer.add_batch(documents, split=split)
    return account


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


def _tokenizer_facts(tokenizer: Tokenizer, spec: object) -> dict[str, Any]:
    name = Path(spec).name if isinstance(spec, (str, Path)) else type(spec).__name__
    return {
        "name": name,
        "fingerprint": tokenizer.fingerprint,
        "vocab_size": tokenizer.vocab_size,
        "control_ids": dict(tokenizer.control_ids),
    }
