"""Contract 002: which targets of a fine-tuning row are trained."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from niels_gpt.cache import SFTExampleDataset
from niels_gpt.format import sft_loss_mask_for_ids
from tokenreel.dropin.caches.cache_parts import SpecialIds
from tokenreel.dropin.caches.chat_ids import assistant_mask
from tokenreel.errors import ConfigError, MismatchError

SYS, USR, ASST, EOT = 1, 2, 3, 4
A, B = 30, 31
IDS = SpecialIds(roles=(SYS, USR, ASST), asst=ASST, eot=EOT)
SPECIALS = {"sys": SYS, "usr": USR, "asst": ASST, "eot": EOT}
EXAMPLE = [SYS, 10, 11, EOT, USR, 20, EOT, ASST, A, B, EOT]


def write(
    folder: Path, *examples: list[int], meta: dict[str, Any] | None = None
) -> tuple[str, str]:
    tokens, index = folder / "train_tokens.bin", folder / "train_idx.npy"
    np.array(list(chain(*examples)), "<u2").tofile(tokens)
    np.save(index, np.cumsum([0, *map(len, examples)])[:-1].astype(np.int64))
    if meta is not None:
        (folder / "meta.json").write_text(json.dumps(meta))
    return str(tokens), str(index)


def batch(
    paths: tuple[str, str], length: int, *, rows: int = 1, **options: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dataset = SFTExampleDataset(*paths, T=length, device="cpu", eot_id=EOT, **options)
    return dataset.get_batch(B=rows, generator=torch.Generator().manual_seed(0))


def test_only_the_answer_and_its_end_are_trained(tmp_path: Path) -> None:
    x, y, masked = batch(write(tmp_path, EXAMPLE, meta={"special_token_ids": SPECIALS}), 10)
    assert x.shape == y.shape == masked.shape == (1, 10)
    assert x.dtype == y.dtype == masked.dtype == torch.int64
    assert x[0].tolist() == EXAMPLE[:-1] and y[0].tolist() == EXAMPLE[1:]
    assert masked[0].tolist() == [-100] * 7 + [A, B, EOT]


def test_padding_is_masked_though_it_is_the_end_of_turn_id(tmp_path: Path) -> None:
    x, y, masked = batch(write(tmp_path, EXAMPLE, [9] * 30), 20, rows=64, asst_id=ASST)
    short = (x[:, 0] == SYS).nonzero().flatten()
    assert len(short)
    row = int(short[0])
    assert x[row].tolist() == EXAMPLE + [EOT] * 9  # nothing of the example behind it
    assert y[row].tolist() == EXAMPLE[1:] + [EOT] * 10
    assert masked[row].tolist() == [-100] * 7 + [A, B, EOT] + [-100] * 10


def test_padding_behind_an_answer_without_end_is_no_trained_stop(tmp_path: Path) -> None:
    _, y, masked = batch(write(tmp_path, [ASST, A, B]), 6, asst_id=ASST)
    assert y[0].tolist() == [A, B, EOT, EOT, EOT, EOT]
    assert masked[0].tolist() == [A, B, -100, -100, -100, -100]


def test_a_long_example_is_cut_to_its_first_tokens(tmp_path: Path) -> None:
    x, y, masked = batch(write(tmp_path, EXAMPLE), 8, asst_id=ASST)
    assert (x[0].tolist(), y[0].tolist()) == (EXAMPLE[:8], EXAMPLE[1:9])
    assert masked[0].tolist() == [-100] * 7 + [A]
    _, _, masked = batch(write(tmp_path, EXAMPLE), 4, asst_id=ASST)
    assert masked[0].tolist() == [-100] * 4


def test_the_last_example_ends_where_the_tokens_do(tmp_path: Path) -> None:
    paths = write(tmp_path, [9, 9], EXAMPLE)
    assert np.load(paths[1]).tolist() == [0, 2]
    x, y, _ = batch(paths, 10, rows=64, asst_id=ASST)
    whole = x[:, 0] == SYS
    assert bool(whole.any()) and y[whole][0].tolist() == EXAMPLE[1:]
    assert sorted(set(map(tuple, x.tolist()))) == [
        (SYS, *EXAMPLE[1:10]),
        (9, 9, *[EOT] * 8),
    ]


def oracle(ids: list[int]) -> list[bool]:
    """Go through the tokens one by one."""
    trained, speaker = [], None
    for number in ids:
        trained.append(speaker == ASST and number not in (SYS, USR, ASST))
        if number in (SYS, USR, ASST, EOT):
            speaker = number
    return trained


@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(1, 12).flatmap(
        lambda width: st.lists(
            st.lists(st.sampled_from([SYS, USR, ASST, EOT, A]), min_size=width, max_size=width),
            min_size=1,
            max_size=5,
        )
    )
)
def test_the_scan_of_a_batch_equals_a_scan_token_by_token(rows: list[list[int]]) -> None:
    assert assistant_mask(np.array(rows), ids=IDS).tolist() == [oracle(row) for row in rows]


@pytest.mark.parametrize("says", ["meta", "argument", "nobody"])
@pytest.mark.filterwarnings("ignore:.*no meta.json says")
def test_contracts_001_and_002_train_the_same_targets_of_500_random_lists(
    tmp_path: Path, says: str
) -> None:
    """001: "set mask True for subsequent tokens until you see eot_id"; 002: "tokens after the
    assistant sentinel up to and including the next EOT". Both: no loss on role tokens.
    """
    random = np.random.default_rng(14)
    lists = [
        [100 + number, *random.choice([SYS, USR, ASST, EOT, A, B], random.integers(0, 24)).tolist()]
        for number in range(500)
    ]
    meta = {"special_token_ids": SPECIALS} if says == "meta" else None
    asst_id = ASST if says == "argument" else None
    x, y, masked = batch(write(tmp_path, *lists, meta=meta), 16, rows=8000, asst_id=asst_id)
    seen = dict(zip(x[:, 0].tolist(), zip(y.tolist(), masked.tolist(), strict=True), strict=True))
    assert len(seen) == 500
    for ids in lists:
        targets, found = seen[ids[0]]
        mask = sft_loss_mask_for_ids(ids, sys_id=SYS, usr_id=USR, asst_id=ASST, eot_id=EOT)
        trained = (mask + [False] * 16)[1:17]
        assert found == [t if flag else -100 for t, flag in zip(targets, trained, strict=True)]
        assert not {SYS, USR, ASST} & set(found)


def test_a_role_id_inside_an_answer_is_not_trained_nor_what_it_says(tmp_path: Path) -> None:
    """Contract 001: "do not compute loss on … <|ngpt_usr…|> … tokens … user content"."""
    ids = [ASST, A, USR, B, EOT, ASST, B, EOT]
    _, _, masked = batch(write(tmp_path, ids, meta={"special_token_ids": SPECIALS}), 7)
    assert masked[0].tolist() == [A, -100, -100, -100, -100, B, EOT]


def test_examples_are_drawn_evenly_and_only_by_the_generator_given(tmp_path: Path) -> None:
    paths = write(tmp_path, *([100 + n] for n in range(10)))
    before = torch.get_rng_state()
    x, _, _ = batch(paths, 1, rows=20_000, asst_id=ASST)
    again, _, _ = batch(paths, 1, rows=20_000, asst_id=ASST)
    assert torch.equal(before, torch.get_rng_state()) and torch.equal(x, again)
    counts = torch.bincount(x[:, 0] - 100, minlength=10)
    assert counts.sum() == 20_000 and int(counts.min()) > 1800 and int(counts.max()) < 2200


def test_the_exact_signature_works_without_meta_and_warns(tmp_path: Path) -> None:
    """Contract 002: "def __init__(self, tokens_path: str, idx_path: str, *, T: int,
    device: str, eot_id: int)", and "idx_path: int64 offsets array": no meta.json.
    """
    shifted = [number + 2 if number <= EOT else number for number in EXAMPLE]  # niels-gpt: eot is 6
    tokens, index = write(tmp_path, shifted)
    with pytest.warns(UserWarning, match=r"5 is taken, the id before eot_id 6.*asst_id=…") as found:
        dataset = SFTExampleDataset(tokens, index, T=10, device="cpu", eot_id=EOT + 2)
    assert found[0].filename == __file__
    _, _, masked = dataset.get_batch(B=1, generator=torch.Generator())
    assert masked[0].tolist() == [-100] * 7 + [A, B, EOT + 2]


def test_an_end_of_turn_with_no_id_before_it_asks_for_the_assistants(tmp_path: Path) -> None:
    tokens, index = write(tmp_path, EXAMPLE)
    with pytest.raises(ConfigError, match=r"assistant's role is not known .*meta\.json.*asst_id=…"):
        SFTExampleDataset(tokens, index, T=10, device="cpu", eot_id=0)


def test_an_assistants_id_of_another_vocabulary_makes_no_role_of_its_neighbours(
    tmp_path: Path,
) -> None:
    ids = [99, 1, 2, 3, EOT, 1]
    _, _, masked = batch(write(tmp_path, ids), 5, asst_id=99)
    assert masked[0].tolist() == [1, 2, 3, EOT, -100]


def test_what_meta_says_of_the_special_ids_is_not_contradicted(tmp_path: Path) -> None:
    with_meta = write(tmp_path, EXAMPLE, meta={"special_token_ids": SPECIALS})
    assert batch(with_meta, 10)[2][0].tolist()[-3:] == [A, B, EOT]
    assert batch(with_meta, 10, asst_id=ASST)[2][0].tolist()[-3:] == [A, B, EOT]
    with pytest.raises(MismatchError, match=r"differing: asst \(expected 3, got 5\)"):
        batch(with_meta, 10, asst_id=5)
    with pytest.raises(MismatchError, match=r"differing: eot \(expected 4, got 0\)"):
        SFTExampleDataset(*with_meta, T=10, device="cpu", eot_id=0)


def test_senseless_sizes_are_refused(tmp_path: Path) -> None:
    paths = write(tmp_path, EXAMPLE)
    with pytest.raises(ConfigError, match="T: a row of no tokens"):
        batch(paths, 0, asst_id=ASST)
    with pytest.raises(ConfigError, match="B: a batch of no rows"):
        batch(paths, 4, rows=0, asst_id=ASST)
