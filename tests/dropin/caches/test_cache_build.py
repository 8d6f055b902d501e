"""Caches by way of native stores: resumed, refused, kept, replaced when they are stubs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tokenreel import open_store
from tokenreel.dropin.caches import cache_folder
from tokenreel.dropin.caches.cache_build import (
    Cached,
    build_budgeted,
    build_by_file,
    build_chats,
    build_presplit,
    build_stub,
    choose_validation,
)
from tokenreel.dropin.caches.cache_builder import CacheBuilder, keep_tokenizer
from tokenreel.dropin.caches.cache_writer import write_meta
from tokenreel.errors import (
    BusyError,
    ConfigError,
    DamageError,
    EmptyError,
    ExistsError,
    InputError,
    MismatchError,
)
from tokenreel.filesystem import LOCAL
from tokenreel.text.sources import Cursor, InMemory, Range
from tokenreel.text.sources.mixed_files import FileSource
from tokenreel.text.sources.named import named_source
from tokenreel.text.sources.source_protocol import Step
from tokenreel.text.tokenizers import NGPT_SPECIALS, byte_tokenizer, load_tokenizer

ABOUT = {"dataset_name": "test", "split_rule": "as told"}
BYTES = byte_tokenizer(tuple(NGPT_SPECIALS.values()))
TEXTS = [f"text number {n} " * 50_000 for n in range(40)]


class Fragile(InMemory):
    """Breaks off in front of a text until it is mended."""

    breaks_at = len(TEXTS)

    def steps(self, part: Range, *, cursor: Cursor | None = None) -> Iterator[Step]:
        for record, following in super().steps(part, cursor=cursor):
            if following["row"] > self.breaks_at:
                raise InputError("the line is dead")
            yield record, following


def builder(**changed: Any) -> CacheBuilder:
    chosen = {"tokenizer": BYTES, "tokenizer_sha256": "0" * 64, "seed": 1, **changed}
    return CacheBuilder(**chosen)


def build(out: Path, source: InMemory, used: CacheBuilder | None = None, **changed: Any) -> Cached:
    sizes: dict[str, Any] = {
        "val_tokens": 1_000_000,
        "train_tokens": 15_000_000,
        "shuffle_buffer": 7,
        "shard_bytes": 4_000_000,
    }
    return build_budgeted(used or builder(), source, out, about=ABOUT, **{**sizes, **changed})


def files(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_build_that_broke_off_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    build(tmp_path / "whole", Fragile(TEXTS))
    source = Fragile(TEXTS)
    source.breaks_at = 25
    with pytest.raises(InputError, match="the line is dead"):
        build(tmp_path / "web", source)
    assert [entry.name for entry in tmp_path.iterdir() if "web" in entry.name] == [".web.build"]
    with pytest.raises(MismatchError, match=r"shuffle_buffer"):
        build(tmp_path / "web", source, shuffle_buffer=8)
    source.breaks_at = len(TEXTS)
    build(tmp_path / "web", source)
    assert files(tmp_path / "web") == files(tmp_path / "whole")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["web", "whole"]


def test_restart_forgets_an_unfinished_build(tmp_path: Path) -> None:
    source = Fragile(TEXTS)
    source.breaks_at = 25
    with pytest.raises(InputError, match="the line is dead"):
        build(tmp_path / "web", source)
    source.breaks_at = len(TEXTS)
    build(tmp_path / "web", source, builder(restart=True), shuffle_buffer=8)
    assert [entry.name for entry in tmp_path.iterdir()] == ["web"]


def test_a_part_that_was_finished_is_not_built_again(tmp_path: Path) -> None:
    train, val = InMemory(["one", "two"]), Fragile(["three"])
    val.breaks_at = 0
    sources = {"train": train, "val": val}
    with pytest.raises(InputError, match="the line is dead"):
        build_presplit(builder(), sources, tmp_path / "wiki", about=ABOUT)
    with pytest.raises(MismatchError, match=r"unfinished build of something else.*seed.*restart"):
        build_presplit(builder(seed=2), sources, tmp_path / "wiki", about=ABOUT)
    shard = tmp_path / ".wiki.build/train/train/shard_00000.bin"
    inode = shard.stat().st_ino
    val.breaks_at = 1
    build_presplit(builder(), sources, tmp_path / "wiki", about=ABOUT)
    linked = tmp_path / "wiki/train/shard_00000.bin"
    assert linked.stat().st_ino == inode and linked.stat().st_nlink == 1
    wiki = open_store(tmp_path / "wiki")
    assert bytes(wiki["train"].read(0, 6).astype("u1")) == b"onetwo"
    assert wiki.metadata["totals"]["train_documents"] == 2


def test_validation_may_be_empty_and_training_may_not(tmp_path: Path) -> None:
    nothing = InMemory(["", ""])
    cached = build_presplit(
        builder(), {"train": InMemory(["one"]), "val": nothing}, tmp_path / "a", about=ABOUT
    )
    assert cached.meta["val_tokens"] == 0 and not list((tmp_path / "a/val").iterdir())
    with pytest.raises(EmptyError):
        build_presplit(
            builder(), {"train": nothing, "val": InMemory(["one"])}, tmp_path / "b", about=ABOUT
        )
    assert not (tmp_path / "b").exists()


def test_the_files_of_validation_are_those_torch_chooses(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(20):
        (notes / f"{number:02d}.md").write_text(f"note {number:02d}")
    source = named_source("roam", path=str(notes), split="all")
    assert isinstance(source, FileSource)
    out = tmp_path / "roam"
    cached = build_by_file(builder(seed=9), source, out, about=ABOUT, val_frac=0.2)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(9))
    store, decode = open_store(out), BYTES.decode
    for split, chosen in (("val", order[:4]), ("train", order[4:])):
        text = decode(store[split].read(0, store[split].num_tokens))
        assert text == "".join(f"note {number:02d}" for number in sorted(chosen.tolist()))
    assert cached.meta["val_frac"] == 0.2


def test_a_second_builder_is_told_who_is_at_it(tmp_path: Path) -> None:
    with (
        cache_folder.building(tmp_path / "web"),
        pytest.raises(BusyError, match=r"\.web\.build: another build .*process \d+"),
    ):
        build(tmp_path / "web", InMemory(TEXTS))
    assert not list(tmp_path.iterdir())


def test_a_finished_cache_is_kept_if_it_is_the_one_asked_for(tmp_path: Path) -> None:
    chats = [[{"role": "user", "content": f"{n}"}] for n in range(10)]
    source = InMemory(chats)
    out = tmp_path / "dolly"
    first = build_chats(builder(), source, out, about=ABOUT, val_frac=0.2)
    with pytest.raises(ExistsError, match="dolly"):
        build_chats(builder(), source, out, about=ABOUT, val_frac=0.2)
    (tmp_path / ".dolly.build").mkdir()
    kept = build_chats(builder(keep=True), source, out, about=ABOUT, val_frac=0.2)
    assert kept == replace(first, was_there=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["dolly"]
    with pytest.raises(MismatchError, match=r"val_frac \(expected 0\.3, got 0\.2\); remove it"):
        build_chats(builder(keep=True), source, out, about=ABOUT, val_frac=0.3)
    (out / "train_tokens.bin").write_bytes(b"")
    with pytest.raises(DamageError, match=r"train_tokens\.bin"):
        build_chats(builder(keep=True), source, out, about=ABOUT, val_frac=0.2)


def test_a_cache_of_a_former_version_with_separators_is_not_taken_for_this_one(
    tmp_path: Path,
) -> None:
    sources = {"train": InMemory(["one"]), "val": InMemory(["two"])}
    out = tmp_path / "wiki"
    meta = build_presplit(builder(), sources, out, about=ABOUT).meta
    del meta["document_separator"]
    write_meta(out, meta, filesystem=LOCAL)
    with pytest.raises(MismatchError, match=r"document_separator .*none.*got None"):
        build_presplit(builder(keep=True), sources, out, about=ABOUT)


def test_a_stub_makes_way_for_the_cache_and_never_takes_its_place(tmp_path: Path) -> None:
    out = tmp_path / "gutenberg"
    stub = build_stub(builder(), out, about=ABOUT)
    assert stub.meta["not_built"] and sorted(entry.name for entry in out.iterdir()) == [
        "meta.json",
        "train",
        "val",
    ]
    with pytest.raises(DamageError, match="the cache has no shards"):
        open_store(out)
    sources = {"train": InMemory(["one"]), "val": InMemory(["two"])}
    built = build_presplit(builder(keep=True), sources, out, about=ABOUT)
    assert "not_built" not in built.meta
    assert build_stub(builder(), out, about=ABOUT) == replace(built, was_there=True)


def test_a_tokenizer_is_copied_once_and_another_refused(tmp_path: Path) -> None:
    model = tmp_path / "t.model"
    model.write_bytes(b"a model")
    used = builder(tokenizer_sha256=hashlib.sha256(b"a model").hexdigest())
    keep_tokenizer(used, model, tmp_path / "tokenizer")
    keep_tokenizer(used, model, tmp_path / "tokenizer")
    assert sorted(files(tmp_path / "tokenizer")) == ["meta.json", "spm.model"]
    with pytest.raises(MismatchError, match="another tokenizer; differing: tokenizer_sha256"):
        keep_tokenizer(builder(), model, tmp_path / "tokenizer")


def test_a_tokenizer_that_lies_there_alone_gets_its_facts_and_keeps_those_it_has(
    tmp_path: Path,
) -> None:
    model, folder = tmp_path / "t.model", tmp_path / "tokenizer"
    model.write_bytes(b"a model")
    used = builder(tokenizer_sha256=hashlib.sha256(b"a model").hexdigest())
    keep_tokenizer(used, model, folder)
    written = (folder / "meta.json").read_bytes()
    (folder / "meta.json").unlink()
    keep_tokenizer(used, model, folder)
    assert (folder / "meta.json").read_bytes() == written
    before = (folder / "meta.json").stat()
    keep_tokenizer(used, model, folder)
    assert (folder / "meta.json").stat().st_ino == before.st_ino


def test_a_tokenizer_without_the_four_control_tokens_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"lacks control tokens.*ngpt_sys.*--template ngpt"):
        builder(tokenizer=load_tokenizer("byte"))
    ids = builder(tokenizer=BYTES).special_token_ids()
    assert ids == {"sys": 256, "usr": 257, "asst": 258, "eot": 259}


@pytest.mark.parametrize(
    ("count", "fraction", "chosen"),
    [(0, 0.5, 0), (1, 0.5, 0), (2, 0.01, 1), (2, 0.99, 1), (10, 0.0, 0), (100, 0.29, 29)],
)
def test_some_are_validation_and_never_all(count: int, fraction: float, chosen: int) -> None:
    choice = choose_validation(count, fraction, seed=3)
    assert (len(choice), int(choice.sum())) == (count, chosen)
    assert np.array_equal(choice, choose_validation(count, fraction, seed=3))
