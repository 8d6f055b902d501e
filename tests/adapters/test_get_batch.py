"""get_batch(split): nanoGPT's one function, over train.bin and val.bin in place."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tokenreel import Feed, StoreWriter
from tokenreel.errors import ConfigError, MismatchError
from tokenreel.torch import GetBatch

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {"block_size": 8, "batch_size": 4}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """train.bin and val.bin, as nanoGPT's prepare.py writes them: token n is n."""
    np.arange(1601, dtype="uint16").tofile(tmp_path / "train.bin")
    np.arange(5000, 5321, dtype="uint16").tofile(tmp_path / "val.bin")
    return tmp_path


def take(get_batch: GetBatch, count: int) -> list[torch.Tensor]:
    return [get_batch("train")[0] for _ in range(count)]


def test_the_page_for_users_of_nanogpt_runs_and_has_the_lines_it_promises(data_dir: Path) -> None:
    names = {
        "data_dir": data_dir,
        "block_size": 8,
        "batch_size": 4,
        "gradient_accumulation_steps": 2,
        "device": "cpu",
    }
    page = str(ROOT / "docs/from-nanogpt.md")
    failed, attempted = doctest.testfile(page, module_relative=False, globs=names)
    assert failed == 0
    assert attempted >= 7


def test_a_pass_shows_every_token_once_and_labels_are_the_next_tokens(data_dir: Path) -> None:
    get_batch = GetBatch(data_dir, **SETTINGS)
    shown = []
    for _ in range(200 // 4):
        inputs, labels = get_batch("train")
        assert (labels == inputs + 1).all() and labels.dtype == torch.int64
        shown.append(inputs)
    assert torch.cat(shown).flatten().sort().values.tolist() == list(range(1600))


def test_random_offsets_leave_out_as_much_as_the_page_says() -> None:
    """As many windows as there are, drawn with replacement, miss a share of 1/e: 37 %."""
    drawn = np.random.default_rng(0).integers(0, 10**6, 10**6)
    assert 1 - len(np.unique(drawn)) / 10**6 == pytest.approx(0.37, abs=0.005)


def test_calls_are_the_microbatches_of_the_feeds_steps(data_dir: Path) -> None:
    get_batch = GetBatch(data_dir, **SETTINGS, gradient_accumulation_steps=3)
    feed = Feed(get_batch.feed.recipe)
    for step in range(4):
        found = torch.stack(take(get_batch, 3)).numpy()
        assert np.array_equal(found, feed.batch(step).input_ids)


@pytest.mark.parametrize("calls", [1, 3])
def test_a_run_resumes_with_the_step_that_was_not_trained(data_dir: Path, calls: int) -> None:
    """nanoGPT has fetched one microbatch ahead when it saves: the state goes by the step."""
    get_batch = GetBatch(data_dir, **SETTINGS, gradient_accumulation_steps=calls)
    whole = take(get_batch, 5 * calls + 1)
    state = get_batch.state_dict(3)
    whole += take(get_batch, calls - 1)  # saving has not moved it
    other = GetBatch(data_dir, **SETTINGS, gradient_accumulation_steps=calls)
    take(other, 1)
    other.load_state_dict(state)
    resumed = take(other, 3 * calls)
    assert all(map(torch.equal, whole[3 * calls :], resumed))


def test_estimates_take_nothing_from_training(data_dir: Path) -> None:
    plain, watched = (GetBatch(data_dir, **SETTINGS) for _ in range(2))
    for _ in range(6):
        with torch.no_grad():
            of_train, of_val = watched.estimate("train")[0], watched("val")[0]
        assert of_train.max() < 1601 and of_val.min() >= 5000
        assert torch.equal(take(plain, 1)[0], take(watched, 1)[0])


def test_a_training_batch_where_no_gradients_are_kept_is_refused(data_dir: Path) -> None:
    get_batch = GetBatch(data_dir, **SETTINGS)
    with torch.no_grad(), pytest.raises(ConfigError, match=r"get_batch\.estimate\(split\)"):
        get_batch("train")


def test_a_state_of_other_tokens_is_refused(data_dir: Path) -> None:
    state = GetBatch(data_dir, **SETTINGS).state_dict(3)
    np.arange(7, 1608, dtype="uint16").tofile(data_dir / "train.bin")
    with pytest.raises(MismatchError):
        GetBatch(data_dir, **SETTINGS).load_state_dict(state)


def test_a_split_that_is_not_there_is_named(data_dir: Path) -> None:
    (data_dir / "val.bin").unlink()
    with pytest.raises(ConfigError, match="val"):
        GetBatch(data_dir, **SETTINGS)("val")


@pytest.mark.parametrize("num_tokens", [2, 5, 8, 10, 1600, 1604])
def test_labels_that_are_not_learnt_are_those_that_nanogpts_loss_leaves_out(
    tmp_path: Path, num_tokens: int
) -> None:
    np.arange(num_tokens, dtype="uint16").tofile(tmp_path / "train.bin")
    get_batch = GetBatch(tmp_path, **SETTINGS)
    num_rows = -(-(num_tokens - 1) // 8)
    learnt = []
    for _ in range(-(-num_rows // 4)):
        inputs, labels = get_batch("train")
        logits = torch.zeros(4 * 8, num_tokens)
        loss = torch.nn.functional.cross_entropy(logits, labels.reshape(-1), ignore_index=-1)
        assert torch.isfinite(loss)
        assert (labels[labels >= 0] == inputs[labels >= 0] + 1).all()
        learnt.append(labels[labels >= 0])
    assert set(torch.cat(learnt).tolist()) == set(range(1, num_tokens))


def test_nanogpts_files_are_of_uint16_whatever_their_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    np.arange(1600, dtype="uint16").tofile(tmp_path / "train.bin")  # a multiple of 4 bytes
    inputs, _ = GetBatch(tmp_path, **SETTINGS)("train")
    assert inputs.max() < 1600
    assert not caplog.records
    (tmp_path / "meta.json").write_text('{"dtype": "uint32"}')
    np.arange(1600, dtype="uint32").tofile(tmp_path / "train.bin")
    inputs, _ = GetBatch(tmp_path, **SETTINGS)("train")
    assert inputs.max() < 1600


def test_any_store_will_do(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=70_000) as writer:
        writer.add(range(1601))
    get_batch = GetBatch(tmp_path / "s", **SETTINGS)
    inputs, labels = get_batch("train")
    assert (labels == inputs + 1).all()
    assert repr(get_batch).endswith("/s', 4 rows of 8 tokens a call)")


def test_ranks_may_be_given(data_dir: Path) -> None:
    two = [GetBatch(data_dir, **SETTINGS, rank=rank, world_size=2) for rank in range(2)]
    whole = Feed(two[0].feed.recipe).batch(0).input_ids
    assert np.array_equal(torch.cat([part("train")[0] for part in two]).numpy(), whole)


@pytest.mark.parametrize("step", [-1, "x", 1.5])
def test_a_step_that_is_none_is_refused(data_dir: Path, step: Any) -> None:
    with pytest.raises(ConfigError, match="bad step"):
        GetBatch(data_dir, **SETTINGS).state_dict(step)
