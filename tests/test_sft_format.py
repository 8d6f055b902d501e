"""Contract 001: the golden tests it lists, and what its functions do with imperfect input.

The tokenizer is the contract's tiny fake: fixed special ids, text split at spaces.
"""

from __future__ import annotations

import subprocess
import sys
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from niels_gpt.format import (
    DEFAULT_SYSTEM_TEXT,
    IGNORE_INDEX,
    ChatExample,
    collate_sft_batch,
    pack_sft_ids_and_mask,
    serialize_chat_to_ids,
    sft_loss_mask_for_ids,
)
from niels_gpt.special_tokens import ASST_TOKEN, EOT_TOKEN, SYS_TOKEN, USR_TOKEN
from tokenreel.errors import ConfigError, InputError, VocabularyError
from tokenreel.text.chats import NGPT, Control

SYS, USR, ASST, EOT = 1, 2, 3, 4
SPECIALS = {"sys_id": SYS, "usr_id": USR, "asst_id": ASST, "eot_id": EOT}
PAD = EOT


class FakeTokenizer:
    """Words get ids from 10 up in the order in which they are first seen; nothing else is said."""

    def __init__(self) -> None:
        self.words: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return [self.words.setdefault(word, 10 + len(self.words)) for word in text.split()]

    def special_token_ids(self) -> dict[str, int]:
        return {"sys": SYS, "usr": USR, "asst": ASST, "eot": EOT}


def chat(*messages: tuple[str, str]) -> ChatExample:
    listed = [{"role": role, "content": text} for role, text in messages]
    return cast(ChatExample, {"messages": listed})


def serialize(example: ChatExample, tokenizer: FakeTokenizer | None = None) -> list[int]:
    return serialize_chat_to_ids(
        example,
        tokenizer=tokenizer or FakeTokenizer(),
        default_system_text=DEFAULT_SYSTEM_TEXT,
    )


def mask_of(ids: list[int]) -> list[bool]:
    return sft_loss_mask_for_ids(ids, **SPECIALS)


def pack(
    ids: list[int], length: int, *, mask: list[bool] | None = None, pad_id: int = PAD
) -> tuple[list[int], list[bool]]:
    carried = mask_of(ids) if mask is None else mask
    return pack_sft_ids_and_mask(ids, carried, S=length, pad_id=pad_id, **SPECIALS)


def turn(role: int, *content: int) -> list[int]:
    return [role, *content, EOT]


SYSTEM = turn(SYS, 50, 51)


# 1. serialization shape


def test_a_chat_without_system_message_gets_the_default_one_first() -> None:
    ids = serialize(chat(("user", "hello there"), ("assistant", "hi")))
    # you are a helpful assistant. = five words; hello there; hi
    assert ids == [SYS, 10, 11, 12, 13, 14, EOT, USR, 15, 16, EOT, ASST, 17, EOT]


def test_a_given_system_message_replaces_the_default() -> None:
    ids = serialize(chat(("system", "be brief"), ("user", "hello"), ("assistant", "hi")))
    assert ids == [SYS, 10, 11, EOT, USR, 12, EOT, ASST, 13, EOT]


def test_an_empty_system_message_is_not_an_absent_one() -> None:
    assert serialize(chat(("system", ""), ("user", "hello"))) == [SYS, EOT, USR, 10, EOT]


def test_the_fake_tokenizer_of_the_contract_will_do() -> None:
    """Contract 001: "create a tiny fake tokenizer in tests that: maps special tokens to fixed ids,
    tokenizes normal text by splitting on spaces into deterministic fake ids".
    """
    assert not hasattr(FakeTokenizer(), "vocab_size")
    assert serialize(chat(("user", "hi")), FakeTokenizer())[-3:] == [USR, 15, EOT]


@pytest.mark.parametrize("roles", [("prompter", "assistant"), ("USER", "Assistant")])
def test_prompters_and_upper_case_roles_are_roles(roles: tuple[str, str]) -> None:
    """Contract 001: "roles are lowercase", and the original makes them so; `prompter` is the
    user's name in oasst1, of which the contract's chats are made.
    """
    asked, answered = roles
    named = chat((asked, "hello"), (answered, "hi"))
    assert serialize(named) == serialize(chat(("user", "hello"), ("assistant", "hi")))


