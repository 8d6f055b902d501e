"""Mistral's own files, as `mistral-common` ships and reads them."""

from __future__ import annotations

import base64
import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mistral_common
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
from mistral_common.tokens.tokenizers.sentencepiece import SentencePieceTokenizer
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from tokenreel.errors import ConfigError, FormatError, TokenreelError
from tokenreel.text.tokenizers import find_end, load_tokenizer
from tokenreel.text.tokenizers.hostile import hostile_sample
from tokenreel.text.tokenizers.model_proto import PieceType, read_pieces
from tokenreel.text.tokenizers.sentencepiece import hide_from_gigatoken
from tokenreel.text.tokenizers.tekken import LISTED_BEFORE_V8
from tokenreel.text.tokenizers.tiktoken import TEKKEN_PATTERN
from tokenreel.text.tokenizers.tokenizer import ReferencedTokenizer

SHIPPED = Path(mistral_common.__file__).parent / "data"
FILES = (
    "tekken_240911.json",
    "tokenizer.model.v1",
    "mistral_instruct_tokenizer_240216.model.v2",
    "mistral_instruct_tokenizer_240323.model.v3",
)
SPELLED_IN_TEXT = re.compile(r"\[REFERENCE_DOC_\d+\]")
CONTROLS = ("[INST]", "</s>", "<s>", "[TOOL_CALLS]", "<unk>", "<SPECIAL_999>", "[/SYSTEM_PROMPT]")
Pair = Callable[[str], tuple[ReferencedTokenizer, Any]]


@pytest.fixture(scope="module")
def pair() -> Pair:
    """Open a file here and by mistral-common; each is opened once."""
    opened: dict[str, tuple[ReferencedTokenizer, Any]] = {}

    def open_both(name: str) -> tuple[ReferencedTokenizer, Any]:
        if name not in opened:
            ours = load_tokenizer(SHIPPED / name)
            assert isinstance(ours, ReferencedTokenizer)
            theirs = Tekkenizer.from_file if "tekken" in name else SentencePieceTokenizer
            opened[name] = ours, theirs(SHIPPED / name)
        return opened[name]

    return open_both


@pytest.mark.parametrize(
    "name",
    [FILES[0], *(pytest.param(name, marks=pytest.mark.soak) for name in FILES[1:3]), FILES[3]],
)
def test_control_tokens_end_and_size_are_those_of_mistral_common(name: str, pair: Pair) -> None:
    ours, theirs = pair(name)
    assert ours.vocab_size == theirs.n_words
    # What mistral-common lets text spell is a control token here, by the rule of all models.
    in_text = {n for t, n in ours.control_ids.items() if SPELLED_IN_TEXT.fullmatch(t)}
    assert len(in_text) == (20 if name.endswith("v3") else 0)
    assert set(ours.control_ids.values()) == theirs.special_ids | in_text
    assert [theirs.id_to_piece(n) for n in ours.control_ids.values()] == list(ours.control_ids)
    assert find_end(ours).id == theirs.eos_id
    assert ours.control_ids["<s>"] == theirs.bos_id


def test_markup_that_mistral_common_finds_in_text_stays_text_here(pair: Pair) -> None:
    ours, theirs = pair("mistral_instruct_tokenizer_240323.model.v3")
    text, number = "see [REFERENCE_DOC_3]", ours.control_ids["[REFERENCE_DOC_3]"]
    assert number in theirs.encode(text, bos=False, eos=False)
    assert number not in ours.encode(text)
    assert ours.decode(ours.encode(text)) == text


@pytest.mark.parametrize("name", [FILES[0], FILES[1], FILES[3]])
def test_hostile_texts_have_the_ids_of_mistral_common(name: str, pair: Pair) -> None:
    ours, theirs = pair(name)
    texts = hostile_sample(CONTROLS)
    encoded, reference = ours.encode_batch(texts), ours.encode_by_reference(texts)
    for number, text in enumerate(texts):
        expected = theirs.encode(text, bos=False, eos=False)
        assert encoded[number].tolist() == expected
        assert reference[number].tolist() == expected
        assert theirs.special_ids.isdisjoint(expected)


