"""What a release depends on says one version, and the files of the forge are well-formed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from tests.docs.blocks import ROOT

import tokenreel

FORGE = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / ".github").rglob("*.yml"))


def test_every_place_says_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {project["version"], citation["version"]} == {tokenreel.__version__}
    assert citation["license"] == project["license"] and citation["authors"]


@pytest.mark.parametrize("name", FORGE)
def test_files_of_the_forge_are_well_formed(name: str) -> None:
    content = yaml.safe_load((ROOT / name).read_text("utf-8"))
    if "workflows" in name:
        assert content["permissions"] == {"contents": "read"}
        assert all(job["steps"] and "runs-on" in job for job in content["jobs"].values())
    elif name.endswith("config.yml"):
        assert content == {"blank_issues_enabled": True}
    else:
        assert content["name"] and all(part["attributes"]["label"] for part in content["body"])


def test_workflows_run_targets_that_the_makefile_has() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    text = "".join((ROOT / name).read_text("utf-8") for name in FORGE)
    targets = set(re.findall(r"\bmake (\w+)$", text, re.MULTILINE))
    assert targets == {"check", "docs", "soak"}
    assert all(f"\n{target}: " in makefile for target in targets)


def test_wheels_are_built_for_the_oldest_python_that_is_supported() -> None:
    wheels = yaml.safe_load((ROOT / ".github/workflows/wheels.yml").read_text("utf-8"))
    build = next(step for step in wheels["jobs"]["native"]["steps"] if "env" in step)["env"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["requires-python"] == ">=3.11" and build["CIBW_BUILD"] == "cp311-*"
    assert "cp311" in (ROOT / "setup.py").read_text("utf-8")


def test_files_that_the_release_checklist_names_are_there() -> None:
    text = (ROOT / "RELEASING.md").read_text("utf-8")
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]+|[\w-]+\.(?:toml|cff))`", text)
    assert len(named) >= 4 and [n for n in named if not Path(ROOT, n).exists()] == []