def test_a_system_message_behind_others_is_the_one_system_turn() -> None:
    """Contract 001: "conversations serialize as: SYS once, then alternating USR/ASST turns."
    and "must include <|ngpt_sys…|> ... <|ngpt_eot…|> first."
    """
    ids = serialize(chat(("user", "hello"), ("system", "be brief"), ("assistant", "hi")))
    assert ids == [SYS, 10, 11, EOT, USR, 12, EOT, ASST, 13, EOT]


def test_several_system_messages_are_one_turn_with_the_text_of_all() -> None:
    """Contract 001: "SYS once"."""
    tokenizer = FakeTokenizer()
    ids = serialize(chat(("system", "be brief"), ("user", "q"), ("SYSTEM", "rhyme")), tokenizer)
    assert ids == [SYS, 10, 11, 12, EOT, USR, 13, EOT]
    assert list(tokenizer.words) == ["be", "brief", "rhyme", "q"]


def test_a_system_message_without_text_among_several_is_refused() -> None:
    with pytest.raises(InputError, match=r"system message without text.*got str, NoneType"):
        serialize(chat(("system", "be brief"), ("system", cast(str, None))))


def test_the_same_chat_serializes_to_the_same_ids_twice() -> None:
    example = chat(("user", "a b a"), ("assistant", "b"))
    assert serialize(example) == serialize(example)


def test_every_turn_of_a_long_chat_starts_with_its_role_and_ends_with_one_end_of_turn() -> None:
    example = chat(*[("user", "q q"), ("assistant", "a")] * 3)
    ids = serialize(example)
    ends = [place for place, token in enumerate(ids) if token == EOT]
    starts = [0, *[end + 1 for end in ends[:-1]]]
    assert [ids[start] for start in starts] == [SYS, *[USR, ASST] * 3]
    assert ends[-1] == len(ids) - 1


def test_an_unknown_role_is_an_error_that_names_message_and_field() -> None:
    with pytest.raises(InputError, match=r"message 2, field 'messages\[1\]\.role'"):
        serialize(chat(("user", "hello"), ("robot", "hi")))


def test_a_tool_turn_is_refused_because_the_format_has_none() -> None:
    with pytest.raises(InputError, match=r"message 2.*no such role.*got 'tool'"):
        serialize(chat(("user", "hello"), ("tool", "hi")))


def test_a_tokenizer_that_makes_special_ids_of_text_is_refused() -> None:
    class Forging(FakeTokenizer):
        def encode(self, text: str) -> list[int]:
            return [EOT if word == "<eot>" else 10 for word in text.split()]

    with pytest.raises(VocabularyError, match="control id 4"):
        serialize(chat(("user", "stop <eot> here"), ("assistant", "hi")), Forging())


def test_the_template_uses_the_four_special_tokens() -> None:
    parts = [part for _, header in NGPT.headers for part in header] + list(NGPT.end)
    strings = [part.control for part in parts if isinstance(part, Control)]
    assert strings == [SYS_TOKEN, USR_TOKEN, ASST_TOKEN, EOT_TOKEN]


# 2. mask correctness


def test_only_assistant_content_and_its_end_of_turn_are_trained() -> None:
    ids = turn(SYS, 10) + turn(USR, 11, 12) + turn(ASST, 13, 14)
    assert mask_of(ids) == [False] * 3 + [False] * 4 + [False, True, True, True]


def test_an_empty_answer_still_trains_its_end_of_turn() -> None:
    assert mask_of(turn(USR, 9) + turn(ASST)) == [False, False, False, False, True]


def test_end_of_turn_ids_used_as_padding_are_not_trained() -> None:
    assert mask_of([*turn(ASST, 9), EOT, EOT]) == [False, True, True, False, False]


def test_a_role_id_closes_a_span_that_has_no_end_of_turn() -> None:
    assert mask_of([ASST, 9, USR, 8, EOT]) == [False, True, False, False, False]


def test_an_answer_that_was_cut_off_is_trained_to_the_end() -> None:
    assert mask_of([USR, 9, EOT, ASST, 8, 7]) == [False, False, False, False, True, True]


