"""The engine that does the work gives the ids of the reference, or does not get the work."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from tokenreel.errors import ConfigError, InputError, MismatchError
from tokenreel.text.provenance import Provenance
from tokenreel.text.tokenizers import load_tokenizer
from tokenreel.text.tokenizers.bpe_engines import gigatoken_of_json, tiktoken_of_json
from tokenreel.text.tokenizers.byte import define_bytes
from tokenreel.text.tokenizers.checked_encoder import CheckedEncoder
from tokenreel.text.tokenizers.engine import Engine, UnsuitableError, choose_engine
from tokenreel.text.tokenizers.hf_content import content_json
from tokenreel.text.tokenizers.hostile import hostile_sample
from tokenreel.text.tokenizers.tokenizer import Definition, ReferencedTokenizer
from tokenreel.text.tokenizers.tokenizer_protocol import Encoded

Open = Callable[[str], ReferencedTokenizer]


@dataclass
class WrongAt:
    """Bytes, except that texts for which `when` holds get a wrong last id."""

    when: Callable[[str], bool]
    name: str = "wrong 1.0"

    def encode(self, texts: Sequence[str]) -> Encoded:
        encoded = define_bytes(()).reference.encode(texts)
        for number, text in enumerate(texts):
            if text and self.when(text):
                encoded.ids[encoded.offsets[number + 1] - 1] += 1
        return encoded


def bytes_with(candidate: Callable[[], Engine]) -> ReferencedTokenizer:
    plain = define_bytes(("<end>",))
    return ReferencedTokenizer(
        Definition(
            where="byte",
            fingerprint=plain.fingerprint,
            vocab_size=plain.vocab_size,
            control_ids=plain.control_ids,
            reference=plain.reference,
            decode_text=plain.decode_text,
            reopen=plain.reopen,
            candidates=(candidate,),
        )
    )


def test_gigatoken_does_the_work_for_byte_level_and_sentencepiece_bpe(open_kind: Open) -> None:
    name = f"gigatoken {version('gigatoken')}"
    for kind in ("bpe", "bpe_split", "bpe_words", "bpe_sentencepiece_style", "sp_trained"):
        assert open_kind(kind).engine == name


def test_the_reference_can_be_asked_for(folder: Path) -> None:
    tokenizer = load_tokenizer(folder / "bpe.json", engine="reference")
    assert isinstance(tokenizer, ReferencedTokenizer)
    assert tokenizer.engine == "reference"
    with pytest.raises(ConfigError, match="expected auto or reference, got warp"):
        load_tokenizer(folder / "bpe.json", engine="warp")


def test_tiktoken_over_the_same_merges_gives_the_same_ids(open_kind: Open, folder: Path) -> None:
    sample = [*hostile_sample(["</s>"]), Path(__file__).read_text() * 20]
    for kind in ("bpe", "bpe_split"):
        content = content_json(json.loads((folder / f"{kind}.json").read_text()))
        fast = tiktoken_of_json(content).encode(sample)
        assert np.array_equal(fast.ids, open_kind(kind).encode_by_reference(sample).ids)


@pytest.mark.parametrize("kind", ["bpe_words", "bpe_whole_words", "unigram"])
def test_tiktoken_refuses_what_it_cannot_do(kind: str, folder: Path) -> None:
    with pytest.raises(UnsuitableError):
        tiktoken_of_json(content_json(json.loads((folder / f"{kind}.json").read_text())))


def test_gigatoken_with_the_control_tokens_left_in_is_not_chosen(
    open_kind: Open, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    raw = (folder / "bpe.json").read_text()
    reference = open_kind("bpe")._definition.reference
    with caplog.at_level(logging.INFO):
        chosen = choose_engine(
            reference, [lambda: gigatoken_of_json(raw)], spelled=open_kind("bpe").control_ids
        )
    assert chosen is reference
    assert "gigatoken" in caplog.text and "differently" in caplog.text


def test_an_engine_that_differs_on_the_hostile_sample_is_not_chosen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        tokenizer = bytes_with(lambda: WrongAt(lambda text: "\r" in text))
    assert tokenizer.engine == "reference"
    assert "wrong 1.0 not used: it encodes" in caplog.text


def test_an_engine_that_does_not_load_is_not_chosen(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> Engine:
        raise UnsuitableError("no such package")

    with caplog.at_level(logging.INFO):
        assert bytes_with(fail).engine == "reference"
    assert "no such package" in caplog.text


def test_a_difference_in_a_build_names_document_offset_and_both_ids() -> None:
    tokenizer = bytes_with(lambda: WrongAt(lambda text: text.endswith("Xyzzy!")))
    assert tokenizer.engine == "wrong 1.0"
    provenances = [Provenance(file="web.jsonl", row=row) for row in range(2)]
    place = provenances.__getitem__
    CheckedEncoder(tokenizer).texts(["good", "also good"], place=place)
    with pytest.raises(MismatchError) as caught:
        CheckedEncoder(tokenizer).texts(["good", "é Xyzzy!"], place=place)
    message = str(caught.value)
    assert "web.jsonl:2: wrong 1.0 and the reference" in message
    assert "from token 8 on (character 7)" in message
    assert "ids (expected [33], got [34])" in message
    assert 'tokenizer_engine="reference"' in message


def test_a_difference_in_length_alone_is_a_difference() -> None:
    class Short(WrongAt):
        def encode(self, texts: Sequence[str]) -> Encoded:
            encoded = define_bytes(()).reference.encode(texts)
            if not self.when(texts[-1]):
                return encoded
            offsets = encoded.offsets.copy()
            offsets[-1] -= 1
            return Encoded(ids=encoded.ids[:-1], offsets=offsets)

    tokenizer = bytes_with(lambda: Short(lambda text: text == "Xyzzy"))
    with pytest.raises(MismatchError, match=r"tokens \(expected 5, got 4\)"):
        CheckedEncoder(tokenizer).texts(["Xyzzy"], place=lambda _: "memory")


def test_a_checked_batch_is_encoded_as_the_reference_encodes_it(open_kind: Open) -> None:
    sample = hostile_sample()
    for kind in ("bpe", "sp_trained", "byte"):
        encoder = CheckedEncoder(open_kind(kind), every=1, stretches=len(sample))
        encoded = encoder.texts(sample, place=str)
        expected = open_kind(kind).encode_by_reference(sample)
        assert encoded.offsets.tolist() == expected.offsets.tolist()
        assert encoded.ids.tolist() == expected.ids.tolist()


def test_of_every_so_many_batches_one_is_checked_beginning_with_the_first() -> None:
    tokenizer = bytes_with(lambda: WrongAt(lambda text: text == "Xyzzy"))

    def first_refused(encoder: CheckedEncoder, wrong_from: int) -> int:
        for number in range(9):
            text = "Xyzzy" if number >= wrong_from else "good"
            try:
                encoder.texts([text], place=lambda _: "memory")
            except MismatchError:
                return number
        return -1

    for wrong_from, refused in [(0, 0), (1, 3), (3, 3), (4, 6)]:
        assert first_refused(CheckedEncoder(tokenizer, every=3), wrong_from) == refused
    assert first_refused(CheckedEncoder(tokenizer, every=1, stretches=1), 1) == 1


def test_the_hostile_sample_never_changes() -> None:

    sample = hostile_sample(["<|eot|>"])
    assert all(text in sample for text in ("", "\x00", "<|eot|>", "x<|eot|>y", " " * 3000))
    digest = hashlib.sha256("\x00\x00".join(sample).encode()).hexdigest()
    assert digest.startswith("38dcc6791ffa7443")


def test_an_engine_that_gives_up_on_a_batch_is_relieved_by_the_reference() -> None:
    class GivesUp(WrongAt):
        def encode(self, texts: Sequence[str]) -> Encoded:
            if any(map(self.when, texts)):
                raise ValueError("stack size exceeded")
            return define_bytes(()).reference.encode(texts)

    tokenizer = bytes_with(lambda: GivesUp(lambda text: text == "Xyzzy"))
    assert tokenizer.engine == "wrong 1.0"
    assert tokenizer.encode_batch(["a", "Xyzzy"]).ids.tolist() == [97, *b"Xyzzy"]


def test_a_text_the_reference_cannot_encode_is_an_error_with_its_number(open_kind: Open) -> None:
    # tiktoken's regular expressions have a stack, and a long enough run of blanks exceeds it.
    with pytest.raises(InputError, match=r"cannot encode text 1 .*12,000,000 characters.*: Regex"):
        open_kind("tiktoken").encode_by_reference(["fine", " " * 12_000_000])
