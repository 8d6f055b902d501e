"""Settings of a stream are declared once: checked in Python too, in the identity or not."""

from __future__ import annotations

from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

import pytest
from tests.stream.making import config_of, texts_of, write_texts

from tokenreel.errors import ConfigError, KeywordError
from tokenreel.stream import StreamPipeline
from tokenreel.stream.stream_settings import (
    SECTIONS,
    CacheSettings,
    DataSettings,
    ModelSettings,
    TokenizerSettings,
    TrainSettings,
)

BYTE = TokenizerSettings(kind="byte")
# What the source and the tokenizer are made of is in the identity by content, not by its name.
BY_CONTENT = {
    *("backend", "hf_dataset", "hf_name", "hf_split", "hf_eval_split", "hf_revision"),
    *("local_text", "local_files", "text_key", "on_bad", "tokenizer"),
}


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (TrainSettings, {"seq_len": "8"}, "bad train.seq_len (expected a whole number, got '8')"),
        (TrainSettings, {"seq_len": 0}, "bad train.seq_len (expected >= 1, got 0)"),
        (ModelSettings, {"eos_token_id": "a"}, "bad model.eos_token_id"),
        (CacheSettings, {"cache_to": 3}, "bad stream.cache_to (expected a string or None, got 3)"),
        (TokenizerSettings, {"kind": "bite"}, "did you mean 'byte'?"),
        (DataSettings, {"tokenizer": BYTE, "shuffle": 1}, "bad data.shuffle (expected True or"),
        (DataSettings, {"tokenizer": "byte"}, "bad data.tokenizer"),
    ],
)
def test_settings_made_in_python_are_checked_like_those_of_a_file(
    kind: type, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        kind(**given)
    assert message in str(caught.value)


def test_a_wrong_keyword_names_the_nearest() -> None:
    with pytest.raises(KeywordError, match="no setting 'seq_length'; did you mean 'seq_len'"):
        TrainSettings(seq_length=8)  # type: ignore[call-arg]


def test_help_shows_what_each_setting_accepts_and_means() -> None:
    for kind in SECTIONS.values():
        for item in fields(kind):
            assert f"    {item.name}: " in str(kind.__doc__)
            assert item.metadata["meaning"].split()[0] in str(kind.__doc__)


def _other(kind: type, item: Field[Any]) -> Any:
    """Return a value of a setting that is not its default."""
    hint, default = get_type_hints(kind)[item.name], cast(Any, item.default)
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != default)
    if isinstance(default, bool):
        return not default
    return 0.25 if isinstance(default, float) else (default or 0) + 2


def test_a_setting_changes_the_fingerprint_exactly_where_it_says_so(tmp_path: Path) -> None:
    path = write_texts(tmp_path / "a.jsonl", texts_of(5))

    def fingerprint(**settings: Any) -> str:
        return StreamPipeline(config_of(path, **settings)).fingerprint

    plain = {"train_batch_size": 12}
    expected = fingerprint(**plain)
    changed = 0
    for section, kind in (("", DataSettings), ("train_", TrainSettings)):
        for item in fields(kind):
            if item.name in BY_CONTENT:
                assert not item.metadata["identity"]
                continue
            setting = {section + item.name: _other(kind, item)}
            differs = fingerprint(**{**plain, **setting}) != expected
            assert differs == item.metadata["identity"], item.name
            changed += differs
    assert changed == 15