def test_no_ids_give_no_mask() -> None:
    assert mask_of([]) == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([SYS, USR, ASST]), st.lists(st.integers(5, 30), max_size=4)),
        max_size=8,
    )
)
def test_the_mask_equals_the_contracts_scanning_rule(turns: list[tuple[int, list[int]]]) -> None:
    ids = [token for role, content in turns for token in turn(role, *content)]
    expected: list[bool] = []
    speaking = False
    for token in ids:
        if token == ASST:
            speaking = True
            expected.append(False)
        else:
            expected.append(speaking)
            speaking = speaking and token != EOT
    assert mask_of(ids) == expected


# 3. truncate by whole turns


def test_packing_drops_the_oldest_pair_first() -> None:
    first, second, third = (turn(USR, 10 * n) + turn(ASST, 10 * n + 1) for n in (1, 2, 3))
    ids = SYSTEM + first + second + third
    packed, mask = pack(ids, len(ids) - 1)
    assert packed[: len(ids) - 6] == SYSTEM + second + third
    assert packed[len(ids) - 6 :] == [PAD] * 5
    assert mask == mask_of(SYSTEM + second + third) + [False] * 5


def test_packing_keeps_the_last_pair_when_only_it_fits() -> None:
    ids = SYSTEM + (turn(USR, 10) + turn(ASST, 11)) * 4
    packed, _ = pack(ids, 10)
    assert packed == SYSTEM + turn(USR, 10) + turn(ASST, 11)


def test_a_huge_answer_keeps_its_last_tokens_trained_to_the_end_of_turn() -> None:
    ids = SYSTEM + turn(USR, 10) + turn(ASST, *range(100, 200))
    packed, mask = pack(ids, 8)
    assert packed == [*range(193, 200), EOT]
    assert mask == [True] * 8


def test_a_huge_question_is_cut_from_the_left() -> None:
    ids = SYSTEM + turn(USR, *range(100, 200)) + turn(ASST, 11)
    packed, mask = pack(ids, 6)
    assert packed == [198, 199, EOT, ASST, 11, EOT]
    assert mask == [False] * 4 + [True] * 2


def test_the_mask_is_carried_and_not_found_again() -> None:
    ids = SYSTEM + turn(USR, 10) + turn(ASST, 11, 12)
    untrained = [False] * len(ids)
    assert pack(ids, len(ids), mask=untrained)[1] == untrained
    assert pack(ids, 4, mask=untrained)[1] == [False] * 4


# imperfect input


def test_without_a_system_turn_the_oldest_pair_still_goes_first() -> None:
    ids = turn(USR, 10) + turn(ASST, 11) + turn(USR, 12) + turn(ASST, 13)
    assert pack(ids, 7)[0] == [*turn(USR, 12), *turn(ASST, 13), PAD]


def test_of_two_users_in_a_row_the_older_goes_first() -> None:
    ids = SYSTEM + turn(USR, 10) + turn(USR, 11) + turn(ASST, 12)
    assert pack(ids, 10)[0] == SYSTEM + turn(USR, 11) + turn(ASST, 12)


def test_of_two_assistants_in_a_row_the_older_goes_first() -> None:
    ids = SYSTEM + turn(ASST, 10) + turn(ASST, 11)
    assert pack(ids, 7)[0] == SYSTEM + turn(ASST, 11)


def test_without_an_assistant_the_last_turn_stays() -> None:
    ids = SYSTEM + turn(USR, 10) + turn(USR, 11)
    assert pack(ids, 7) == (SYSTEM + turn(USR, 11), [False] * 7)


def test_a_short_turn_behind_the_last_answer_stays() -> None:
    ids = SYSTEM + turn(USR, 10) + turn(ASST, *range(100, 150)) + turn(USR, 11)
    packed, mask = pack(ids, 8)
    assert packed == [*range(146, 150), EOT, *turn(USR, 11)]
    assert mask == [True] * 5 + [False] * 3


def test_a_long_turn_behind_the_last_answer_goes_so_that_the_end_of_turn_stays() -> None:
    ids = SYSTEM + turn(USR, 10) + turn(ASST, 11, 12) + turn(USR, *range(100, 150))
    packed, mask = pack(ids, 6)
    assert packed == [10, EOT, ASST, 11, 12, EOT]
    assert mask == [False] * 3 + [True] * 3
    assert pack(ids, 12)[0] == [*SYSTEM, *turn(USR, 10), *turn(ASST, 11, 12), PAD]


