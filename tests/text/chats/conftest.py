"""A byte tokenizer and a small trained one, both with the control tokens of every template."""

from __future__ import annotations

from pathlib import Path

import pytest

from tokenreel.text.chats import BUILT_IN, Control
from tokenreel.text.tokenizers import Tokenizer, byte_tokenizer, load_tokenizer

WORDS = """the quick brown fox jumps over a lazy dog and says hello to you, what is two plus
two? it is four. user assistant system tool ipython name add weather you are a helpful assistant."""


def all_controls() -> list[str]:
    """Return the control strings of all built-in templates, each once."""
    parts = [
        part
        for template in BUILT_IN.values()
        for group in (*dict(template.headers).values(), template.end, template.preamble)
        for part in group
    ]
    return list(dict.fromkeys(part.control for part in parts if isinstance(part, Control)))


@pytest.fixture(scope="session")
def controls() -> list[str]:
    return all_controls()


@pytest.fixture(scope="session")
def byte(controls: list[str]) -> Tokenizer:
    return byte_tokenizer(controls)


@pytest.fixture(scope="session")
def bpe_file(tmp_path_factory: pytest.TempPathFactory, controls: list[str]) -> Path:
    """A byte-level BPE trained here, as a tokenizer.json."""
    from tokenizers import Tokenizer as Model
    from tokenizers import decoders, models, pre_tokenizers, trainers

    model = Model(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=controls,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator([WORDS] * 5, trainer)
    path = tmp_path_factory.mktemp("bpe") / "tokenizer.json"
    model.save(str(path))
    return path


@pytest.fixture(scope="session")
def bpe(bpe_file: Path) -> Tokenizer:
    return load_tokenizer(bpe_file)


@pytest.fixture(scope="session", params=["byte", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return request.getfixturevalue(request.param)
