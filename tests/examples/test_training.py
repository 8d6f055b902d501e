"""The examples that train on one process: killed, resumed, packed, in place."""

from __future__ import annotations

import json
import re
import runpy
import shutil
from pathlib import Path

import pytest
import torch
from tests.examples.conftest import EXAMPLES, finish, run, start
from tests.forked import Forks
from torch.nn.functional import cross_entropy

import tokenreel
from tokenreel import Feed, Recipe, Source
from tokenreel.demo.model import TinyTransformer, within_segments
from tokenreel.torch import Tensors

LOSS = re.compile(r"^step (\d+): loss ([\d.]+)$", re.MULTILINE)


def losses(printed: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in LOSS.findall(printed)}


def test_pretraining_learns_and_validates(corpus: Path, tmp_path: Path, forks: Forks) -> None:
    words = (corpus / "docs.jsonl", "--steps", 20, "--save-every", 10)
    printed = forks.start(EXAMPLES / "pretrain_torch.py", *words, "--folder", tmp_path).finish()
    assert losses(printed)[20] < losses(printed)[10]
    told = re.fullmatch(r"validation loss ([\d.]+)", printed.splitlines()[-1])
    assert told is not None
    assert float(told[1]) == pytest.approx(loss_of_each_row(tmp_path), abs=1e-4)


@torch.no_grad()
def loss_of_each_row(folder: Path) -> float:
    """Return the mean loss over every token kept apart, found one row of the store at a time."""
    split = tokenreel.open_store(folder / "store")["val"]
    tokens = torch.cat(
        [torch.from_numpy(item.tokens.astype("int64")) for item in split.documents()]
    )
    model = TinyTransformer(
        vocab_size=tokenreel.open_store(folder / "store").vocab_size or 0, seq_len=128
    )
    model.load_state_dict(torch.load(folder / "checkpoint.pt", weights_only=True)["model"])
    total = 0.0
    for first in range(0, len(tokens) - 1, 128):
        row = tokens[first : first + 129]
        length = len(row) - 1
        ones = torch.ones(1, length, dtype=torch.long)
        batch = {
            "input_ids": row[None, :-1],
            "segment_ids": ones,
            "position_ids": torch.arange(length)[None],
        }
        total += cross_entropy(model(batch)[0], row[1:], reduction="sum").item()
    return total / (len(tokens) - 1)


@pytest.mark.soak
def test_pretraining_killed_and_run_again_ends_where_an_unbroken_one_does(
    corpus: Path, tmp_path: Path
) -> None:
    words = (corpus / "docs.jsonl", "--steps", 20, "--save-every", 5)
    unbroken = start("pretrain_torch.py", *words, "--folder", tmp_path / "unbroken")
    broken = start("pretrain_torch.py", *words, "--folder", tmp_path / "broken")
    assert broken.stdout is not None
    while "step 10:" not in broken.stdout.readline():
        assert broken.poll() is None
    broken.kill()
    broken.communicate()
    again = run("pretrain_torch.py", *words, "--folder", tmp_path / "broken")
    whole = finish(unbroken)
    resumed = re.search(r"resumed at step (\d+)", again)
    assert resumed is not None and 5 <= int(resumed[1]) < 20
    after = losses(again)
    assert after and after == {step: losses(whole)[step] for step in after}
    assert again.splitlines()[-1] == whole.splitlines()[-1]
    assert whole.splitlines()[-1].startswith("validation loss ")
    assert losses(whole)[20] < losses(whole)[10]


def test_packed_chats_train_what_the_assistant_says(
    corpus: Path, tmp_path: Path, forks: Forks
) -> None:
    words = (corpus / "chats.jsonl", "--folder", tmp_path, "--steps", 4)
    printed = forks.start(EXAMPLES / "sft_packed_torch.py", *words).finish()
    assert re.search(r"first row: 'After \d+ comes \d+\.<\|", printed)
    padding = re.search(r"padding ([\d.]+) %", printed)
    assert padding is not None and float(padding[1]) < 10
    assert losses(printed)[4] < losses(printed)[1]


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_both_ways_to_attend_within_a_chat_give_the_same_logits(
    corpus: Path, tmp_path: Path
) -> None:
    example = runpy.run_path(str(EXAMPLES / "sft_packed_torch.py"))
    path = tmp_path / "store"
    tokenreel.build(corpus / "chats.jsonl", out=path, tokenizer="byte", chat=True)
    source = Source(name="chats", path=path, rows="packed")
    feed = Feed(Recipe(seq_len=512, global_batch_size=2, sources=[source]))
    batch = Tensors()(feed.batch(0))
    assert batch["segment_ids"].max() > 3
    model = TinyTransformer(vocab_size=feed.stores[0].vocab_size or 0, seq_len=512)
    with torch.no_grad():
        flex = model(batch, example["flex_within_segments"](batch["segment_ids"]))
        torch.testing.assert_close(flex, model(batch, within_segments(batch["segment_ids"])))


def test_megatron_files_are_trained_on_as_they_lie(
    store: Path, tmp_path: Path, forks: Forks
) -> None:
    opened = tokenreel.open_store(store)
    tokenreel.convert(opened, tmp_path / "pairs", to="megatron")
    before = {file.name: file.stat() for file in (tmp_path / "pairs").iterdir()}
    words = ("--vocab-size", opened.vocab_size, "--steps", 6)
    printed = forks.start(
        EXAMPLES / "megatron_in_place.py", tmp_path / "pairs" / "train", *words
    ).finish()
    after = {file.name: file.stat() for file in (tmp_path / "pairs").iterdir()}
    assert {name: (stat.st_size, stat.st_mtime_ns) for name, stat in before.items()} == {
        name: (stat.st_size, stat.st_mtime_ns) for name, stat in after.items()
    }
    assert f"{opened.num_documents:,} documents, {opened.num_tokens:,} tokens" in printed
    found = losses(printed)
    assert sorted(found) == list(range(6)) and found[5] < found[0]
    assert len(re.findall(r"^  row \d: document \d+", printed, re.MULTILINE)) == 8


@pytest.mark.soak
def test_the_trainer_learns(store: Path, tmp_path: Path) -> None:
    words = (store, "--steps", 6, "--save-every", 3, "--folder", tmp_path)
    assert "from the beginning" in run("hf_trainer.py", *words)
    assert sorted(logged(tmp_path / "checkpoint-6")) == [1, 2, 3, 4, 5, 6]


@pytest.mark.soak
def test_the_trainer_resumed_from_a_checkpoint_has_the_losses_of_an_unbroken_run(
    store: Path, tmp_path: Path
) -> None:
    words = (store, "--steps", 6, "--save-every", 3)
    run("hf_trainer.py", *words, "--folder", tmp_path / "one")
    shutil.copytree(tmp_path / "one" / "checkpoint-3", tmp_path / "two" / "checkpoint-3")
    assert "resuming from" in run("hf_trainer.py", *words, "--folder", tmp_path / "two")
    history = [logged(tmp_path / name / "checkpoint-6") for name in ("one", "two")]
    assert history[0] == history[1] and sorted(history[0]) == [1, 2, 3, 4, 5, 6]


def logged(checkpoint: Path) -> dict[int, float]:
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    return {line["step"]: line["loss"] for line in state["log_history"] if "loss" in line}
