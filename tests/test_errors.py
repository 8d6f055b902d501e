"""Errors say what, where, expected, actual and the remedy, and survive every road."""

from __future__ import annotations

import pickle

import pytest

from tokenreel import errors
from tokenreel.errors import MismatchError, MissingExtraError, TokenreelError
from tokenreel.store.narrow import OutOfVocabularyError

EXAMPLES = [
    TokenreelError("wrong size", where="a.bin", expected=4096, actual=2, remedy="rebuild"),
    MismatchError("another tokenizer", differing={"sha256": ("9f3c", "00a1")}, where="store"),
    MissingExtraError("ray", extra="ray", purpose="the Ray engine"),
    OutOfVocabularyError(70_000, position=3, limit=50_000),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_all_its_parts(error: TokenreelError) -> None:
    restored = pickle.loads(pickle.dumps(error))
    assert type(restored) is type(error)
    assert str(restored) == str(error)
    assert restored.__dict__ == error.__dict__


def test_a_message_has_all_its_parts() -> None:
    assert str(EXAMPLES[0]) == "a.bin: wrong size (expected 4,096, got 2); rebuild"
    assert EXAMPLES[0].as_dict() == {
        "error": "TokenreelError",
        "what": "wrong size",
        "where": "a.bin",
        "expected": 4096,
        "actual": 2,
        "remedy": "rebuild",
    }


def test_every_error_of_the_tree_is_drawn_at_the_top_of_its_module() -> None:
    classes = [
        name
        for name, item in vars(errors).items()
        if isinstance(item, type) and issubclass(item, TokenreelError)
    ]
    assert errors.__doc__ is not None
    assert len(classes) > 10
    for name in classes:
        assert name in errors.__doc__, name
