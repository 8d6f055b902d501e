"""get_batch(split): nanoGPT's one function, over train.bin and val.bin in place."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tokenreel import Feed
from tokenreel.errors import ConfigError, MismatchError
from tokenreel.torch import GetBatch

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {"dtype": "uint16", "block_size": 8, "batch_size": 4}


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
