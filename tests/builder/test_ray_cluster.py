"""A cluster that does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builder.making import documents, write_jsonl

from tokenreel.builder.build import build
from tokenreel.errors import ConfigError

pytest.importorskip("ray")


@pytest.mark.soak
def test_no_cluster_is_an_error_that_says_how_to_start_one(tmp_path: Path) -> None:
    source = write_jsonl(tmp_path / "d.jsonl", documents(10))
    with pytest.raises(ConfigError, match=r"no Ray cluster answers.*ray start --head"):
        build([source], out=tmp_path / "s", tokenizer="byte", engine="ray", address="127.0.0.1:9")
