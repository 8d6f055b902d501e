"""Fault 25 at contracts 000 and 003: an id outside the vocabulary reaches no batch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tests.dropin.making import config, put_split

from tokenreel.dropin import (
    GPTDataLoader,
    GPTEpisodeDataLoader,
    MemoryMappedDataset,
    MixtureDataset,
    StatefulDataLoader,
)
from tokenreel.errors import VocabularyError
from tokenreel.store.open_options import EDGE_TOKENS

FAR = EDGE_TOKENS + 50  # further in than what is looked at when a store is opened
TOKENIZER = SimpleNamespace(vocab_size=100, eos_id=0)


def tokens() -> np.ndarray:
    ids = np.zeros(2 * EDGE_TOKENS + 100, np.uint32)
    ids[FAR] = 100
    return ids


def test_an_episode_with_an_id_outside_the_vocabulary_is_refused_when_it_is_shown(tmp_path):
    put_split(tmp_path / "train", [[0] * FAR, [100, 1, 1], [0] * (EDGE_TOKENS + 50)])
    shape = config(batch_size=1, block_size=4)
    loader = GPTEpisodeDataLoader(shape, TOKENIZER, tmp_path, epoch_shuffle=False, pad_token_id=0)
    assert loader.get_batch()[0].tolist() == [[0, 0, 0, 0]]
    before = loader.state_dict()
    with pytest.raises(VocabularyError) as caught:
        loader.get_batch()
    assert str(caught.value) == (
        f"{tmp_path / 'train' / 'tokens.bin'}: a token id is outside the vocabulary (expected 0 to "
        "99, got 100); declare the dtype the tokens were written with, or the right tokenizer"
    )
    assert loader.state_dict() == before


@pytest.mark.parametrize("tokenizer", [TOKENIZER, SimpleNamespace(n_vocab=100), "x" * 100])
def test_ids_at_the_edges_are_refused_at_once(tmp_path, tokenizer):
    put_split(tmp_path / "train", [[1, 2, 100]])
    with pytest.raises(VocabularyError, match=r"tokens\.bin: ids do not fit the vocabulary"):
        GPTEpisodeDataLoader(config(pad_token_id=0), tokenizer, tmp_path)


def test_tokens_added_to_a_vocabulary_count(tmp_path):
    class Added:
        vocab_size, eos_id = 100, 0

        def __len__(self) -> int:
            return 101

    put_split(tmp_path / "train", [[1, 2, 100]])
    shape = config(batch_size=1, block_size=2, pad_token_id=None)
    loader = GPTEpisodeDataLoader(shape, Added(), tmp_path)
    assert loader.get_batch()[1].tolist() == [[2, 100]]


def test_a_pad_id_outside_the_vocabulary_is_refused(tmp_path):
    put_split(tmp_path / "train", [[1, 2, 3]])
    with pytest.raises(VocabularyError, match="pad_token_id is outside the vocabulary"):
        GPTEpisodeDataLoader(config(pad_token_id=100), TOKENIZER, tmp_path)


def test_a_stream_with_an_id_outside_the_vocabulary_is_refused_when_it_is_shown(tmp_path):
    tokens().tofile(tmp_path / "train.bin")
    shape = config(batch_size=2000, block_size=300)
    loader = GPTDataLoader(shape, TOKENIZER, tmp_path, dtype="uint32")
    with pytest.raises(VocabularyError, match="a token id is outside the vocabulary"):
        loader.get_batch()


def test_a_sample_and_a_batch_with_such_an_id_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", tokens())
    dataset = MemoryMappedDataset(tmp_path, 10, vocab_size=100)
    good, bad = 0, FAR // 10
    assert dataset[good]["labels"].tolist() == [0] * 9
    place = f"a.npy, token {bad * 10:,}: a token id is outside the vocabulary"
    with pytest.raises(VocabularyError, match=place):
        dataset[bad]
    mixture = MixtureDataset([dataset, dataset], ["a", "b"])
    for data in (dataset, mixture):
        data.batch(np.array([good]))
        with pytest.raises(VocabularyError, match="a token id is outside the vocabulary"):
            data.batch(np.array([good, bad]))


def test_the_last_label_of_a_row_is_looked_at_too(tmp_path):
    ids = np.zeros(2 * EDGE_TOKENS + 100, np.uint32)
    ids[EDGE_TOKENS - EDGE_TOKENS % 10 + 19] = 100  # the last token of its sample
    np.save(tmp_path / "a.npy", ids)
    (tmp_path / "metadata.yaml").write_text("vocab_size: 100\n")
    dataset = MemoryMappedDataset(tmp_path, 10)
    with pytest.raises(VocabularyError, match="a token id is outside the vocabulary"):
        for _ in StatefulDataLoader(dataset, 64):
            pass
