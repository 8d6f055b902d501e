"""build-all, end to end: a process of its own, the real client, the stand-in of the hub."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.forked import Forks
from tests.hub.environment import client_environment

from niels_gpt.cache import PretrainTokenStreamDataset, SFTExampleDataset, formats, read_meta
from niels_gpt.cache.cli import _has_finished_work, _model, _parser, _works, main
from tokenreel import open_store
from tokenreel.dropin.caches.cache_builder import CacheBuilder
from tokenreel.errors import InputError
from tokenreel.text.tokenizers import NGPT_SPECIALS, byte_tokenizer, load_tokenizer
from tokenreel.text.tokenizers.train import train_tokenizer

HUB = Path(__file__).parent.parent / "hub"
SPECIALS = tuple(NGPT_SPECIALS.values())
NGPT: dict[str, Any] = {"specials": SPECIALS, "round_to": 1}
SIZES = ["--max-train-tokens", "20000", "--max-val-tokens", "2000", "--shard-bytes", "16384"]
REQUIRED = {
    "dataset_name",
    "dataset_config",
    "split_rule",
    "seed",
    "token_dtype",
    "tokenizer_sha256",
    "vocab_size",
    "special_token_ids",
}

Result = subprocess.CompletedProcess[str]


def _hub_conftest() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tokenreel_tests_hub_data", HUB / "conftest.py")
    if spec is None or spec.loader is None:
        raise ImportError(HUB)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    root = tmp_path_factory.mktemp("hub")
    module = _hub_conftest()
    module._fill(root)
    served = module._load("stand_in").StandIn(root)
    yield served
    served.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer and notes, to run in."""
    folder = tmp_path_factory.mktemp("place")
    train_tokenizer([argparse.__file__], out=folder / "t.model", vocab_size=504, **NGPT)
    notes = folder / "data" / "roam"
    notes.mkdir(parents=True)
    for number in range(10):
        (notes / f"note{number}.md").write_text(f"# Note {number}\n\nwords\n")
    return folder


@pytest.fixture(scope="module")
def start(hub: Any, place: Path) -> Callable[..., subprocess.Popen[str]]:
    environment = client_environment(hub.url, place / "client")

    def build_all(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "niels_gpt.cache.cli", "build-all", *SIZES, *arguments],
            env=environment,
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return build_all


@pytest.fixture(scope="module")
def run(
    hub: Any, place: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Result]]:
    """Run the command to its end; torch and the client are imported once for all runs."""
    environment = client_environment(hub.url, place / "client")
    folder = tmp_path_factory.mktemp("printed")
    with Forks("torch", "datasets", folder=folder, environment=environment) as forks:

        def build_all(*arguments: str) -> Result:
            words = ["-m", "niels_gpt.cache.cli", "build-all", *SIZES, *arguments]
            forked = forks.start(*words, cwd=place)
            return Result(words, forked.wait(), forked.printed(), forked.complaints())

        yield build_all


def sums(folder: Path) -> dict[str, str]:
    # Stores opened by an end token keep what they found in hidden folders.
    paths = [path for path in sorted(folder.rglob("*")) if path.parent.name != ".tokenreel"]
    files = [path for path in paths if path.is_file()]
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


@pytest.fixture(scope="module")
def built(run: Callable[..., Result], place: Path) -> Result:
    """The contract's line, with the tokenizer where the contract says; only the budgets differ."""
    link = place / "cache/tokenizer/spm.model"
    link.parent.mkdir(parents=True)
    link.symlink_to(place / "t.model")
    return run("--cache-dir", "cache", "--seed", "42", "--json")


