"""Fault 23, the tokenizer part: a tokenizer that wants to run code of its own is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenreel.errors import ConfigError
from tokenreel.text.tokenizers import load_tokenizer


@pytest.mark.parametrize("config", ["tokenizer_config.json", "config.json"])
def test_remote_code_is_refused_and_not_run(config: str, tmp_path: Path) -> None:
    proof = tmp_path / "was_run"
    (tmp_path / "evil.py").write_text(f"open({str(proof)!r}, 'w').close()\nclass Evil: pass\n")
    wish = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", None]}}
    (tmp_path / config).write_text(json.dumps(wish))
    with pytest.raises(ConfigError, match=r"wants to run code of its own \(\['evil.Evil', None\]"):
        load_tokenizer(tmp_path)
    assert not proof.exists()


def test_a_tokenizer_json_beside_it_does_not_open_the_folder(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    wish = {"auto_map": {"AutoTokenizer": "evil.Evil"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(wish))
    with pytest.raises(ConfigError, match="give that file instead"):
        load_tokenizer(tmp_path)
