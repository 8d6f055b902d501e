"""Whatever bytes or values come in, a parser succeeds or raises a TokenreelError.

Every parser is given a real input with a few bytes or one value changed (damaging.py), some
examples of each here and thousands in the soak. What is opened is also used: read from end to
end, rendered, fed, resumed.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.faults import (
    fuzzed_preferences,
    fuzzed_settings,
    fuzzed_states,
    fuzzed_stores,
    fuzzed_text,
)
from tests.faults.fuzzed import fuzz, quiet
from tests.faults.fuzzed_stores import plan_header
from tests.feed.making import scratch

from tokenreel.errors import TokenreelError

EXAMPLES, SOAK_EXAMPLES = 10, 3000
PARSERS = {
    make.__name__: make
    for room in (fuzzed_settings, fuzzed_stores, fuzzed_text, fuzzed_preferences, fuzzed_states)
    for make in room.PARSERS
}

RANKS = [b"%s %d\n" % (base64.b64encode(bytes((byte,))), byte) for byte in range(256)]


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


# What raised something else, or nothing, before this test was there: a case of each.
FOUND: list[tuple[str, Any]] = [
    ("recipe_dict", {"seq_len": "\ud800"}),
    ("stream_config", {"data": {"\ud800": 1}}),
    ("recipe_objects", None),
    ("recipe_objects", {"recipe": {"seq_len": 2**63}, "source": {"name": "a", "path": "b"}}),
    ("tiktoken_ranks", b"".join([*RANKS, b"c28= 18446744073709551616\n"])),
    ("tiktoken_sidecar", b'{"pat_str": "", "special_tokens": {}}'),
    ("tiktoken_sidecar", b'{"pat_str": "\\\\w", "special_tokens": {"</s>": -2147483647}}'),
    ("tiktoken_sidecar", b'{"pat_str": "\\\\w", "special_tokens": {"</s>": 4294967296}}'),
    ("sampler_state", None),
    ("stateful_loader_state", {"sampler": 7}),
    ("mixture_sampler_state", {"changes": 7}),
    ("mixture_sampler_state", {"changes": [[1, [0.5]]]}),
    ("token_loader_state", {"drawn": [1]}),
    ("episodes_index", b""),
    ("template_arguments", {"enable_thinking": deep()}),
    ("preference_records", {"chosen": [deep(), "a"], "rejected": [deep(), "b"]}),
]


@pytest.mark.parametrize(
    ("name", "value"), FOUND, ids=[f"{n}-{name}" for n, (name, _) in enumerate(FOUND)]
)
def test_what_was_found_is_refused(name: str, value: Any) -> None:
    with scratch() as folder, quiet(), pytest.raises(TokenreelError):
        PARSERS[name](folder).use(value)


def test_a_plan_whose_header_vouches_for_nonsense_is_made_again() -> None:
    with scratch() as folder, quiet():
        plan = plan_header(folder)
        whole = json.loads(next(folder.rglob("*/plan.json")).read_bytes())
        facts: list[Any] = [
            None,
            [],
            7,
            {"documents": None},
            {"documents": {"bytes": [], "sha256": 1}},
        ]
        for name in ("files", "ledger"):
            for value in facts:
                plan.use({**whole, name: value})


@pytest.mark.parametrize("name", PARSERS)
def test_nothing_but_our_own_errors_comes_out_of(name: str) -> None:
    fuzz(PARSERS[name], EXAMPLES)


@pytest.mark.soak
@pytest.mark.parametrize("name", PARSERS)
def test_nothing_but_our_own_errors_comes_out_of_in_thousands_of_cases_(name: str) -> None:
    fuzz(PARSERS[name], SOAK_EXAMPLES)
