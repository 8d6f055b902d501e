"""kill -9 at any moment, the same command again: nothing is done twice, the result is the same."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builder.faulty import Faulty
from tests.builder.making import chats, documents, places, tree, write_jsonl

from tokenreel.builder.build import build
from tokenreel.errors import InputError, MismatchError, TokenreelError
from tokenreel.inspect.verify import verify_store
from tokenreel.text.sources import InMemory, ReadOptions

# Without those of a build that is about to be committed, whose folder ends in ".gone".
CHUNKS = f".build/chunks-{16 * chr(63)}/*.chunk"
SMALL: dict[str, Any] = {"chunk_bytes": 2000, "shard_size": 4096}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 MB of JSONL in six files, each of which is a chunk."""
    row = json.dumps({"text": "All work and no play makes a dull reel. " * 50})
    folder = tmp_path_factory.mktemp("large")
    for number in range(6):
        (folder / f"{number}.jsonl").write_text("".join(f"{row}\n" for _ in range(2_000)))
    return folder


def command(source: Path, out: Path, *options: str) -> list[str]:
    run = [sys.executable, "-m", "tokenreel.cli.main", "build", str(source), "--out", str(out)]
    return [*run, "--tokenizer", "byte", "--shard-size", "8M", "--quiet", *options]


def finished(out: Path) -> dict[str, tuple[int, int]]:
    """Return the finished shards and the encoded chunks of a build."""
    return {**places(out, "*/shard_*.json"), **places(out, CHUNKS)}


