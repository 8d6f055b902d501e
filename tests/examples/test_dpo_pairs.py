"""The example of DPO learns which answer is preferred, packed and padded alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.examples.conftest import EXAMPLES
from tests.forked import Forks

LOSS = re.compile(r"^step (\d+): loss ([\d.]+)$", re.MULTILINE)


@pytest.mark.soak
def test_dpo_on_packed_pairs_learns_and_padded_pairs_learn_the_same(
    tmp_path: Path, forks: Forks
) -> None:
    words = ("--folder", tmp_path, "--steps", 12)
    printed = forks.start(EXAMPLES / "dpo_pairs.py", *words).finish()
    packed = [float(loss) for _, loss in LOSS.findall(printed)]
    assert len(packed) == 12
    assert packed[0] == pytest.approx(0.6931, abs=1e-4)  # the model is its own reference
    assert packed[-1] < 0.6
    assert "400 pairs in" in printed and "answer 2, rejected" in printed
    again = forks.start(EXAMPLES / "dpo_pairs.py", *words, "--padded").finish()
    assert [float(loss) for _, loss in LOSS.findall(again)] == pytest.approx(packed, abs=2e-3)
