"""Fault 26, chats: nothing said, nothing trained, longer than a row; counted, or an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tokenreel.errors import EmptyError, InputError
from tokenreel.text.chats import (
    NGPT,
    Chat,
    Message,
    Rendered,
    drop_untrained,
    read_chat,
    render,
    truncate,
)
from tokenreel.text.provenance import Provenance
from tokenreel.text.tokenizers import NGPT_SPECIALS, byte_tokenizer

TOKENIZER = byte_tokenizer(tuple(NGPT_SPECIALS.values()))
END = TOKENIZER.control_ids[NGPT_SPECIALS["eot"]]


def rendered(*chats: list[tuple[str, str]], policy: Any = "assistant") -> Rendered:
    return render(
        [
            Chat(messages=tuple(Message(role=role, content=text) for role, text in chat))
            for chat in chats
        ],
        NGPT,
        tokenizer=TOKENIZER,
        policy=policy,
    )


def balance(chats: Rendered) -> None:
    ledger = chats.ledger
    accounted = ledger.trained + ledger.masked + ledger.truncated + ledger.dropped
    assert accounted.tolist() == ledger.total.tolist()
    assert (ledger.trained + ledger.masked).sum() == len(chats.ids)
    assert ledger.trained.sum() == np.count_nonzero(chats.token_weights())


ASKED = [("user", "q")]
ANSWERED = [("user", "q"), ("assistant", "a")]
SILENT = [("user", ""), ("assistant", "")]


def test_a_chat_without_messages_is_an_error_with_its_place() -> None:
    place = Provenance(file="chats.jsonl", row=41)
    with pytest.raises(InputError, match=r"^chats\.jsonl:42: a chat without messages"):
        read_chat({"messages": []}, place)
    with pytest.raises(InputError, match=r"^chats\.jsonl:42: a chat without messages"):
        render([Chat(messages=(), provenance=place)], NGPT, tokenizer=TOKENIZER)


def test_empty_contents_render_and_train_the_end_of_turn_alone() -> None:
    chats = rendered(SILENT)
    assert chats.ids[chats.token_weights() > 0].tolist() == [END]
    balance(drop_untrained(chats))


def test_a_chat_with_nothing_trained_is_dropped_and_counted() -> None:
    chats = rendered(ANSWERED, ASKED, ANSWERED)
    kept = drop_untrained(chats)
    assert kept.numbers.tolist() == [0, 2]
    assert kept.ledger.dropped.tolist() == [0, len(chats.chat_ids(1)), 0]
    assert kept.ledger.totals()["chats_dropped"] == 1
    assert kept.chat_ids(1).tolist() == chats.chat_ids(2).tolist()
    assert kept.chat_turns(1).tolist() == chats.chat_turns(2).tolist()
    balance(kept)


def test_nothing_is_copied_when_nothing_is_dropped() -> None:
    chats = rendered(ANSWERED)
    assert drop_untrained(chats) is chats


def test_everything_masked_is_an_error_and_not_an_empty_result() -> None:
    with pytest.raises(EmptyError, match=r"nothing is trained in any of 2 chats .*loss policy"):
        drop_untrained(rendered(ASKED, ASKED))
    with pytest.raises(EmptyError, match="nothing is trained in any of 1 chats"):
        drop_untrained(rendered(ANSWERED, policy={}))


def test_no_chats_at_all_are_an_error() -> None:
    with pytest.raises(EmptyError, match="nothing is trained in any of 0 chats"):
        drop_untrained(rendered())


def test_a_first_token_is_no_target_so_a_chat_of_one_trained_token_is_dropped() -> None:
    cut = truncate(rendered(SILENT, ANSWERED), max_tokens=1)
    assert cut.ids.tolist() == [END, END]
    with pytest.raises(EmptyError):
        drop_untrained(cut)


def test_a_chat_longer_than_a_row_is_cut_and_counted_and_may_be_dropped_after() -> None:
    long = [("user", "q" * 50), ("assistant", "a" * 50)]
    cut = truncate(rendered(long, [("user", "q" * 99)], ANSWERED), max_tokens=40)
    balance(cut)
    kept = drop_untrained(cut)
    balance(kept)
    assert kept.numbers.tolist() == [0, 2]
    again = truncate(kept, max_tokens=5)
    balance(again)
    assert again.ledger.truncated[1] == kept.ledger.truncated[1] > 0
    assert again.ledger.total.tolist() == cut.ledger.total.tolist()
