"""requirements.lock: what CI and releases install, each file by its SHA-256."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINNED = re.compile(r"^([\w.-]+)==([\w.]+)(.*)$", re.MULTILINE)
NOT_LOCKED = {"torch"}  # the build for a device is the user's choice


def pins(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text("utf-8")
    return {plain(package): version for package, version, _ in PINNED.findall(text)}


def plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


def test_every_package_is_locked_at_the_version_that_is_tested() -> None:
    tested, locked = pins("constraints.txt"), pins("requirements.lock")
    assert len(locked) > 100
    assert {name: tested.get(name, version) for name, version in locked.items()} == locked
    assert set(tested) - set(locked) - NOT_LOCKED <= {"pip"}


def test_every_package_that_the_project_asks_for_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["dev"]]
    wanted += [
        line
        for name in ("text", "hf", "jax", "ray", "view", "widget", "docs")
        for line in extras[name]
    ]
    names = {plain(re.match(r"[\w.-]+", line)[0]) for line in wanted}  # type: ignore[index]
    assert names - {"tokenreel"} - NOT_LOCKED <= set(pins("requirements.lock"))


def test_every_package_has_hashes_and_no_package_comes_from_elsewhere() -> None:
    text = (ROOT / "requirements.lock").read_text("utf-8")
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if not entry.startswith("#")]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    assert not re.search(r"://|--index|--find", text)