@pytest.mark.parametrize("name", FILES[::3])
@settings(max_examples=40, deadline=None)
@given(parts=st.lists(st.one_of(st.sampled_from(CONTROLS), st.text(max_size=12)), max_size=6))
def test_random_texts_have_the_ids_of_mistral_common(
    name: str, parts: list[str], pair: Pair
) -> None:
    ours, theirs = pair(name)
    text = "".join(parts)
    ids = ours.encode(text)
    assert ids == theirs.encode(text, bos=False, eos=False)
    assert ours.decode(ids) == theirs.decode(ids, special_token_policy=SpecialTokenPolicy.IGNORE)
    if "tekken" in name:
        assert ours.decode(ids) == text


@pytest.mark.parametrize("name", [FILES[0], pytest.param(FILES[3], marks=pytest.mark.soak)])
def test_the_fast_engine_serves_mistral_and_survives_being_sent(name: str, pair: Pair) -> None:
    ours, _ = pair(name)
    assert ours.engine.startswith("gigatoken")
    sent = pickle.loads(pickle.dumps(ours))
    assert (sent.engine, sent.fingerprint) == (ours.engine, ours.fingerprint)
    assert sent.encode_utf8([b"[INST] hi"]).ids.tolist() == ours.encode("[INST] hi")


def test_hidden_control_pieces_leave_gigatoken_its_words() -> None:
    # A piece that two pieces make, or with a blank inside, joins words: documents are then
    # encoded as wholes, at a quarter of the speed.
    data = (SHIPPED / "mistral_instruct_tokenizer_240216.model.v2").read_bytes()
    hidden = read_pieces(hide_from_gigatoken(data, read_pieces(data)))
    known = {piece.text for piece in hidden}
    names = [piece.text for piece in hidden if piece.type == PieceType.UNUSED]
    assert len(names) == 770
    assert not [n for n in names for i in range(1, len(n)) if n[:i] in known and n[i:] in known]
    assert not [name for name in names if "\u2581" in name]


def test_control_ids_decode_to_their_names_between_text(pair: Pair) -> None:
    ours, _ = pair("tekken_240911.json")
    ids = [ours.control_ids["[INST]"], *ours.encode("[INST] grüße"), ours.control_ids["</s>"]]
    assert ours.decode(ids) == "[INST][INST] grüße</s>"


def test_a_folder_with_mistral_files_alone_is_read(tmp_path: Path) -> None:
    write(tmp_path / "tekken.json", tekken())
    assert load_tokenizer(tmp_path).vocab_size == 276
    (tmp_path / "tekken.json").unlink()
    shutil.copy(SHIPPED / "tokenizer.model.v1", tmp_path / "tokenizer.model.v1")
    assert load_tokenizer(tmp_path, engine="reference").vocab_size == 32_000


def tekken(**config: Any) -> dict[str, Any]:
    """Return a small tekken file: 20 special tokens and the 256 bytes."""
    vocab = [
        {"rank": n, "token_bytes": base64.b64encode(bytes((n,))).decode(), "token_str": None}
        for n in range(256)
    ]
    sizes = {"default_vocab_size": 276, "default_num_special_tokens": 20}
    return {
        "config": {"pattern": TEKKEN_PATTERN, **sizes, "version": "v3", **config},
        "vocab": vocab,
    }


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_listed_special_tokens_are_the_control_tokens_and_fillers_the_rest(tmp_path: Path) -> None:
    listed = [
        {"rank": n, "token_str": t, "is_control": True} for n, t in enumerate(["<s>", "</s>"])
    ]
    content = {**tekken(version="v11"), "special_tokens": listed}
    path = write(tmp_path / "tekken.json", content)
    ours, theirs = load_tokenizer(path), Tekkenizer.from_file(path)
    assert list(ours.control_ids)[:4] == ["<s>", "</s>", "<SPECIAL_2>", "<SPECIAL_3>"]
    assert set(ours.control_ids.values()) == theirs.special_ids
    assert find_end(ours).id == theirs.eos_id == 1
    assert ours.encode("a</s>") == theirs.encode("a</s>", bos=False, eos=False)


