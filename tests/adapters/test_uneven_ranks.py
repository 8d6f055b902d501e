"""Three ranks on a batch of eight, under torch.distributed: the losses of one rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tests.adapters.making import write_stores
from tests.adapters.ranks import Ranks
from tests.adapters.step_losses import figures


def test_three_processes_have_the_losses_gradients_and_evaluation_of_one(
    tmp_path: Path, ranks: Ranks
) -> None:
    write_stores(tmp_path)
    ranks.launch("losses", 3, tmp_path)
    expected = figures(tmp_path, lambda values: values)
    assert ranks.finish() == [0, 0, 0]
    for rank in range(3):
        found = np.load(tmp_path / f"losses-{rank}.npz")
        assert set(found) == set(expected)
        for name, values in expected.items():
            apart = np.abs(found[name] - values).max() / np.abs(values).max()
            assert apart < 1e-9, (rank, name, apart)
    for name in ("losses", "gradients", "by_source", "evaluation"):  # nor does accumulation matter
        one, two = (expected[f"{name}, grad_accum {n}"] for n in (1, 2))
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-9)
