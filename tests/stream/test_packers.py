"""Property 10, row by row: segments are documents, and no target crosses from one to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.making import batches_of, config_of

from tokenreel.text.sources import InMemory

BEGIN, END = 259, 256
LETTERS = [chr(number) for number in range(33, 127)]

options = st.fixed_dictionaries(
    {
        "packing_mode": st.sampled_from(["sequential", "bin"]),
        "packing_max_docs_per_bin": st.sampled_from([None, 1, 3]),
        "train_seq_len": st.integers(1, 40),
        "tokenizer_add_bos": st.booleans(),
        "tokenizer_add_eos": st.booleans(),
        "shuffle": st.booleans(),
    }
)
sizes = st.lists(st.integers(0, 90), min_size=3, max_size=40)


def rows_of(lengths: list[int], **given: Any) -> list[tuple[np.ndarray, ...]]:
    """Return inputs, labels, segments and positions of all rows; a document is one letter."""
    texts = [letter * length for letter, length in zip(LETTERS, [2, *lengths], strict=False)]
    config = config_of(Path("none"), repeat=False, **given)
    rows: list[tuple[np.ndarray, ...]] = []
    for batch in batches_of(config, source=InMemory(texts)):
        assert np.array_equal(batch.attention_mask, batch.segment_ids > 0)
        arrays = (batch.input_ids, batch.labels, batch.segment_ids, batch.position_ids)
        rows += zip(*(array.reshape(-1, array.shape[-1]) for array in arrays), strict=True)
    return rows


def letters_in(tokens: np.ndarray) -> set[int]:
    return set(tokens.tolist()) - {BEGIN, END, -100}


@settings(max_examples=40, deadline=None)
@given(lengths=sizes, chosen=options)
def test_segments_are_documents_and_no_target_crosses_them(
    lengths: list[int], chosen: dict[str, Any]
) -> None:
    for inputs, labels, segments, positions in rows_of(lengths, **chosen):
        shown = np.count_nonzero(segments)
        assert (segments[shown:] == 0).all() and (labels[shown:] == -100).all()
        if not shown:
            continue
        assert segments[0] == 1 and set(np.diff(segments[:shown]).tolist()) <= {0, 1}
        for number in range(1, segments.max() + 1):
            (place,) = np.nonzero(segments == number)
            assert positions[place].tolist() == list(range(len(place)))
            assert len(letters_in(inputs[place]) | letters_in(labels[place])) <= 1
            # Inside a segment the target is the next input; its last token has none, except
            # in the last column, where it may be the token that the next row begins with.
            assert np.array_equal(labels[place[:-1]], inputs[place[1:]])
            if place[-1] + 1 < shown:
                assert labels[place[-1]] == -100
            assert BEGIN not in inputs[place[1:]] and BEGIN not in labels[place]
            assert (labels[place][inputs[place] == END] == -100).all()


@settings(max_examples=25, deadline=None)
@given(lengths=sizes, chosen=options)
def test_unmasked_borders_have_the_next_token_as_target(
    lengths: list[int], chosen: dict[str, Any]
) -> None:
    for inputs, labels, segments, _ in rows_of(lengths, mask_boundary_loss=False, **chosen):
        shown = np.count_nonzero(segments)
        assert np.array_equal(labels[: max(shown - 1, 0)], inputs[1 : max(shown, 1)])
        assert (labels[shown:] == -100).all()


@pytest.mark.parametrize("mode", ["sequential", "bin"])
def test_a_target_in_the_last_column_is_trained(mode: str) -> None:
    rows = rows_of([80], packing_mode=mode, train_seq_len=10, shuffle=False)
    assert sum(labels[-1] == ord(LETTERS[1]) for _, labels, *_ in rows) >= 6
