"""The DPO loss of our batches is that of TRL's own trainer, on the same records and models.

TRL is heavy: it may be in another environment, whose interpreter TOKENREEL_PEERS_PYTHON names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("trl_dpo.py")
PYTHON = os.environ.get("TOKENREEL_PEERS_PYTHON", sys.executable)


@pytest.mark.soak
def test_dpo_losses_padded_and_packed_are_those_of_trl(tmp_path: Path) -> None:
    known = subprocess.run([PYTHON, "-c", "import trl, tokenreel"], capture_output=True)
    if known.returncode:
        pytest.skip("there is no TRL here (TOKENREEL_PEERS_PYTHON may name a python that has it)")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(
        [PYTHON, str(PROGRAM), str(tmp_path)], capture_output=True, text=True, env=environment
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert len(found) == 6
    for case, losses in found.items():
        print(f"{case}: {losses}")
        assert losses["pairs"] == losses["trl_pairs"] >= 8
        assert losses["packed"] == pytest.approx(losses["trl"], abs=1e-5), case
        assert losses["padded"] == pytest.approx(losses["trl"], abs=1e-5), case
