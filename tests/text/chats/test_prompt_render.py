"""Prompts: ids up to where the answer begins, the rest of the record as it was, nothing trained."""

from __future__ import annotations

from typing import Any

import pytest

from tokenreel.errors import InputError
from tokenreel.text.chats import CHATML, LLAMA3, NGPT, Template, render_prompt
from tokenreel.text.chats.model_template import model_template
from tokenreel.text.chats.prompt_render import render_prompts
from tokenreel.text.chats.prompt_shapes import read_prompt
from tokenreel.text.provenance import Provenance
from tokenreel.text.tokenizers import Tokenizer

USER = {"role": "user", "content": "2+2?"}
SYSTEM = {"role": "system", "content": "be brief"}
ANSWER = {"role": "assistant", "content": "4"}
RECORDS: list[dict[str, Any]] = [
    {"prompt": "2+2?", "answer": 4},
    {"prompt": [SYSTEM, USER], "answer": {"value": 4.5, "units": [None]}},
    {"messages": [USER, ANSWER, USER], "id": 7},
    {"text": "2+2?"},
    {"prompt": "2+2?", "system": "be brief", "answer": 4},
]
PLACE = Provenance(file="math.jsonl", row=6)


@pytest.mark.parametrize("template", [CHATML, LLAMA3, NGPT], ids=lambda template: template.name)
def test_a_prompt_is_what_render_prompt_gives_for_its_messages(
    template: Template, byte: Tokenizer
) -> None:
    prompts = [read_prompt(record, PLACE) for record in RECORDS]
    rendered = render_prompts(prompts, template, tokenizer=byte)
    for number, prompt in enumerate(prompts):
        expected = render_prompt(prompt.messages, template, tokenizer=byte)
        assert rendered.chat_ids(number).tolist() == expected.tolist()
    assert not rendered.token_weights().any()


def test_what_is_left_of_the_record_stays_as_it_is() -> None:
    rests = [dict(read_prompt(record, PLACE).rest) for record in RECORDS]
    assert rests == [
        {"answer": 4},
        {"answer": {"value": 4.5, "units": [None]}},
        {"id": 7},
        {},
        {"answer": 4},
    ]


def test_the_system_text_is_part_of_a_prompt_only_with_a_template() -> None:
    with_template = read_prompt(RECORDS[4], PLACE)
    assert [message.role for message in with_template.messages] == ["system", "user"]
    plain = read_prompt(RECORDS[4], PLACE, has_template=False)
    assert [message.role for message in plain.messages] == ["user"]
    assert plain.rest == {"system": "be brief", "answer": 4}


def test_a_plain_prompt_is_its_text_and_nothing_else(byte: Tokenizer) -> None:
    prompts = [read_prompt({"prompt": text}, has_template=False) for text in ("one", "zwei ä")]
    rendered = render_prompts(prompts, None, tokenizer=byte)
    assert [byte.decode(rendered.chat_ids(number)) for number in range(2)] == ["one", "zwei ä"]
    assert rendered.turns["role"].tolist() == [1, 1]
    assert not rendered.token_weights().any()


@pytest.mark.parametrize(
    ("record", "key", "message"),
    [
        (
            {"answer": 4},
            None,
            r"math\.jsonl:7: no prompt \(expected the key 'prompt' or 'messages'",
        ),
        ({"prompt": None}, None, r"no prompt .*text_key"),
        ({"prompt": "x"}, "question", r"no prompt \(expected the key 'question', got prompt"),
        ({"prompt": " \n"}, None, "field 'prompt': an empty prompt"),
        ({"prompt": []}, None, "field 'prompt': an empty prompt"),
        ({"prompt": 7}, None, "field 'prompt': not a prompt.*got a number"),
        ({"prompt": [{"role": "judge", "content": ""}]}, None, "message 1.*no known role"),
        ([1], None, "not a prompt"),
    ],
)
def test_a_record_without_a_prompt_is_refused_with_its_place(
    record: Any, key: str | None, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_prompt(record, PLACE, key=key)


def test_messages_without_a_template_are_refused() -> None:
    with pytest.raises(InputError, match=r"needs a chat template.*chat=True"):
        read_prompt({"prompt": [USER]}, PLACE, has_template=False)


def test_a_prompt_of_no_tokens_is_refused(byte: Tokenizer) -> None:
    """Which a text that is not empty can be to a tokenizer that strips."""

    class Stripping:
        def encode_batch(self, texts: list[str]) -> Any:
            return byte.encode_batch(["" for _ in texts])

    with pytest.raises(InputError, match=r"math\.jsonl:7: a prompt without a token"):
        render_prompts([read_prompt({"prompt": "\u200b"}, PLACE)], None, tokenizer=Stripping())  # type: ignore[arg-type]


JINJA = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_models_own_template_asks_with_its_generation_prompt(byte: Tokenizer) -> None:
    template = model_template(JINJA)
    prompts = [read_prompt({"prompt": [SYSTEM, USER]}), read_prompt({"prompt": "2+2?"})]
    own = render_prompts(prompts, template, tokenizer=byte)
    expected = render_prompts(prompts, CHATML, tokenizer=byte)
    assert own.ids.tolist() == expected.ids.tolist()
    assert not own.token_weights().any()


def test_what_a_template_refuses_is_told_with_the_place_of_the_record(byte: Tokenizer) -> None:
    asked = read_prompt({"prompt": [{"role": "tool", "content": "x"}]}, PLACE)
    with pytest.raises(InputError, match=r"^math\.jsonl:7: .*no such role"):
        render_prompts([asked], NGPT, tokenizer=byte)