def test_all_sources_are_built_in_the_layout_of_the_contract(built: Result, place: Path) -> None:
    """Contract 002: "python -m niels_gpt.cache.cli build-all --cache-dir cache --seed 42", and
    "cache/tokenizer/spm.model: copy/symlink from pr-01 output".
    """
    assert built.returncode == 0, built.stderr
    report = json.loads(built.stdout)
    assert {cache["cache"]: cache["state"] for cache in report["caches"]} == {
        "pretrain/fineweb_edu": "built",
        "pretrain/roam": "built",
        "pretrain/wikitext": "built",
        "pretrain/gutenberg": "not built",
        "sft/dolly15k": "built",
        "sft/oasst1": "built",
    }
    assert "pretrain/fineweb_edu: built" in built.stderr
    sft = [f"{split}_{what}" for split in ("train", "val") for what in ("idx.npy", "tokens.bin")]
    shards = ["train/shard_00000.bin", "val/shard_00000.bin"]
    wanted = {
        "tokenizer": ["meta.json", "spm.model"],
        "pretrain/fineweb_edu": [
            "meta.json",
            *(f"train/shard_0000{number}.bin" for number in range(3)),
            "val/shard_00000.bin",
        ],
        "pretrain/roam": ["meta.json", *shards],
        "pretrain/wikitext": ["meta.json", *shards],
        "pretrain/gutenberg": ["meta.json"],
        "sft/dolly15k": ["meta.json", *sft],
        "sft/oasst1": ["meta.json", *sft],
    }
    names = sorted(f"{folder}/{name}" for folder, files in wanted.items() for name in files)
    assert sorted(sums(place / "cache")) == names
    hidden = [path.name for path in (place / "cache").rglob(".*")]
    assert not hidden
    assert (place / "cache/pretrain/gutenberg/train").is_dir()


def test_every_meta_says_what_the_contract_lists(built: Result, place: Path) -> None:
    cache = place / "cache"
    model_sha256 = hashlib.sha256((place / "t.model").read_bytes()).hexdigest()
    metas = {path.parent.name: read_meta(str(path)) for path in cache.rglob("meta.json")}
    assert len(metas) == 7
    for meta in metas.values():
        assert meta.keys() >= REQUIRED
        assert (meta["seed"], meta["token_dtype"], meta["vocab_size"]) == (42, "uint16-le", 504)
        assert meta["tokenizer_sha256"] == model_sha256
        assert meta["special_token_ids"] == {"sys": 1, "usr": 2, "asst": 3, "eot": 4}
    fineweb = metas["fineweb_edu"]
    assert fineweb["streaming"] is True and metas["wikitext"]["streaming"] is False
    assert (fineweb["dataset_name"], fineweb["dataset_config"]) == (
        "HuggingFaceFW/fineweb-edu",
        "CC-MAIN-2024-10",
    )
    assert (fineweb["train_tokens"], fineweb["val_tokens"]) == (20_000, 2_000)
    assert fineweb["shard_bytes"] == 16_384
    assert len(fineweb["sources"]["all"]["revision"]) == 40
    assert metas["gutenberg"]["not_built"] is True
    assert (metas["dolly15k"]["train_examples"], metas["dolly15k"]["val_examples"]) == (11, 1)
    assert (metas["oasst1"]["train_examples"], metas["oasst1"]["val_examples"]) == (4, 1)


def test_the_caches_hold_what_the_hub_serves(built: Result, place: Path) -> None:
    cache, tokenizer = place / "cache", load_tokenizer(place / "t.model")
    assert (cache / "tokenizer/spm.model").read_bytes() == (place / "t.model").read_bytes()

    def text(name: str, split: str) -> str:
        tokens = open_store(cache / "pretrain" / name)[split]
        return tokenizer.decode(tokens.read(0, tokens.num_tokens))

    assert text("wikitext", "val") == " = Title = \nvalidation Some text . \nvalidation"
    notes = [re.findall(r"# Note \d\n\nwords\n", text("roam", split)) for split in ("train", "val")]
    assert sorted(notes[0] + notes[1]) == [f"# Note {number}\n\nwords\n" for number in range(10)]
    assert (len(notes[0]), len(notes[1])) == (9, 1)
    oasst = open_store(cache / "sft/oasst1")
    assert sorted(
        tokenizer.decode(d.tokens[d.tokens.tolist().index(3) + 1 : -1])
        for split in ("train", "val")
        for d in oasst[split].documents()
    ) == [f"T{n}-c" for n in range(5)]
    pages = text("fineweb_edu", "val") + text("fineweb_edu", "train")
    numbers = [int(number) for number in re.findall(r"Page (\d+)\.", pages)]
    assert len(set(numbers)) == len(numbers) and numbers != sorted(numbers)


def test_the_datasets_sample_what_was_built(built: Result, place: Path) -> None:
    cache, generator = place / "cache", torch.Generator().manual_seed(1)
    pages = PretrainTokenStreamDataset(
        str(cache / "pretrain/fineweb_edu/train"), T=128, device="cpu"
    )
    x, y = pages.get_batch(B=8, generator=generator)
    assert torch.equal(y[:, :-1], x[:, 1:]) and int(x.max()) < 504
    folder = cache / "sft/dolly15k"
    chats = SFTExampleDataset(
        str(folder / "train_tokens.bin"),
        str(folder / "train_idx.npy"),
        T=64,
        device="cpu",
        eot_id=4,
    )
    _, _, masked = chats.get_batch(B=3, generator=generator)
    decode = load_tokenizer(place / "t.model").decode
    for row in masked:
        assert decode(row[row != -100][:-1].tolist()).startswith("Say ")


