"""What truncation keeps, for every chat and every length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenreel.text.chats import Chat, Message, Rendered, render
from tokenreel.text.chats.template import Control, Template
from tokenreel.text.chats.truncate import Cut, cut_to, keep_last, whole_turns
from tokenreel.text.tokenizers import byte_tokenizer
from tokenreel.text.turns import ROLE_CODES, ROLES, token_weights

# One token for everything around a content, so that places in a chat can be counted by hand.
TEMPLATE = Template(
    name="test",
    headers=tuple((role, (Control(control=f"<{role}>"),)) for role in ROLES),
    end=(Control(control="<end>"),),
    tail=(Control(control="<tail>"),),
    preamble=(Control(control="<begin>"),),
)
RULES = {"whole_turns": whole_turns, "keep_last": keep_last}
TOKENIZER = byte_tokenizer([*(f"<{role}>" for role in ROLES), "<end>", "<tail>", "<begin>"])
END = TOKENIZER.control_ids["<end>"]
ROLE_LISTS = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "tool", "user", "assistant"]), st.integers(0, 9)
    ),
    min_size=1,
    max_size=8,
)
CHATS = st.builds(
    lambda system, turns: [("system", size) for size in system] + turns,
    st.lists(st.integers(0, 5), max_size=1),
    ROLE_LISTS,
)


def rendered_of(turns: list[tuple[str, int]]) -> Rendered:
    messages = tuple(Message(role=role, content="x" * size) for role, size in turns)
    return render([Chat(messages=messages)], TEMPLATE, tokenizer=TOKENIZER)


def cut_of(rendered: Rendered, truncation: str, max_tokens: int) -> Cut:
    return RULES[truncation](rendered.turns, len(rendered.ids), max_tokens=max_tokens)


def kept_places(rendered: Rendered, truncation: str, max_tokens: int) -> list[int]:
    cut = cut_of(rendered, truncation, max_tokens)
    return cut.take(np.arange(len(rendered.ids))).tolist()


def weights_of(cut: Cut) -> list[float]:
    return token_weights(cut.turns, sum(stop - start for start, stop in cut.pieces)).tolist()


def extents(rendered: Rendered) -> list[range]:
    return [
        range(int(turn["start"]), int(turn["start"]) + int(turn["length"]))
        for turn in rendered.turns
    ]


def must_stay(turns: list[tuple[str, int]]) -> int:
    answers = [number for number, (role, _) in enumerate(turns) if role == "assistant"]
    return answers[-1] if answers else len(turns) - 1


@settings(max_examples=100, deadline=None)
@given(CHATS, st.integers(1, 90))
def test_whole_turns_is_the_beginning_and_a_suffix_of_whole_turns_whenever_those_fit(
    turns: list[tuple[str, int]], max_tokens: int
) -> None:
    rendered = rendered_of(turns)
    where = extents(rendered)
    systems = 1 if turns[0][0] == "system" and len(turns) > 1 else 0
    beginning = where[systems - 1].stop if systems else 1
    last = must_stay(turns)
    smallest = beginning + len(rendered.ids) - where[last].start
    kept = kept_places(rendered, "whole_turns", max_tokens)
    assert len(kept) <= max_tokens
    results_behind = any(role == "tool" for role, _ in turns[last:])
    called_earlier = last > 0 and turns[last - 1][0] == "assistant" and results_behind
    if smallest <= max_tokens and not called_earlier and turns[last][0] == "assistant":
        rest = kept[beginning:]
        assert kept[:beginning] == list(range(beginning))
        assert rest == list(range(rest[0], len(rendered.ids)))
        assert rest[0] in {extent.start for extent in where[systems : last + 1]}


@settings(max_examples=100, deadline=None)
@given(CHATS, st.integers(1, 90))
def test_the_last_answers_end_of_turn_always_stays_and_is_trained(
    turns: list[tuple[str, int]], max_tokens: int
) -> None:
    rendered = rendered_of(turns)
    if all(role != "assistant" for role, _ in turns):
        return
    end = extents(rendered)[must_stay(turns)].stop - 2
    assert rendered.ids[end] == END
    kept = kept_places(rendered, "whole_turns", max_tokens)
    if not kept:  # dropped, for its system turn
        assert turns[0][0] == "system"
        return
    assert end in kept
    assert weights_of(cut_of(rendered, "whole_turns", max_tokens))[kept.index(end)] == 1


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.integers(0, 9)),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 60),
)
@example([("system", 9), ("user", 1), ("assistant", 1)], 12)
@example([("user", 1), ("assistant", 1), ("system", 9)], 12)
@example([("system", 9)], 5)
@example([("system", 0)], 3)
def test_no_system_turn_is_ever_cut_into(turns: list[tuple[str, int]], max_tokens: int) -> None:
    rendered = rendered_of(turns)
    kept = set(kept_places(rendered, "whole_turns", max_tokens))
    for extent, (role, _) in zip(extents(rendered), turns, strict=True):
        if role == "system":
            assert kept.issuperset(extent) or kept.isdisjoint(extent)


@settings(max_examples=100, deadline=None)
@given(CHATS, st.integers(1, 90))
def test_a_chat_is_dropped_only_where_its_system_turn_and_last_answer_do_not_fit(
    turns: list[tuple[str, int]], max_tokens: int
) -> None:
    rendered = rendered_of(turns)
    where = extents(rendered)
    needed = where[0].stop + len(where[must_stay(turns)]) - 1  # the tail may go
    is_dropped = not kept_places(rendered, "whole_turns", max_tokens)
    does_not_fit = len(rendered.ids) > max_tokens and needed > max_tokens
    assert is_dropped == (turns[0][0] == "system" and does_not_fit)


@pytest.mark.parametrize("truncation", list(RULES))
@settings(max_examples=100, deadline=None)
@given(turns=CHATS, shorter=st.integers(1, 80), more=st.integers(0, 20))
def test_a_longer_limit_keeps_all_that_a_shorter_one_kept(
    truncation: str, turns: list[tuple[str, int]], shorter: int, more: int
) -> None:
    rendered = rendered_of(turns)
    few = set(kept_places(rendered, truncation, shorter))
    many = set(kept_places(rendered, truncation, shorter + more))
    assert few <= many


@pytest.mark.parametrize("truncation", list(RULES))
@settings(max_examples=100, deadline=None)
@given(turns=CHATS, max_tokens=st.integers(1, 80))
def test_truncation_is_idempotent_carries_weights_and_invents_nothing(
    truncation: str, turns: list[tuple[str, int]], max_tokens: int
) -> None:
    rendered = rendered_of(turns)
    once = cut_of(rendered, truncation, max_tokens)
    places = kept_places(rendered, truncation, max_tokens)
    assert places == sorted(set(places))
    assert weights_of(once) == rendered.token_weights()[places].tolist()
    twice = RULES[truncation](once.turns, len(places), max_tokens=max_tokens)
    assert twice.take(np.array(places)).tolist() == places
    assert twice.turns.tolist() == once.turns.tolist()


@settings(max_examples=25, deadline=None)
@given(CHATS)
@example([("user", 9), ("assistant", 9), ("tool", 1), ("assistant", 1)])
@example(
    [("user", 9), ("assistant", 1), ("assistant", 9), ("user", 1), ("tool", 1), ("assistant", 1)]
)
def test_a_tool_result_never_stays_without_its_call(turns: list[tuple[str, int]]) -> None:
    rendered = rendered_of(turns)
    where = extents(rendered)
    for max_tokens in range(1, len(rendered.ids) + 1):
        kept = set(kept_places(rendered, "whole_turns", max_tokens))
        for number, (role, _) in enumerate(turns):
            callers = [n for n in range(number) if turns[n][0] == "assistant"]
            if role == "tool" and callers and kept.intersection(where[number]):
                assert kept.issuperset(where[callers[-1]])


def test_a_call_is_dropped_together_with_its_result() -> None:
    turns = [("user", 1), ("assistant", 1), ("tool", 9), ("assistant", 1), ("user", 1)]
    turns += [("assistant", 2)]
    rendered = rendered_of(turns)
    where = extents(rendered)
    for max_tokens in range(12, len(rendered.ids)):
        kept = set(kept_places(rendered, "whole_turns", max_tokens))
        assert (where[1].start in kept) == (where[2].start in kept)


def test_a_long_chain_of_calls_keeps_its_last_links_without_the_question() -> None:
    turns = [("system", 1), ("user", 50), ("assistant", 1), ("tool", 1), ("assistant", 1)]
    rendered = rendered_of(turns)
    where = extents(rendered)
    kept = kept_places(rendered, "whole_turns", 20)
    assert kept == [0, *where[0], *where[2], *where[3], *where[4]]


def test_an_answer_without_its_question_is_only_kept_when_no_question_fits() -> None:
    turns = [("user", 2), ("assistant", 2), ("user", 2), ("assistant", 2)]
    rendered = rendered_of(turns)
    kept = kept_places(rendered, "whole_turns", len(rendered.ids) - 1)
    assert kept == [0, *extents(rendered)[2], *extents(rendered)[3]]


def test_after_a_hard_cut_what_survives_of_a_huge_answer_is_still_trained() -> None:
    rendered = rendered_of([("user", 3), ("assistant", 500)])
    shorter = cut_of(rendered, "whole_turns", 20)
    assert shorter.take(rendered.ids).tolist() == [*[ord("x")] * 19, END]
    assert weights_of(shorter) == [1.0] * 20
    assert shorter.turns["head"].tolist() == [0]


def test_what_follows_the_last_answer_is_cut_before_the_answer_is() -> None:
    rendered = rendered_of([("user", 1), ("assistant", 3), ("user", 99)])
    shorter = cut_of(rendered, "whole_turns", 12)
    assert (
        TOKENIZER.decode(shorter.take(rendered.ids)) == "<begin><assistant>xxx<end><tail><user>xxxx"
    )
    assert shorter.turns["role"].tolist() == [ROLE_CODES["assistant"], ROLE_CODES["user"]]


def test_a_cut_through_an_answer_invents_no_end_for_it() -> None:
    rendered = rendered_of([("user", 1), ("assistant", 9)])
    shorter = cut_to(rendered.turns, (0, 9))
    kept = TOKENIZER.decode(shorter.take(rendered.ids))
    assert kept == "<begin><user>x<end><tail><assistant>xxx"
    assert weights_of(shorter) == [0.0] * 6 + [1.0] * 3


def test_a_chat_that_fits_is_kept_as_it_is() -> None:
    rendered = rendered_of([("user", 1), ("assistant", 1)])
    for truncation in RULES:
        cut = cut_of(rendered, truncation, len(rendered.ids))
        assert cut.pieces == ((0, len(rendered.ids)),)
        assert cut.turns.tolist() == rendered.turns.tolist()
