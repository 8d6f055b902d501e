"""show and prepare: what a folder is, told by the same code that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tokenreel import StoreWriter, open_store
from tokenreel.dropin.mapped.prepare import prepare
from tokenreel.errors import VocabularyError
from tokenreel.inspect.installation import examine
from tokenreel.inspect.store_facts import describe, length_histogram, sample_lengths

MakeStore = Callable[..., Path]


def test_describe_counts_what_is_there(make_store: MakeStore) -> None:
    store = open_store(make_store())
    facts = describe(store)
    assert facts["tokens"] == store.num_tokens
    assert facts["documents"] == 40
    assert facts["splits"]["val"]["documents"] == 4
    assert facts["splits"]["train"]["provenance"] and not facts["splits"]["train"]["turns"]
    counted = sum(
        bucket["documents"] for bucket in facts["splits"]["train"]["lengths"]["histogram"]
    )
    assert counted == 36
    json.dumps(facts)


def test_a_document_in_several_shards_counts_once(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "s", vocab_size=9, shard_bytes=16) as writer:
        writer.add([1] * 3)
        writer.add([2] * 30)
        writer.add([3])
    lengths = sample_lengths(open_store(tmp_path / "s")["train"])
    assert lengths is not None and lengths.tolist() == [3, 30, 1]


def test_the_histogram_has_powers_of_two() -> None:
    assert length_histogram(np.array([1, 2, 3, 1000])) == (
        (1, 1),
        (2, 2),
        *((2**k, 0) for k in range(2, 9)),
        (512, 1),
    )


@pytest.mark.parametrize("size", [400, 402])
def test_prepare_and_the_loader_agree_on_a_dtype_nobody_declared(tmp_path: Path, size: int) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(size))
    facts = prepare(tmp_path)
    store = open_store(tmp_path, file_pattern="*.bin")
    assert facts["dtype"] == store.dtype.name == ("uint32" if size % 4 == 0 else "uint16")
    assert facts["tokens"] == store.num_tokens
    assert f"--data.dtype={facts['dtype']}" in facts["flags"]


def test_prepare_prints_the_flags_of_a_tatm_folder(tmp_path: Path) -> None:
    np.save(tmp_path / "tok_0.npy", np.arange(50, dtype=np.uint16))
    (tmp_path / "metadata.yaml").write_text(
        "name: x\ntokenized_info:\n  dtype: uint16\n  vocab_size: 60\n  tokenizer: gpt2\n"
        "  file_prefix: tok\n  file_extension: npy\n"
    )
    facts = prepare(tmp_path)
    assert facts["vocab_size"] == 60 and facts["tokenizer"] == "gpt2"
    assert facts["flags"] == [
        f"--data.dataset_path={tmp_path}",
        "'--data.file_pattern=*.npy'",
        "--data.tokenizer_path=gpt2",
    ]


def test_prepare_checks_every_id(tmp_path: Path) -> None:
    ids = np.zeros(200_000, np.uint16)
    ids[100_000] = 99
    np.save(tmp_path / "a.npy", ids)
    with pytest.raises(VocabularyError, match="token 100,000 is outside the vocabulary"):
        prepare(tmp_path, vocab_size=50)


def test_doctor_names_kernels_versions_and_extras() -> None:
    facts = examine()
    assert str(facts["kernels"]).startswith(("native", "numpy"))
    assert facts["cores"] and facts["free_disk_bytes"]
    assert facts["core"]["numpy"] == np.__version__  # type: ignore[index]
