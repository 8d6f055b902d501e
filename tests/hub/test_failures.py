"""Connections that fail in the middle: read on from the exact document, or given up aloud."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Asking = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]

FINEWEB = "hf:HuggingFaceFW/fineweb-edu/CC-MAIN-2024-10"
QUICK = {"max_retries": 6, "retry_delay": 0.01}
# The client asks six times by itself before it gives up and the source is opened again.
OWN_TRIES = 6


@pytest.mark.soak
def test_a_connection_cut_in_the_middle_of_a_file_loses_and_repeats_nothing(
    ask: Asking, hub: Any, content: dict[str, list[Any]]
) -> None:
    hub.fail("large/", from_byte=10_000_000, cut_after=500_000, times=3 * OWN_TRIES)
    once, answer = ask(
        [
            {"spec": "hf:test/large", "settings": {"max_retries": 0}},
            {"spec": "hf:test/large", "settings": QUICK},
        ]
    )
    assert "reading failed 1 times" in once["error"] and 0 < len(once["records"]) < 450
    assert "error" not in answer
    texts = [record["text"] for record in answer["records"]]
    assert texts == [row["text"] for row in content["large"]]
    assert len(hub.account.failed) == 3 * OWN_TRIES


def test_unavailable_servers_cut_connections_and_slow_bytes_are_waited_for(
    ask: Asking, hub: Any, content: dict[str, list[Any]]
) -> None:
    hub.fail("/api/datasets/HuggingFaceFW/fineweb-edu", status=503, times=4)
    hub.fail("train-00000-of-00003.parquet", cut_after=500, times=2 * OWN_TRIES)
    hub.fail("train-00001-of-00003.parquet", status=503, times=2 * OWN_TRIES)
    hub.fail("train-00002-of-00003.parquet", slow=0.005, times=3)
    [answer] = ask([{"spec": FINEWEB, "settings": QUICK}])
    assert "error" not in answer
    texts = [record["text"] for record in answer["records"]]
    assert texts == [row["text"] for row in content["fineweb"]]
    assert len(hub.account.failed) > 4 * OWN_TRIES


def test_a_connection_that_never_comes_back_ends_with_the_cause(ask: Asking, hub: Any) -> None:
    hub.fail("large/", from_byte=10_000_000, cut_after=0, times=10**6)
    settings = {"max_retries": 1, "retry_delay": 0.01}
    [answer] = ask([{"spec": "hf:test/large", "settings": settings}])
    assert "reading failed 2 times in a row: " in answer["error"]
    assert answer["error"].startswith("test/large:train: ")
    assert answer["cause"] not in ("NoneType", "InputError")
    # What had arrived before is complete, and the cursor leads on from there.
    arrived = len(answer["records"])
    assert 0 < arrived < 450
    hub.heal()
    [rest] = ask([{"spec": "hf:test/large", "cursor": answer["cursors"][-1]}])
    assert [record["row"] for record in rest["records"]] == list(range(arrived, 450))
