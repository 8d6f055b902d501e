"""Errors say what, where, expected, actual and the remedy, and survive every road."""

from __future__ import annotations

import errno
import pickle
from pathlib import Path

import pytest

from niels_gpt.cache import PretrainTokenStreamDataset, SFTExampleDataset, read_meta
from tokenreel import Recipe, StoreWriter, errors, load_tokenizer, open_store
from tokenreel.dropin import GPTEpisodeDataLoader, TrainingConfig
from tokenreel.errors import MismatchError, MissingExtraError, TokenreelError
from tokenreel.store.narrow import OutOfVocabularyError

# What an error of ours is besides: programs written for the originals catch these.
OF_PYTHON = {
    errors.ConfigError: ValueError,
    errors.InputError: ValueError,
    errors.MismatchError: ValueError,
    errors.VocabularyError: ValueError,
    errors.NoStoreError: FileNotFoundError,
    errors.NoInputError: FileNotFoundError,
    errors.NoFileError: FileNotFoundError,
    errors.MissingFileError: FileNotFoundError,
    errors.EndlessError: TypeError,
    errors.MissingExtraError: ImportError,
}
EXAMPLES = [
    TokenreelError("wrong size", where="a.bin", expected=4096, actual=2, remedy="rebuild"),
    MismatchError("another tokenizer", differing={"sha256": ("9f3c", "00a1")}, where="store"),
    MissingExtraError("ray", extra="ray", purpose="the Ray engine"),
    OutOfVocabularyError(70_000, position=3, limit=50_000),
    errors.NoStoreError("there is no such file or folder", where="gone"),
    errors.NoFileError("no file matches", where="tokens", actual="'*.npy'"),
    errors.MissingFileError("the link leads nowhere", where="a.bin", remedy="restore the file"),
    errors.NoInputError("no file matches", where="gone"),
    errors.EndlessError("a stream has no length"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_all_its_parts(error: TokenreelError) -> None:
    restored = pickle.loads(pickle.dumps(error))
    assert type(restored) is type(error)
    assert str(restored) == str(error)
    assert restored.__dict__ == error.__dict__
    if isinstance(error, ImportError):
        assert isinstance(restored, ImportError)
        assert restored.msg == error.msg == str(error)


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


@pytest.mark.parametrize(("ours", "pythons"), OF_PYTHON.items(), ids=lambda kind: kind.__name__)
def test_an_error_is_also_the_one_of_python_that_the_tree_names(
    ours: type[TokenreelError], pythons: type[Exception]
) -> None:
    assert issubclass(ours, pythons)
    assert errors.__doc__ is not None
    drawn = next(line for line in errors.__doc__.splitlines() if f" {ours.__name__} " in line)
    assert drawn.endswith(f"({pythons.__name__})")


def test_a_file_that_is_not_there_has_the_number_of_that_and_a_message_of_ours() -> None:
    error = errors.NoFileError("no file matches", where="tokens", actual="'*.npy'")
    assert error.errno == errno.ENOENT
    assert str(error) == "tokens: no file matches (got '*.npy')"


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


def test_whatever_is_not_there_is_a_file_not_found_too(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Recipe.read(tmp_path / "none.toml")
    with pytest.raises(FileNotFoundError):
        open_store(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        load_tokenizer("none.json")
    gone, settings = (
        str(tmp_path / "none"),
        TrainingConfig(batch_size=2, block_size=4, pad_token_id=0),
    )
    for folder in (gone, str(tmp_path)):
        with pytest.raises(FileNotFoundError):
            GPTEpisodeDataLoader(settings, None, folder)
        with pytest.raises(FileNotFoundError):
            PretrainTokenStreamDataset(folder, T=4, device="cpu")
    with pytest.raises(FileNotFoundError):
        SFTExampleDataset(f"{gone}.bin", f"{gone}.npy", T=4, device="cpu", eot_id=5, asst_id=4)
    with pytest.raises(FileNotFoundError):
        read_meta(f"{gone}.json")
    with StoreWriter(tmp_path / "s", vocab_size=9) as writer:
        writer.add([1, 2, 3])
    (tmp_path / "s" / "train" / "shard_00000.bin").unlink()
    with pytest.raises(FileNotFoundError):
        open_store(tmp_path / "s")