def test_run_again_all_is_kept(built: Result, run: Callable[..., Result], place: Path) -> None:
    before = sums(place / "cache")
    again = run("--cache-dir", "cache", "--json")  # the tokenizer is there by now
    states = [cache["state"] for cache in json.loads(again.stdout)["caches"]]
    assert again.returncode == 0
    assert states == ["kept", "kept", "kept", "not built", "kept", "kept"]
    assert sums(place / "cache") == before


def test_another_seed_is_refused_source_by_source_and_nothing_is_overwritten(
    built: Result, run: Callable[..., Result], place: Path
) -> None:
    shutil.copytree(place / "cache", place / "copied")
    other = run("--cache-dir", "copied", "--seed", "43")
    assert other.returncode == 1
    assert other.stdout.count("differing: seed (expected 43, got 42); remove it to build") == 5
    before, after = sums(place / "cache"), sums(place / "copied")
    assert {name for name in before if before[name] != after[name]} == {
        "pretrain/gutenberg/meta.json"  # a stub holds nothing to lose
    }


@pytest.mark.soak
def test_a_failed_source_is_reported_the_others_are_built_and_the_next_run_ends_the_same(
    built: Result, run: Callable[..., Result], place: Path
) -> None:
    arguments = ["--cache-dir", "partly", "--tokenizer", "t.model", "--max-retries", "0"]
    arguments += ["--dolly-id", "nobody/nothing", "--roam-dir", "no/notes"]
    failed = run(*arguments, "--json")
    report = json.loads(failed.stdout)
    assert failed.returncode == 1 and report["failed"] == 2
    states = {cache["cache"]: cache for cache in report["caches"]}
    assert states["sft/oasst1"]["state"] == states["pretrain/wikitext"]["state"] == "built"
    assert states["sft/dolly15k"]["error"].startswith(
        "nobody/nothing: the dataset cannot be opened"
    )
    assert "no/notes: the folder of 'roam' is not there" in states["pretrain/roam"]["error"]
    assert "sft/dolly15k: failed: nobody/nothing" in failed.stderr
    assert not (place / "partly/sft/dolly15k").exists()
    assert not (place / "partly/pretrain/roam").exists()
    mended = run("--cache-dir", "partly", "--json")
    states = {cache["cache"]: cache["state"] for cache in json.loads(mended.stdout)["caches"]}
    assert mended.returncode == 0
    assert states["sft/oasst1"] == "kept" and states["sft/dolly15k"] == "built"
    assert sums(place / "partly") == sums(place / "cache")


def kill_when(process: subprocess.Popen[str], begun: Path) -> None:
    with process:
        while not begun.exists():
            assert process.poll() is None, f"{begun} was never there"
            time.sleep(0.001)
        process.kill()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.soak
def test_killed_in_the_middle_and_run_again_with_other_workers_it_ends_the_same(
    built: Result,
    start: Callable[..., subprocess.Popen[str]],
    run: Callable[..., Result],
    place: Path,
) -> None:
    cache = place / "killed"
    arguments = ["--cache-dir", "killed", "--tokenizer", "t.model", "--quiet"]
    kill_when(start(*arguments, "--workers", "2"), cache / "pretrain/.wikitext.build")
    assert not (cache / "pretrain/wikitext").exists()
    finished = cache / "pretrain/fineweb_edu/meta.json"
    before = finished.stat()
    assert run(*arguments).returncode == 0
    assert (finished.stat().st_ino, finished.stat().st_mtime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
    )
    assert sums(cache) == sums(place / "cache")
    assert not [path.name for path in cache.rglob(".*")]


@pytest.mark.soak
def test_killed_in_every_source_and_run_again_by_two_workers_it_ends_the_same(
    built: Result,
    start: Callable[..., subprocess.Popen[str]],
    run: Callable[..., Result],
    place: Path,
) -> None:
    cache = place / "killed-often"
    arguments = ["--cache-dir", cache.name, "--tokenizer", "t.model", "--quiet", "--workers", "2"]
    for begun in (
        "pretrain/.fineweb_edu.build/all/.build/plan.json",
        "pretrain/.roam.build/val/.build/plan.json",
        "pretrain/.wikitext.build/train/train",
        "sft/.dolly15k.build/all/manifest.json",
        "sft/.oasst1.build",
    ):
        kill_when(start(*arguments), cache / begun)
    assert run(*arguments).returncode == 0
    assert sums(cache) == sums(place / "cache")
    assert not [path.name for path in cache.rglob(".*")]


