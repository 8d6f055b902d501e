"""Fault 7: ranks that do not see the same store or recipe all fail before the first step."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.adapters.making import mixed_recipe, write_stores
from tests.adapters.ranks import Ranks
from tests.dropin.making import put_files
from tests.feed.making import write_store

from tokenreel.errors import ConfigError, MismatchError
from tokenreel.feed.agreement import check_claims, claim_of, failed_claim
from tokenreel.feed.feed import Feed


def test_every_rank_fails_and_names_what_differs(tmp_path: Path, ranks: Ranks) -> None:
    write_stores(tmp_path)
    (tmp_path / "changed").mkdir()
    for name in ("web", "chat"):
        (tmp_path / "changed" / name).symlink_to(tmp_path / name)
    write_store(tmp_path / "changed" / "notes", [9, 2, 14, 21, 5, 11, 30], first_token=701)
    put_files(tmp_path / "files", {"a.npy": range(100)})
    put_files(tmp_path / "files-changed", {"a.npy": range(1, 101)})
    ranks.launch("disagree", 2, tmp_path)
    assert ranks.finish() == [0, 0]
    said = [json.loads((tmp_path / f"errors-{rank}.json").read_text()) for rank in range(2)]
    assert said[0] == said[1]
    for name, pattern in {
        "same": "none",
        "seed": r"MismatchError: the ranks do not see the same run; differing: recipe.seed on "
        r"rank 1 \(expected 11, got 12\); give every rank the same stores, recipe and state",
        "store": r"MismatchError: .*; differing: stores.2 on rank 1 "
        r"\(expected '\w+', got '\w+'\).*",
        "missing": r"MismatchError: not every rank can open the stores; differing: rank 1 "
        r"\(expected 'open', got '\w+Error: .*nowhere/web.*'\); give every rank the same stores",
        "steps": r"MismatchError: .*; differing: number of steps on rank 1 "
        r"\(expected 10, got 9\); .*",
        "state": r"MismatchError: .*; differing: step on rank 1 \(expected 0, got 4\); .*",
        "ranks": r"ConfigError: the processes do not share out the ranks \(expected each of 0 to "
        r"1 equally often, got 0, 0\); give each process its rank among all that share a batch",
        "uneven": "none",
        "same files": "none",
        "other tokens": r"MismatchError: .*; differing: store on rank 1 \(.*\); .*",
        "no files": r"MismatchError: not every rank can open the stores; differing: rank 1 "
        r"\(expected 'open', got '\w+Error: .*nowhere.*'\); give every rank the same stores",
        "sampler seed": r"MismatchError: .*; differing: seed on rank 1 \(expected 0, got 1\); .*",
        "sampler shares": r"MismatchError: .*; differing: shares.0 on rank 1 \(expected 0.5, .*",
        "loader state": r"MismatchError: .*; differing: batches_yielded on rank 1 "
        r"\(expected 0, got 1\), .*",
        "ranks given": "none",
    }.items():
        assert re.fullmatch(pattern, said[0][name]), (name, said[0][name])


def test_claims_of_one_run_agree_and_many_that_differ_are_counted(tmp_path: Path) -> None:
    write_stores(tmp_path)
    feed = Feed(mixed_recipe(tmp_path))
    claims = [claim_of(feed, rank=rank, world_size=4) for rank in range(4)]
    check_claims(claims)
    check_claims(claims + claims)  # two processes for each rank
    for claim in claims[2:]:
        claim["grad_accum"] = 2
    with pytest.raises(MismatchError) as caught:
        check_claims(claims)
    assert caught.value.differing == {"grad_accum on rank 2 and 1 more": (1, 2)}
    with pytest.raises(ConfigError, match="the processes do not share out the ranks"):
        check_claims(claims[:2])
    failed = failed_claim(OSError("no such disk"), rank=1, world_size=4)
    with pytest.raises(MismatchError) as caught:
        check_claims([claims[0], failed])
    assert caught.value.differing == {"rank 1": ("open", "OSError: no such disk")}
