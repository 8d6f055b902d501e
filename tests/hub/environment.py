"""What a process must be told so that the real client talks to the stand-in alone."""

from __future__ import annotations

import os
from pathlib import Path


def client_environment(url: str, home: Path) -> dict[str, str]:
    """Return the environment of a process whose hub is at `url` and whose cache is `home`."""
    return {
        **os.environ,
        "HF_ENDPOINT": url,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        # It would import all of them to see what is installed, which takes seconds.
        "USE_TORCH": "0",
        "USE_TF": "0",
        "USE_JAX": "0",
    }