def test_without_a_tokenizer_it_says_how_to_get_one_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Contract 002: "tokenizer/spm.model  # copy/symlink from pr-01 output"."""
    monkeypatch.chdir(tmp_path)
    assert main(["build-all", "--cache-dir", "cache", "--seed", "42"]) == 2
    said = capsys.readouterr().err
    assert "cache/tokenizer/spm.model or artifacts/tokenizer/spm.model: there is no tok" in said
    assert (
        '"mkdir -p cache/tokenizer"' in said and '"cp spm.model cache/tokenizer/spm.model"' in said
    )
    words = "--template ngpt --vocab-size 16004 --round-to 1 --out cache/tokenizer/spm.model"
    assert f'"tokenreel train-tokenizer FILE… {words}"' in said
    assert not list(tmp_path.iterdir())


def test_the_tokenizer_of_the_cache_is_found_before_the_one_the_original_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = _parser().parse_args(["build-all", "--cache-dir", "cache", "--seed", "42"])
    for place in ("artifacts/tokenizer/spm.model", "cache/tokenizer/spm.model"):
        Path(place).parent.mkdir(parents=True)
        Path(place).touch()
        assert _model(args) == Path(place)


def test_the_usual_folder_of_notes_may_be_absent_and_one_that_is_named_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract 002 has no flag for notes in its line; the original makes a stub of absent ones."""
    monkeypatch.chdir(tmp_path)
    encoder = byte_tokenizer(SPECIALS)
    builder = CacheBuilder(tokenizer=encoder, tokenizer_sha256="0" * 64, seed=42)
    parse = _parser().parse_args
    stub = _works(builder, parse(["build-all"]))["pretrain/roam"]()
    assert stub.meta["not_built"] and stub.meta["reason"] == "no folder data/roam"
    with pytest.raises(InputError, match="'roam' is not there"):
        _works(builder, parse(["build-all", "--roam-dir", "notes"]))["pretrain/roam"]()
    for name in ("one", "two"):
        Path(".roam-data").mkdir(exist_ok=True)
        Path(f".roam-data/{name}.md").write_text(name)
    built = _works(replace(builder, keep=True), parse(["build-all"]))["pretrain/roam"]()
    assert built.meta["train_tokens"] == built.meta["val_tokens"] == 3


def test_the_originals_names_of_the_budgets_are_understood() -> None:
    args = ["build-all", "--fineweb-train-tokens", "7", "--fineweb-val-tokens", "3"]
    parsed = _parser().parse_args(args)
    assert (parsed.max_train_tokens, parsed.max_val_tokens) == (7, 3)


def test_another_tokenizer_than_that_of_the_cache_is_refused(
    built: Result, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "u.model"
    train_tokenizer([argparse.__file__], out=other, vocab_size=404, **NGPT)
    cache = str(place / "cache")
    assert main(["build-all", "--cache-dir", cache, "--tokenizer", str(other)]) == 1
    assert "another tokenizer; differing: tokenizer_sha256" in capsys.readouterr().err


def test_the_constants_are_those_of_the_contract() -> None:
    assert (formats.TRAIN_TOKENS, formats.VAL_TOKENS) == (200_000_000, 5_000_000)
    assert (formats.SHARD_BYTES, formats.SHUFFLE_BUFFER) == (128 * 2**20, 10_000)
    assert (formats.VAL_FRAC, formats.SEED, formats.TOKEN_DTYPE) == (0.10, 42, "uint16-le")
    assert (formats.FINEWEB_ID, formats.FINEWEB_CONFIG) == (
        "HuggingFaceFW/fineweb-edu",
        "CC-MAIN-2024-10",
    )


@pytest.mark.parametrize("left", ["pretrain/roam/meta.json", "sft/.a.build/all/.build/c/0.chunk"])
def test_only_a_finished_cache_or_chunk_is_said_to_be_kept(tmp_path: Path, left: str) -> None:
    (tmp_path / left).parent.mkdir(parents=True)
    assert not _has_finished_work(tmp_path) and not _has_finished_work(tmp_path / "none")
    (tmp_path / left).write_bytes(b"")
    assert _has_finished_work(tmp_path)