def kill_at(process: subprocess.Popen[bytes], out: Path, *, count: int, delay: float) -> bool:
    """Kill a build some time after it has finished so many things; tell whether it was alive."""
    while process.poll() is None and len(finished(out)) < count:
        time.sleep(0.002)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def kill_many_times(source: Path, folder: Path, *, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    options = ["--val-frac", "0.1", "--shuffle", "buffer", "--shuffle-buffer", "500"]
    subprocess.run(command(source, folder / "whole", *options, "--workers", "1"), check=True)
    expected = tree(folder / "whole")
    out = folder / "killed"
    num_killed = num_built = kept = 0
    while num_killed < kills:
        before = finished(out)
        workers = chance.choice(["1", "2"])
        process = subprocess.Popen(command(source, out, *options, "--workers", workers))
        count = len(before) + chance.randrange(3)
        num_killed += kill_at(process, out, count=count, delay=chance.uniform(0, 0.1))
        if (out / "manifest.json").exists():
            assert tree(out) == expected
            num_built += 1
            out = folder / f"killed-{num_built}"
            continue
        # The chunks go before the manifest comes: a kill in between costs time, no shard.
        after = finished(out)
        chunks_are_gone = not list(out.glob(CHUNKS))
        safe = {
            name: place
            for name, place in before.items()
            if not (chunks_are_gone and name.endswith(".chunk"))
        }
        assert safe.items() <= after.items(), "something finished was lost or written again"
        kept += len(safe)
    if not (out / "manifest.json").exists():
        subprocess.run(command(source, out, *options), check=True)
    assert tree(out) == expected
    assert verify_store(out).ok
    assert kept


def test_a_build_that_is_killed_goes_on(large: Path, tmp_path: Path) -> None:
    kill_many_times(large, tmp_path, kills=3, seed=5)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_build_that_is_killed_100_times_goes_on(large: Path, tmp_path: Path) -> None:
    kill_many_times(large, tmp_path, kills=100, seed=6)


class StopError(Exception):
    """Stands for whatever ends a build in the middle."""


def stop_after(chunks: int) -> Any:
    seen = []

    def watch(account: Any) -> None:
        seen.append(account)
        if len(seen) == chunks:
            raise StopError

    return watch


def half_built(out: Path, source: Any, **choices: Any) -> None:
    with pytest.raises(StopError):
        build(source, out=out, watch=stop_after(5), **{"tokenizer": "byte", **SMALL, **choices})


class Reiterable:
    """An iterable that is no sequence and can be read again: a stream with a cursor."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


TEXTS = [row["text"] for row in documents(200)]
STREAMS: dict[str, Any] = {
    "list": lambda: InMemory(TEXTS),
    "iterator": lambda: InMemory(iter(TEXTS)),
    "stream": lambda: InMemory(Reiterable(TEXTS)),
    "two streams": lambda: [InMemory(Reiterable(TEXTS[:90])), InMemory(Reiterable(TEXTS[90:]))],
    "iterator between": lambda: [
        InMemory(TEXTS[:30]),
        InMemory(iter(TEXTS[30:99])),
        InMemory(Reiterable(TEXTS[99:])),
    ],
}


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("chunks", [2, 9])
def test_streams_go_on_where_they_were(name: str, chunks: int, tmp_path: Path) -> None:
    build(STREAMS[name](), out=tmp_path / "whole", tokenizer="byte", **SMALL)
    out = tmp_path / "s"
    with pytest.raises(StopError):
        build(STREAMS[name](), out=out, tokenizer="byte", watch=stop_after(chunks), **SMALL)
    before = places(out, ".build/*/*.chunk")
    assert len(before) >= chunks
    seen: list[dict[str, tuple[int, int]]] = []
    build(
        STREAMS[name](),
        out=out,
        tokenizer="byte",
        watch=lambda account: seen.append(places(out, ".build/*/*.chunk")),
        **SMALL,
    )
    assert before.items() <= seen[-1].items()
    assert tree(out) == tree(tmp_path / "whole")


def test_a_chunk_that_is_there_is_not_encoded_again(tmp_path: Path) -> None:
    half_built(tmp_path / "s", InMemory(TEXTS))
    first = (tmp_path / "s").glob(".build/*/00000[0-4].chunk")
    assert len(list(first)) == 5
    # This tokenizer fails over the very first document: it is not asked to encode it.
    trap = Faulty("error", word=next(text for text in TEXTS if text))
    build(InMemory(TEXTS), out=tmp_path / "s", tokenizer="byte", **SMALL)
    with pytest.raises(TokenreelError, match="the tokenizer broke"):
        build(InMemory(TEXTS), out=tmp_path / "t", tokenizer=trap, **SMALL)


def test_an_iterator_of_other_documents_is_noticed(tmp_path: Path) -> None:
    half_built(tmp_path / "s", InMemory(iter(TEXTS)))
    with pytest.raises(MismatchError, match=r"not those.*source .*restart=True"):
        build(texts=iter(["changed", *TEXTS]), out=tmp_path / "s", tokenizer="byte", **SMALL)
    build(
        texts=iter(["changed", *TEXTS]), out=tmp_path / "s", tokenizer="byte", restart=True, **SMALL
    )
    build(texts=iter(["changed", *TEXTS]), out=tmp_path / "t", tokenizer="byte", **SMALL)
    assert tree(tmp_path / "s") == tree(tmp_path / "t")


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"seed": 1}, "seed"),
        ({"val_frac": 0.5}, "val_frac"),
        ({"shuffle": "global"}, "shuffle"),
        ({"deduplicate": True}, "deduplicate"),
        ({"end_token": None}, "end_token"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"shard_size": 8192}, "shard_size"),
        ({"provenance": False}, "provenance"),
    ],
)
def test_other_choices_are_refused_by_name(
    changed: dict[str, Any], field: str, tmp_path: Path
) -> None:
    half_built(tmp_path / "s", InMemory(TEXTS))
    before = tree(tmp_path / "s")
    with pytest.raises(MismatchError) as caught:
        build(InMemory(TEXTS), out=tmp_path / "s", tokenizer="byte", **{**SMALL, **changed})
    assert list(caught.value.differing) == [field]
    assert f"{field}: " in str(caught.value) and "restart=True" in str(caught.value)
    assert tree(tmp_path / "s") == before
    choices = {**SMALL, **changed}
    build(InMemory(TEXTS), out=tmp_path / "s", tokenizer="byte", restart=True, **choices)
    build(InMemory(TEXTS), out=tmp_path / "t", tokenizer="byte", **choices)
    assert tree(tmp_path / "s") == tree(tmp_path / "t")


def test_workers_and_engines_may_change_in_between(tmp_path: Path) -> None:
    source = [write_jsonl(tmp_path / "d.jsonl", documents(200))]
    build(source, out=tmp_path / "t", tokenizer="byte", **SMALL)
    half_built(tmp_path / "s", source, workers=2)
    build(source, out=tmp_path / "s", tokenizer="byte", tokenizer_engine="reference", **SMALL)
    assert tree(tmp_path / "s") == tree(tmp_path / "t")


def test_a_damaged_chunk_is_encoded_again(tmp_path: Path) -> None:
    source = [write_jsonl(tmp_path / "c.jsonl", chats(80))]
    choices: dict[str, Any] = {**SMALL, "chat": True, "deduplicate": True}
    build(source, out=tmp_path / "t", tokenizer="byte", **choices)
    with pytest.raises(StopError):
        build(source, out=tmp_path / "s", tokenizer="byte", watch=stop_after(4), **choices)
    flipped, cut, empty, *_ = sorted((tmp_path / "s").glob(".build/*/*.chunk"))
    data = bytearray(flipped.read_bytes())
    data[40] ^= 1
    flipped.write_bytes(data)
    cut.write_bytes(cut.read_bytes()[:-20])
    empty.write_bytes(b"")
    build(source, out=tmp_path / "s", tokenizer="byte", **choices)
    assert tree(tmp_path / "s") == tree(tmp_path / "t")


def test_leftovers_of_a_killed_build_go(tmp_path: Path) -> None:
    half_built(tmp_path / "s", InMemory(TEXTS))
    [folder] = (tmp_path / "s" / ".build").glob("chunks-*")
    (folder / "000001.abc.tmp").write_bytes(b"half")
    (folder / "77.000001.at").write_text("somewhere")
    with pytest.raises(StopError):
        build(InMemory(TEXTS), out=tmp_path / "s", tokenizer="byte", watch=stop_after(1), **SMALL)
    assert {path.suffix for path in folder.iterdir()} == {".chunk"}
    build(InMemory(TEXTS), out=tmp_path / "s", tokenizer="byte", **SMALL)
    assert not (tmp_path / "s" / ".build").exists()


def test_skipped_records_are_counted_once_with_their_places(tmp_path: Path) -> None:
    bad = {"text": None}
    rows = [bad if n % 10 == 0 else {"text": f"fine {n}"} for n in range(95)] + [bad, bad]
    for name, source in (
        ("files", [write_jsonl(tmp_path / "d.jsonl", rows)]),
        ("stream", InMemory(Reiterable(rows), options=ReadOptions(on_bad="skip"))),
    ):
        options: dict[str, Any] = {"on_bad": "skip"} if name == "files" else {}
        out = tmp_path / name
        with pytest.raises(StopError):
            build(
                source,
                out=out,
                tokenizer="byte",
                chunk_bytes=100,
                watch=stop_after(3),
                **options,
            )
        built = build(source, out=out, tokenizer="byte", chunk_bytes=100, **options)
        assert built.report["skipped"] == {"'text' is not a string": 12}
        skipped_rows = [place["row"] for place in built.report["skipped_places"]]
        assert skipped_rows == [n for n in range(97) if n % 10 == 0 or n > 94]


def test_a_bad_record_stops_the_build_and_skipping_it_keeps_what_was_done(tmp_path: Path) -> None:
    rows: list[Any] = documents(200)
    rows[150] = {"txt": "no such key"}
    source = [write_jsonl(tmp_path / "d.jsonl", rows)]
    for workers in (1, 2):
        out = tmp_path / f"s{workers}"
        with pytest.raises(InputError, match=r"d\.jsonl:151: missing key"):
            build(source, out=out, tokenizer="byte", workers=workers, **SMALL)
        before = places(out, ".build/*/*.chunk")
        assert before
        built = build(source, out=out, tokenizer="byte", on_bad="skip", **SMALL)
        assert built.report["skipped"] == {"missing key": 1}