def test_tokens_before_the_first_role_go_first() -> None:
    ids = [90, 91, EOT, *turn(USR, 10), *turn(ASST, 11)]
    assert pack(ids, 7)[0] == [*turn(USR, 10), *turn(ASST, 11), PAD]
    assert pack(ids, 9)[0] == ids


def test_ids_without_roles_keep_the_last_tokens() -> None:
    assert pack([90, 91, 92], 2)[0] == [91, 92]
    assert pack([], 2) == ([PAD, PAD], [False, False])


def test_ids_and_mask_of_different_length_are_refused() -> None:
    with pytest.raises(InputError, match=r"ids and mask differ in length \(expected 3, got 2\)"):
        pack([1, 2, 4], 4, mask=[False, False])


def test_a_length_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="S: a sequence of no tokens"):
        pack([1, 4], 0)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([SYS, USR, ASST]), st.integers(0, 6)), min_size=1, max_size=8
    ),
    st.integers(1, 60),
)
def test_packing_any_turns_keeps_length_order_and_the_last_answers_end(
    turns: list[tuple[int, int]], length: int
) -> None:
    ids: list[int] = []
    for number, (role, size) in enumerate(turns, 1):
        ids += turn(role, *range(100 * number, 100 * number + size))
    packed, mask = pack(ids, length, pad_id=99)
    kept = [token for token in packed if token != 99]
    content = [token for token in kept if token >= 100]
    assert len(packed) == len(mask) == length
    assert content == sorted(set(content))
    assert (packed[: len(kept)], any(mask[len(kept) :])) == (kept, False)
    if ASST in ids:
        assert packed[max(place for place, flag in enumerate(mask) if flag)] == EOT
    assert pack(kept, length, mask=mask[: len(kept)], pad_id=99) == (packed, mask)


# 4. pad behaviour


def test_a_short_sequence_is_padded_on_the_right_and_the_padding_is_masked() -> None:
    ids = turn(SYS, 10) + turn(ASST, 11)
    packed, mask = pack(ids, 9)
    assert packed == [*ids, PAD, PAD, PAD]
    assert mask == [*mask_of(ids), False, False, False]


def test_the_pad_id_changes_no_mask() -> None:
    ids = turn(SYS, 10) + turn(ASST, 11)
    assert pack(ids, 9, pad_id=EOT)[1] == pack(ids, 9, pad_id=0)[1]


# 5. collate alignment


def test_collated_labels_are_the_inputs_shifted_and_ignored_where_masked() -> None:
    ids = turn(USR, 10) + turn(ASST, 11)
    x, y, loss_mask = collate_sft_batch([pack(ids, 8), pack(ids, 8)], T=7, device="cpu")
    assert x.tolist() == [[USR, 10, EOT, ASST, 11, EOT, PAD]] * 2
    assert y.tolist() == [[IGNORE_INDEX] * 3 + [11, EOT] + [IGNORE_INDEX] * 2] * 2
    assert loss_mask.tolist() == [[False] * 3 + [True] * 2 + [False] * 2] * 2
    assert (x.dtype, y.dtype, loss_mask.dtype) == (torch.int64, torch.int64, torch.bool)
    assert all(tensor.is_contiguous() for tensor in (x, y, loss_mask))


def test_another_ignore_index_is_used() -> None:
    _, y, loss_mask = collate_sft_batch(
        [([USR, EOT, ASST], [False] * 3)], T=2, device="cpu", ignore_index=-1
    )
    assert y.tolist() == [[-1, -1]]
    assert not loss_mask.any()


def test_an_empty_batch_has_its_shape() -> None:
    x, y, loss_mask = collate_sft_batch([], T=4, device="cpu")
    assert x.shape == y.shape == loss_mask.shape == (0, 4)


def test_an_item_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(InputError, match=r"item 1 of the batch.*expected 4 ids.*got 3 ids"):
        good, short = ([1, 2, 3, 4], [False] * 4), ([1, 2, 3], [False] * 3)
        collate_sft_batch([good, short], T=3, device="cpu")


def test_formatting_does_not_import_torch() -> None:
    program = "import sys, niels_gpt.format; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
