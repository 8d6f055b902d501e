"""Numbers, names and paths that no run can have, and files that are none."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.store.building import build, build_full

import tokenreel
from tokenreel import Feed, Phase, Recipe, Source, open_store
from tokenreel.errors import (
    ConfigError,
    DamageError,
    LimitError,
    StoreError,
)
from tokenreel.feed.memory import Memory
from tokenreel.layouts.cache_pretrain import META_NAME

NULL, HALF, LONG = "a\0b", "\ud800", "x" * 5000


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stores") / "books")


def first_batch(books: Path, *, source: dict[str, Any] | None = None, **settings: Any) -> Any:
    made = Source(**{"name": "a", "path": books, **(source or {})})
    return Feed(Recipe(**{"seq_len": 4, "global_batch_size": 2, "sources": [made], **settings}))


@pytest.mark.parametrize("rows", ["windows", "document_windows", "episodes", "packed"])
@pytest.mark.parametrize(
    "seq_len", [2**31 - 1, 2**31, 2**63, 10**400, 10**5000], ids=int.bit_length
)
def test_a_row_has_less_than_two_to_the_31_tokens(books: Path, rows: str, seq_len: int) -> None:
    with pytest.raises(ConfigError, match=r"bad seq_len \(expected <= 2,147,483,646, got "):
        first_batch(books, seq_len=seq_len, source={"rows": rows})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("pad_id", 2**63, "expected <= 9,223,372,036,854,775,807"),
        ("pad_id", -(2**63), "expected >= -9,223,372,036,854,775,807"),
        ("global_batch_size", 2**31, "expected <= 2,147,483,647"),
        ("steps", 10**400, "got a number of 1,329 bits"),
        ("seed", 10**5000, "got a number of 16,610 bits"),
        ("temperature", 10**400, "expected a finite number"),
        ("temperature", Fraction(10**400), "expected a finite number"),
        ("temperature", float("inf"), "expected a finite number, got inf"),
    ],
    ids=range(8),
)
def test_numbers_that_no_run_can_have_are_refused(
    books: Path, name: str, value: Any, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        first_batch(books, **{name: value})
    assert str(caught.value).startswith(f"bad {name} (")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "weight", [10**400, -(10**400), Fraction(10**400), float("inf")], ids=range(4)
)
def test_a_weight_is_finite(books: Path, weight: Any) -> None:
    with pytest.raises(ConfigError, match=r"bad weight of source 'a' \(expected a finite number"):
        first_batch(books, source={"weight": weight})
    with pytest.raises(ConfigError, match="weights must be finite"):
        first_batch(books, phases=[Phase(start_step=0, weights={"a": weight})])


@pytest.mark.parametrize("weights", [{1: 1}, {None: 1}, {HALF: 1}, {"a": None}, {"a": "x"}])
def test_weights_of_a_phase_are_numbers_by_names(books: Path, weights: Any) -> None:
    with pytest.raises(ConfigError, match="weights"):
        first_batch(books, phases=[Phase(start_step=0, weights=weights)])


def test_fractions_and_numbers_of_numpy_are_the_numbers_they_are(books: Path) -> None:
    plain = first_batch(
        books, seed=3, source={"weight": 0.25}, phases=[Phase(start_step=1, weights={"a": 0.5})]
    )
    other = first_batch(
        books,
        seed=np.int64(3),
        source={"weight": Fraction(1, 4)},
        phases=[Phase(start_step=np.uint8(1), weights={"a": np.float32(0.5)})],  # type: ignore[arg-type, dict-item]
    )
    assert other.state_dict() == plain.state_dict()
    assert other.batch(0).input_ids.tolist() == plain.batch(0).input_ids.tolist()


@pytest.mark.parametrize("shape", [(2**31 - 1, 2**31 - 2), (2**62,)])
def test_a_batch_that_no_memory_holds_is_a_limit(shape: tuple[int, ...]) -> None:
    with pytest.raises(LimitError, match="make seq_len or global_batch_size smaller"):
        Memory().array(shape, np.int64)


@pytest.mark.parametrize("name", ["name", "split"])
def test_half_a_character_is_no_name(books: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"bad {name} of source .*lone surrogates"):
        first_batch(books, source={name: HALF})


@pytest.mark.parametrize("path", [NULL, HALF, LONG], ids=["NUL", "surrogate", "long"])
@pytest.mark.parametrize(
    "use",
    [
        open_store,
        tokenreel.verify,
        tokenreel.load_tokenizer,
        tokenreel.load_template,
        lambda path: tokenreel.load_template(f"{path}.toml"),
        lambda path: Recipe.read(f"{path}.toml"),
        lambda path: tokenreel.convert(path, "never"),
        lambda path: tokenreel.StoreWriter(path, vocab_size=9),
        lambda path: open_store(path, layout="megatron"),
    ],
)
def test_what_cannot_be_a_path_is_refused(use: Callable[[str], object], path: str) -> None:
    with pytest.raises(ConfigError):
        use(path)


def test_a_target_that_cannot_be_a_path_is_refused(books: Path) -> None:
    for path in (NULL, HALF, LONG):
        with pytest.raises(ConfigError, match="not a path"):
            tokenreel.convert(books, path)


@pytest.mark.parametrize("dtype", [HALF, NULL, "(2,", "i4,i4", "u2" * 999, "O", ""], ids=ascii)
def test_a_dtype_is_a_name_and_is_not_evaluated(books: Path, dtype: str) -> None:
    with pytest.raises(StoreError, match="unknown token dtype"):
        open_store(books, dtype=dtype)


def put_stores(folder: Path) -> dict[str, Path]:
    """Write a small store of every layout."""
    native = build_full(folder / "native")
    stores = {"native": native}
    for layout in ("megatron", "episodes", "flat"):
        stores[layout] = folder / layout
        tokenreel.convert(native, stores[layout], to=layout)
    tokens = np.arange(10, dtype="<u2")
    for name in ("bare", "cache-sft", "cache-pretrain/train"):
        (folder / name).mkdir(parents=True)
        stores[name.split("/")[0]] = folder / name.split("/")[0]
    tokens.tofile(folder / "bare/train.bin")
    tokens.tofile(folder / "cache-sft/train_tokens.bin")
    np.save(folder / "cache-sft/train_idx.npy", np.array([0, 3, 7], "<i8"))
    (folder / "cache-sft" / META_NAME).write_text('{"train_tokens": 10}')
    tokens.tofile(folder / "cache-pretrain/train/shard_00000.bin")
    (folder / "cache-pretrain" / META_NAME).write_text('{"token_dtype": "uint16-le"}')
    return stores


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return put_stores(tmp_path_factory.mktemp("layouts"))


def read_whole(path: Path, mode: str) -> None:
    for split in open_store(path, mode=mode).splits.values():
        split.read(0, split.num_tokens)


def put_socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # the name of a socket may have no more than 107 letters
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


IN_PLACE: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a socket": put_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}
LAYOUTS = ("native", "megatron", "episodes", "flat", "bare", "cache-sft", "cache-pretrain")


@pytest.mark.timeout(60)  # at a pipe, a reader that does not look waits for ever
@pytest.mark.parametrize("put", IN_PLACE.values(), ids=list(IN_PLACE))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_waits_for_what_lies_in_place_of_a_store_s_file(
    stores: dict[str, Path], tmp_path: Path, layout: str, put: Callable[[Path], None]
) -> None:
    store = tmp_path / "store"
    shutil.copytree(stores[layout], store, ignore=shutil.ignore_patterns(".plans"))
    for file in sorted(path for path in store.rglob("*") if path.is_file()):
        whole = file.read_bytes()
        file.unlink()
        put(file)
        for mode in ("mmap", "pread"):
            with pytest.raises(StoreError):
                read_whole(store, mode)
        assert not tokenreel.verify(store).ok
        file.unlink()
        file.write_bytes(whole)
    read_whole(store, "mmap")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["a.toml", "b.yaml", "c.xml", "d.json", "e.model", "f.tiktoken"])
def test_nothing_waits_for_a_pipe_in_place_of_settings_or_a_tokenizer(
    tmp_path: Path, name: str
) -> None:
    os.mkfifo(tmp_path / name)
    for use in (Recipe.read, tokenreel.load_template, tokenreel.load_tokenizer):
        with pytest.raises(ConfigError):
            use(tmp_path / name)


@pytest.mark.timeout(60)
def test_a_plan_in_whose_place_a_pipe_lies_is_made_again(tmp_path: Path) -> None:
    recipe = Recipe(
        seq_len=4,
        global_batch_size=1,
        sources=[Source(name="a", path=build(tmp_path / "books"), rows="packed")],
    )
    expected = Feed(recipe).batch(0).input_ids.tolist()
    for file in sorted((tmp_path / "books/.plans").rglob("*")):
        if file.is_file() and file.stat().st_size:
            file.unlink()
            os.mkfifo(file)
            assert Feed(recipe).batch(0).input_ids.tolist() == expected


def test_an_index_of_episodes_that_is_empty_is_damage(
    stores: dict[str, Path], tmp_path: Path
) -> None:
    store = shutil.copytree(stores["episodes"], tmp_path / "store")
    (store / "train/episodes.idx").write_bytes(b"")
    with pytest.raises(DamageError, match="the index is empty, but there are 21 tokens beside it"):
        open_store(store)
    assert not tokenreel.verify(store).ok


@pytest.mark.parametrize("cut", range(1, 21))
def test_a_cache_of_chats_whose_last_bytes_are_missing_is_damage(
    stores: dict[str, Path], tmp_path: Path, cut: int
) -> None:
    store = shutil.copytree(stores["cache-sft"], tmp_path / "store")
    file = store / "train_tokens.bin"
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(DamageError) as caught:
        open_store(store)
    assert caught.value.where == str(file)
