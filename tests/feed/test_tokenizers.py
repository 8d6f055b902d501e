"""Ids mean a text only with their tokenizer: stores of several are not mixed without a word."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tokenreel
from tokenreel import Feed, Recipe, Source
from tokenreel.cli.main import main
from tokenreel.errors import MismatchError
from tokenreel.text.tokenizers import byte_tokenizer

TEXTS = [f"Text number {n}, and some more of it." for n in range(30)]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Two stores, the second of a tokenizer with one more control token."""
    tokenreel.build(texts=iter(TEXTS), out=tmp_path / "a", tokenizer="byte")
    other = byte_tokenizer(["<|endoftext|>", "<|other|>"])
    tokenreel.build(texts=iter(TEXTS), out=tmp_path / "b", tokenizer=other)
    sources = [Source(name=name, path=tmp_path / name) for name in ("a", "b")]
    return Recipe(seq_len=16, global_batch_size=2, sources=sources)


def test_stores_of_different_tokenizers_are_refused(recipe: Recipe) -> None:
    with pytest.raises(MismatchError) as caught:
        Feed(recipe)
    assert list(caught.value.differing) == ["tokenizer of 'b', as against 'a'"]
    assert "an id means another text in each" in str(caught.value)
    insisted = Feed(replace(recipe, mixed_tokenizers=True))
    assert insisted.batch(0).input_ids.shape == (2, 16)


def test_whoever_insists_changes_no_batch_and_no_fingerprint(recipe: Recipe) -> None:
    alone = replace(recipe, sources=recipe.sources[:1])
    assert Feed(alone).fingerprint == Feed(replace(alone, mixed_tokenizers=True)).fingerprint


def test_a_store_that_records_no_tokenizer_is_not_asked(recipe: Recipe, tmp_path: Path) -> None:
    with tokenreel.StoreWriter(tmp_path / "c", vocab_size=300) as writer:
        writer.add(range(200))
    plain = Source(name="c", path=tmp_path / "c")
    assert Feed(replace(recipe, sources=[recipe.sources[0], plain])).batch(0)


def test_another_tokenizer_explains_nothing_unless_it_is_forced(recipe: Recipe) -> None:
    feed = Feed(replace(recipe, sources=recipe.sources[1:]))
    with pytest.raises(MismatchError, match=r"of another tokenizer.*force_tokenizer"):
        feed.explain(0, tokenizer="byte")
    forced = feed.explain(0, tokenizer="byte", force_tokenizer=True)
    assert forced.rows[0].segments[0].text


@pytest.mark.parametrize("command", ["show", "explain", "feed"])
def test_commands_refuse_another_tokenizer_too(
    command: str, recipe: Recipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('seq_len = 16\nglobal_batch_size = 2\n[[sources]]\nname = "b"\npath = "b"\n')
    words = {"show": [str(tmp_path / "b")], "explain": [str(path), "0"], "feed": [str(path)]}
    asked = [command, *words[command], "--tokenizer", "byte"]
    assert main(asked) != 0
    assert "the ids of the store are of another tokenizer" in capsys.readouterr().err
    assert main([*asked, "--force-tokenizer", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)
