"""Long documents take time in proportion to their length, and cutting changes no id."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenreel.text.tokenizers.cuts import cut, may_be_cut
from tokenreel.text.tokenizers.hf_content import content_json
from tokenreel.text.tokenizers.hostile import hostile_sample
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer

Open = Callable[[str], ReferencedTokenizer]
quick = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SMALL, FACTOR = 1 << 15, 4
QUICK = 0.1
RUNS = {
    "letters": "a" * SMALL,
    "blanks": " " * SMALL,
    "han": "漢字仮名" * (SMALL // 4),
    "source": (Path(random.__file__).read_text() * 3)[:SMALL],
}


def seconds(encode: Callable[[list[str]], object], text: str) -> float:
    """Return the least of three times, or the first that is too short to measure."""
    least = math.inf
    for _ in range(3):
        start = time.process_time()  # of this process: other work on the machine does not count
        encode([text])
        least = min(least, time.process_time() - start)
        if least < QUICK:
            break
    return least


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("kind", ["bpe", "unigram", "sp_trained", "sp_unigram", "tiktoken", "byte"])
def test_four_times_the_text_takes_about_four_times_as_long(
    kind: str, run: str, open_kind: Open
) -> None:
    tokenizer = open_kind(kind)
    for encode in (tokenizer.encode_batch, tokenizer.encode_by_reference):
        large = seconds(encode, RUNS[run] * FACTOR)
        # Quadratic time would be 16 times as long; what is quick anyway is too short to measure.
        assert large < QUICK or large / seconds(encode, RUNS[run]) < 3 * FACTOR


@pytest.mark.parametrize("kind", ["bpe", "bpe_split"])
@quick
@given(data=st.data())
def test_cutting_a_document_changes_no_id(kind: str, data: st.DataObject, open_kind: Open) -> None:
    tokenizer = open_kind(kind)
    hostile = hostile_sample(tokenizer.control_ids)
    word = st.sampled_from(
        ["a ", "it's\n", "Z\r\n", " x 1", "'S a", "é b", "a\n\n  b", ".\nc ", "\n"]
    )
    parts = st.one_of(
        word, st.text(max_size=5), st.sampled_from([t for t in hostile if len(t) < 99])
    )
    text = data.draw(st.lists(parts, min_size=1, max_size=12).map("".join))
    pieces = cut(text, size=data.draw(st.integers(1, 20)))
    assert "".join(pieces) == text
    whole = tokenizer.encode_by_reference([text]).ids
    assert np.array_equal(tokenizer.encode_by_reference(pieces).ids, whole)


def test_a_document_is_cut_to_pieces_of_about_the_asked_size() -> None:
    text = "word " * 1000
    pieces = cut(text, size=100)
    assert len(pieces) == 50 or max(map(len, pieces)) <= 105
    assert cut("x" * 1000, size=100) == ["x" * 1000]


def test_only_definitions_known_to_allow_it_are_cut(folder: Path) -> None:
    def allowed(kind: str, **change: object) -> bool:
        definition = json.loads((folder / f"{kind}.json").read_text())
        return may_be_cut(json.loads(content_json({**definition, **change})))

    assert allowed("bpe") and allowed("bpe_split")
    others = ("bpe_words", "bpe_whole_words", "bpe_sentencepiece_style", "unigram", "wordlevel")
    assert not any(allowed(kind) for kind in others)
    assert not allowed("bpe", normalizer={"type": "NFC"})
    prefixed = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    step = {"type": "ByteLevel", "add_prefix_space": prefixed.add_prefix_space, "use_regex": True}
    assert not allowed("bpe", pre_tokenizer=step)


def test_a_document_over_the_cutting_size_has_the_ids_of_the_library(
    open_kind: Open, folder: Path
) -> None:
    text = Path(random.__file__).read_text() * 36
    assert len(cut(text)) > 1
    library = tokenizers.Tokenizer.from_file(str(folder / "bpe.json"))
    expected = library.encode_batch_fast([text], add_special_tokens=False)[0].ids
    assert open_kind("bpe").encode_by_reference([text]).ids.tolist() == expected
