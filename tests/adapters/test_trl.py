"""Losses of our batches are those of TRL's own trainers, and its GRPOTrainer takes our prompts.

TRL is heavy: it may be in another environment, whose interpreter TOKENREEL_PEERS_PYTHON names.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tokenreel
from tokenreel import Feed, Recipe, Source

HERE = Path(__file__).parent
GRPO = HERE.parents[1] / "examples/grpo_trl.py"
PYTHON = os.environ.get("TOKENREEL_PEERS_PYTHON", sys.executable)
ENVIRONMENT = {
    **os.environ,
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
}

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module", autouse=True)
def peers() -> None:
    """Skip these tests where there is no TRL."""
    if subprocess.run([PYTHON, "-c", "import trl, tokenreel"], capture_output=True).returncode:
        pytest.skip("there is no TRL here (TOKENREEL_PEERS_PYTHON may name a python that has it)")


def printed(*words: object) -> str:
    """Return what a program of the peers' python prints."""
    run = subprocess.run(
        [PYTHON, *map(str, words)], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


def told(program: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of a program beside this file: what it found, by case."""
    cases: dict[str, dict[str, Any]] = json.loads(printed(HERE / program, folder).splitlines()[-1])
    for case, found in cases.items():
        print(f"{case}: {found}")
    return cases


def test_dpo_losses_padded_and_packed_are_those_of_trl(tmp_path: Path) -> None:
    found = told("trl_dpo.py", tmp_path)
    assert len(found) == 6
    for case, losses in found.items():
        assert losses["pairs"] == losses["trl_pairs"] >= 8
        assert losses["packed"] == pytest.approx(losses["trl"], abs=1e-5), case
        assert losses["padded"] == pytest.approx(losses["trl"], abs=1e-5), case


def test_kto_losses_and_their_kl_term_are_those_of_trl(tmp_path: Path) -> None:
    found = told("trl_kto.py", tmp_path)
    assert len(found) == 4
    assert found["explicit, kto"]["trl_kl"] > 0.01  # one that is not clamped to 0
    for case, losses in found.items():
        assert losses["answers"] == 24
        assert losses["ours"] == pytest.approx(losses["trl"], abs=1e-5), case
        assert losses["kl"] == pytest.approx(losses["trl_kl"], abs=1e-5), case


def test_trls_grpo_trainer_asks_the_prompts_of_the_feed_and_goes_on_with_other_ranks(
    tmp_path: Path,
) -> None:
    make = "import sys, pathlib, trl_dpo as t; f = pathlib.Path(sys.argv[1]); "
    make += "k = t.write_tokenizer(f); t.models_of(len(k))[0].save_pretrained(f)"
    subprocess.run(
        [PYTHON, "-c", make, str(tmp_path / "model")], cwd=HERE, env=ENVIRONMENT, check=True
    )
    records = [{"id": n, "question": f"{n}+{n}=", "answer": str(2 * n)} for n in range(40)]
    tokenreel.build(
        records,
        out=tmp_path / "sums",
        tokenizer=tmp_path / "model",
        prompts=True,
        text_key="question",
        progress=False,
    )
    words = (GRPO, tmp_path / "sums", "--model", tmp_path / "model", "--folder", tmp_path / "run")
    one = printed(*words, "--steps", 2, "--save-every", 2)
    launch = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2)
    two = printed(*launch, *words, "--steps", 4, "--save-every", 2)
    asked = [json.loads(line) for line in re.findall(r"asked (\[.*?\])", one + two)]
    assert [len(numbers) for numbers in asked] == [16, 16, 8, 8, 8, 8]
    rows = Source(name="sums", path=tmp_path / "sums", rows="prompts", repeats=4)
    feed = Feed(Recipe(seq_len=64, global_batch_size=16, seed=7, sources=[rows]))
    wanted = [[record["id"] for record in feed.records(step)] for step in range(4)]
    assert asked[:2] == wanted[:2]
    # Which rank prints first is chance; the two of a step are asked before the next begins.
    for step, parts in ((2, asked[2:4]), (3, asked[4:6])):
        assert sorted(parts) == sorted([wanted[step][:8], wanted[step][8:]])
