"""The demo plays to its end, and what it shows holds."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


@pytest.mark.soak
def test_the_demo_holds() -> None:
    played = subprocess.run(
        [sys.executable, "-m", "tokenreel", "demo"], capture_output=True, text=True, check=False
    )
    assert played.returncode == 0, played.stdout + played.stderr
    assert "The same bytes." in played.stdout
    assert "All 800 rows are the same, bit by bit, and so is their order;" in played.stdout
    assert re.search(r"SIGKILL.*: steps 0 to 5\d", played.stdout)
    assert re.search(r"two ranks, .*: steps 50 to 99 ", played.stdout)
    assert re.search(r"^step 57, row 0: tokens ", played.stdout, re.MULTILINE)
    assert "fail their checksum" in played.stdout
    assert "Traceback" not in played.stderr
