"""What this installation has and lacks: versions, kernels, extras."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from pathlib import Path

from tokenreel import native

EXTRAS = {
    "text": ("tokenizers", "sentencepiece", "tiktoken", "gigatoken", "pyarrow"),
    "hf": ("datasets", "transformers"),
    "torch": ("torch",),
    "jax": ("jax", "grain"),
    "ray": ("ray",),
}
CORE = ("numpy", "orjson", "pyyaml", "rich", "zstandard")


def examine() -> dict[str, object]:
    """Return versions, kernels, cores, free disk and which extras are there."""
    return {
        "tokenreel": version("tokenreel"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "kernels": native.status(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "free_disk_bytes": shutil.disk_usage(Path.cwd()).free,
        "core": {name: version(name) for name in CORE},
        "extras": {
            extra: {name: version(name) for name in names} for extra, names in EXTRAS.items()
        },
    }


def version(package: str) -> str | None:
    """Return the installed version of a package without importing it, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
