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
from tokenreel.errors import ConfigError, MismatchError
from tokenreel.feed.scanned import scan_labels

SYS, USR, ASST, EOT = 1, 2, 3, 4
A, B = 30, 31
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


def oracle(ids: list[int], length: int) -> list[bool]:
    """Go through the tokens one by one."""
    trained, inside = [], False
    for place, number in enumerate(ids):
        trained.append(inside and number != ASST and place < length)
        if number == ASST:
            inside = True
        elif number == EOT:
            inside = False
    return trained


@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(2, 12).flatmap(
        lambda width: st.lists(
            st.tuples(
                st.lists(
                    st.sampled_from([SYS, USR, ASST, EOT, A, B]), min_size=width, max_size=width
                ),
                st.integers(0, width),
            ),
            min_size=1,
            max_size=5,
        )
    )
)
def test_the_scan_of_a_batch_equals_a_scan_token_by_token(
    rows: list[tuple[list[int], int]],
) -> None:
    ids = np.array([row for row, _ in rows])
    lengths = np.array([length for _, length in rows])
    labels = np.where(np.arange(1, ids.shape[1]) < lengths[:, None], ids[:, 1:], -100)
    scanned = scan_labels(ids[:, :-1], labels, opening_id=ASST, closing_id=EOT)
    trained = np.array([oracle(row, length) for row, length in rows])
    assert scanned.tolist() == np.where(trained[:, 1:], ids[:, 1:], -100).tolist()


@settings(max_examples=50, deadline=None)
@given(
    turns=st.lists(
        st.tuples(st.sampled_from([SYS, USR, ASST]), st.lists(st.integers(10, 99), max_size=4)),
        min_size=1,
        max_size=6,
    ),
    length=st.integers(1, 40),
)
def test_on_whole_chats_it_agrees_with_contract_001(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[int, list[int]]], length: int
) -> None:
    ids = [token for role, content in turns for token in (role, *content, EOT)]
    mask = sft_loss_mask_for_ids(ids, sys_id=SYS, usr_id=USR, asst_id=ASST, eot_id=EOT)
    paths = write(tmp_path_factory.mktemp("sft"), ids)
    _, y, masked = batch(paths, length, asst_id=ASST)
    padded = (mask + [False] * length)[1 : length + 1]
    assert masked[0].tolist() == [
        token if trained else -100 for token, trained in zip(y[0].tolist(), padded, strict=True)
    ]


def test_examples_are_drawn_evenly_and_only_by_the_generator_given(tmp_path: Path) -> None:
    paths = write(tmp_path, *([100 + n] for n in range(10)))
    before = torch.get_rng_state()
    x, _, _ = batch(paths, 1, rows=20_000, asst_id=ASST)
    again, _, _ = batch(paths, 1, rows=20_000, asst_id=ASST)
    assert torch.equal(before, torch.get_rng_state()) and torch.equal(x, again)
    counts = torch.bincount(x[:, 0] - 100, minlength=10)
    assert counts.sum() == 20_000 and int(counts.min()) > 1800 and int(counts.max()) < 2200


def test_the_assistants_id_comes_from_meta_or_the_caller_or_is_an_error(tmp_path: Path) -> None:
    paths = write(tmp_path, EXAMPLE)
    with pytest.raises(ConfigError, match=r"assistant's role is not known .*meta\.json.*asst_id=…"):
        batch(paths, 10)
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