def test_special_tokens_that_are_not_listed_are_those_of_mistral_common(tmp_path: Path) -> None:
    ours = load_tokenizer(write(tmp_path / "tekken.json", tekken()))
    theirs = [token["token_str"] for token in Tekkenizer.DEPRECATED_SPECIAL_TOKENS]
    assert list(ours.control_ids) == theirs == list(LISTED_BEFORE_V8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "not a tekken file"),
        ({}, "'config' is missing"),
        ({"config": {}, "vocab": []}, "'default_num_special_tokens' is missing"),
        (tekken(default_vocab_size=277), "257 tokens of a vocabulary of 256"),
        (tekken(default_vocab_size=-5), "default_vocab_size is -5"),
        (tekken(default_vocab_size=1 << 40), "default_vocab_size is 1,099,511,627,776"),
        (tekken(default_num_special_tokens=65537), "special_tokens is 65,537, not between 0 and"),
        (tekken(default_vocab_size="many"), "a int is expected, not str"),
        (tekken(default_num_special_tokens=3), "20 special tokens are listed, more than 3"),
        (tekken(version="v11"), "version v11 must list its special_tokens"),
        (tekken(pattern="("), "splitting pattern"),
        (tekken(default_vocab_size=275), "no token for the byte 255"),
        (
            {**tekken(), "special_tokens": [{"rank": 7, "token_str": "<s>"}]},
            "do not fill the ids before the vocabulary",
        ),
        ({**tekken(), "vocab": [{"rank": 1, "token_bytes": "AA=="}] * 256}, "has the rank 1"),
        (
            {**tekken(), "vocab": [{"rank": n, "token_bytes": "AA=="} for n in range(256)]},
            "twice",
        ),
        ({**tekken(), "vocab": [{"rank": 0, "token_bytes": "%"}] * 256}, "not a tekken file"),
        ({**tekken(), "special_tokens": [{"rank": 0, "token_str": "\ud800"}]}, "surrogates"),
        ({"version": "1.0", "model": {"type": "BPE"}}, "another kind must not have tekken in its"),
    ],
)
def test_a_file_that_only_pretends_is_an_error_that_says_why(
    content: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match=rf"tekken\.json: .*{message}"):
        load_tokenizer(write(tmp_path / "tekken.json", content))


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 1 << 20), byte=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_tekken_file_is_read_or_refused(
    place: int, byte: int, cut: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(json.dumps(tekken()), "utf-8")
    # Half of the damage goes to the config, which is a small part of the file.
    place %= len(data) if place % 2 else data.index(b'"vocab"')
    data[place] = byte
    path = tmp_path_factory.getbasetemp() / "tekken_damaged.json"
    path.write_bytes(data[:place] if cut else data)
    try:
        tokenizer = load_tokenizer(path, engine="reference")
    except TokenreelError:
        return
    ids = set(tokenizer.encode("</s> grüße"))
    assert ids.isdisjoint(tokenizer.control_ids.values())
    assert ids <= set(range(tokenizer.vocab_size))


@pytest.mark.parametrize("name", ["tekken.json", "tokenizer.model.v3", "x.model.v7m1"])
@pytest.mark.parametrize("data", [b"", b"{}", b"\xff\xfe\x00garbage", b"[" * 100_000])
def test_garbage_under_mistrals_names_is_an_error_that_names_the_file(
    name: str, data: bytes, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FormatError, match=name):
        load_tokenizer(tmp_path / name)


def test_other_endings_after_model_are_refused_with_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model.bak").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"tekken\.json\), \.model or \.model\.v3 .* or \.tikt"):
        load_tokenizer(tmp_path / "tokenizer.model.bak")


def test_an_object_of_mistral_common_is_refused_with_the_way_out(pair: Pair) -> None:
    _, theirs = pair("tokenizer.model.v1")
    with pytest.raises(ConfigError, match=r"give the path of its tekken\.json or \.model file"):
        load_tokenizer(theirs)
