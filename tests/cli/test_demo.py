"""The demo plays to its end, and what it shows holds."""

from __future__ import annotations

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
    assert "step 57 of one: True" in played.stdout
    assert "fail their checksum" in played.stdout
    assert "Traceback" not in played.stderr
