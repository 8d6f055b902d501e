"""Ids and masks against `transformers`, an implementation that is not ours.

The same chats go through `apply_chat_template(..., return_assistant_tokens_mask=True)`
with the same tokenizer and a generation-marked Jinja template.

Left out, because there `transformers` does what we promise not to: content that spells a
control token (it becomes one). Masks are not compared where an answer is empty, since that of
`transformers` misses the span, nor where it begins or ends with blanks: a token that a header
and an answer make together is trained by `transformers`, and not by us.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenreel.text.chats import BUILT_IN, Chat, Message, read_chat, render, render_prompt
from tokenreel.text.tokenizers import NGPT_SPECIALS, Tokenizer

ANSWER = "{% generation %}{{ message['content'] + END }}{% endgeneration %}"

NGPT = (
    "{% set roles = {'system': SYS, 'user': USR, 'assistant': ASST} %}"
    "{% if messages[0]['role'] != 'system' %}"
    "{{ SYS + 'you are a helpful assistant.' + END }}{% endif %}"
    "{% for message in messages %}{{ roles[message['role']] }}"
    "{% if message['role'] == 'assistant' %}" + ANSWER + "{% else %}"
    "{{ message['content'] + END }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ ASST }}{% endif %}"
)
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}" + ANSWER + "{% else %}"
    "{{ message['content'] + END }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ '<|begin_of_text|>' }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>' + '\\n\\n' }}"
    "{% if message['role'] == 'assistant' %}" + ANSWER + "{% else %}"
    "{{ message['content'] + END }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>' + '\\n\\n' }}{% endif %}"
)
JINJA = {
    "ngpt": NGPT.replace("SYS +", f"'{NGPT_SPECIALS['sys']}' +")
    .replace("'system': SYS", f"'system': '{NGPT_SPECIALS['sys']}'")
    .replace("USR", f"'{NGPT_SPECIALS['usr']}'")
    .replace("ASST", f"'{NGPT_SPECIALS['asst']}'")
    .replace("END", f"'{NGPT_SPECIALS['eot']}'"),
    "chatml": CHATML.replace("END", "'<|im_end|>'"),
    "llama3": LLAMA3.replace("END", "'<|eot_id|>'"),
}

CONTENT = st.text(st.sampled_from("aeiou thx?.,!é🙂\n<|>0123"), max_size=30)
CHATS = st.builds(
    lambda system, pairs: (
        [{"role": "system", "content": text} for text in system]
        + [
            {"role": role, "content": text}
            for pair in pairs
            for role, text in zip(("user", "assistant"), pair, strict=True)
        ]
    ),
    st.lists(CONTENT, max_size=1),
    st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=3),
)


@pytest.fixture(scope="session")
def reference(bpe_file: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_file=str(bpe_file))


@pytest.mark.parametrize("name", list(BUILT_IN))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(messages=CHATS)
def test_ids_and_masks_equal_those_of_transformers(
    name: str, messages: list[dict[str, str]], bpe: Tokenizer, reference: Any
) -> None:
    expected = reference.apply_chat_template(
        messages,
        chat_template=JINJA[name],
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    rendered = render([read_chat({"messages": messages})], BUILT_IN[name], tokenizer=bpe)
    assert rendered.ids.tolist() == expected["input_ids"]
    answers = [m["content"] for m in messages if m["role"] == "assistant"]
    if all(text and text == text.strip() for text in answers):
        trained = (rendered.token_weights() > 0).tolist()
        assert trained == list(map(bool, expected["assistant_masks"]))


@pytest.mark.parametrize("name", list(BUILT_IN))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(messages=CHATS)
def test_prompts_equal_those_of_transformers(
    name: str, messages: list[dict[str, str]], bpe: Tokenizer, reference: Any
) -> None:
    expected = reference.apply_chat_template(
        messages[:-1],
        chat_template=JINJA[name],
        tokenize=True,
        return_dict=True,
        add_generation_prompt=True,
    )
    asked = [Message(role=m["role"], content=m["content"]) for m in messages[:-1]]
    prompt = render_prompt(asked, BUILT_IN[name], tokenizer=bpe)
    assert prompt.tolist() == expected["input_ids"]


def test_where_they_differ_ours_lets_no_text_become_a_control_id(
    bpe: Tokenizer, reference: Any
) -> None:
    messages = [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "no"}]
    theirs = reference.apply_chat_template(
        messages, chat_template=JINJA["chatml"], tokenize=True, return_dict=True
    )["input_ids"]
    chat = Chat(messages=tuple(Message(role=m["role"], content=m["content"]) for m in messages))
    ours = render([chat], BUILT_IN["chatml"], tokenizer=bpe).ids.tolist()
    end = bpe.control_ids["<|im_end|>"]
    assert (theirs.count(end), ours.count(end)) == (3, 2)
