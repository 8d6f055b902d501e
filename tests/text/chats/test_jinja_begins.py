"""Where answers begin and end in templates of every shape, each chat as if it were alone.

⟦ and ⟧ stand around what is trained.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.text.chats.jinja_shapes import CONTROLS, SHAPES, SPECIAL, marked, plain
from tests.text.chats.test_jinja_ids import CALLED

from tokenreel.errors import InputError
from tokenreel.text.chats import by_answer, read_chat, render
from tokenreel.text.chats.jinja_render import STRAYS
from tokenreel.text.chats.model_template import model_template
from tokenreel.text.tokenizers import byte_tokenizer

BYTES = byte_tokenizer(CONTROLS)
HEADER = "{{ '<|im_start|>' + m.role + '\\n' }}"
PROMPT = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"


def looped(body: str, *, before: str = "", after: str = PROMPT) -> str:
    return before + "{% for m in messages %}" + body + "{% endfor %}" + after


CHATML = looped(HEADER + "{{ m.content + '<|im_end|>\\n' }}")
# The header of a message is written by the pass of the message before.
NEXT_HEADER = looped(
    "{{ m.content + '<|im_end|>\\n' }}{% if not loop.last %}"
    "{{ '<|im_start|>' + messages[loop.index].role + '\\n' }}{% endif %}",
    before="{{ '<|im_start|>' + messages[0].role + '\\n' }}",
)
# The end of a message is written by the pass of the next, if that has another role.
NEXT_END = looped(
    "{% if m.role != ns.role %}{% if ns.role %}{{ '<|im_end|>\\n' }}{% endif %}"
    + HEADER
    + "{% endif %}{{ m.content }}{% set ns.role = m.role %}",
    before="{% set ns = namespace(role='') %}",
    after="{{ '<|im_end|>\\n' }}" + PROMPT,
)
SECRET = looped(
    HEADER + "{{ 'DROPPED' if 'secret' in m.content and not loop.last else m.content }}"
    "{{ '<|im_end|>\\n' }}"
)
CUT = looped(
    HEADER + "{{ m.content[:5] if m.content|length > 5 and not loop.last else m.content }}"
    "{{ '<|im_end|>\\n' }}"
)
THINKS = "'THINK:' if 'brief' not in messages[{}].content and messages[{}].content|length > 3"
PROMPT_BY_WORD = looped(
    HEADER
    + "{% if m.role == 'assistant' %}{{ "
    + THINKS.replace("{}", "loop.index0 - 1")
    + " }}{% endif %}{{ m.content + '<|im_end|>\\n' }}",
    after="{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{{ "
    + THINKS.replace("{}", "-1")
    + " }}{% endif %}",
)
FIRST_IS_OTHER = looped(
    "{{ '<|im_start|>' + ('FIRST ' if loop.index0 < 2 else '') + m.role + '\\n' }}"
    "{{ m.content + '<|im_end|>\\n' }}",
    after="{% if add_generation_prompt %}{{ '<|im_start|>' }}"
    "{{ 'FIRST ' if messages|length < 2 }}{{ 'assistant\\n' }}{% endif %}",
)
LOOKING = {
    "secret": SECRET,
    "cut": CUT,
    "prompt by word": PROMPT_BY_WORD,
    "first is other": FIRST_IS_OTHER,
    "next header": NEXT_HEADER,
    "next end": NEXT_END,
}


def said(*texts: str, first: str = "user") -> list[dict[str, str]]:
    roles = ("user", "assistant") if first == "user" else ("assistant", "user")
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]


def shown(text: str, messages: Any, *, policy: str = "assistant") -> list[str]:
    """Return each document of a chat with ⟦ and ⟧ around what is trained, and what is counted."""
    chats = by_answer([read_chat({"messages": messages})], policy=policy)
    template = model_template(text, special_tokens=SPECIAL)
    made = render(chats, template, tokenizer=BYTES, policy=policy)
    weights, documents = (made.token_weights() > 0).tolist(), []
    for number in range(len(made)):
        start, stop = made.offsets[number : number + 2]
        drawn, is_on = b"", False
        for token, is_trained in zip(made.ids[start:stop], weights[start:stop], strict=True):
            if is_trained != is_on:
                drawn += "⟦".encode() if is_trained else "⟧".encode()
                is_on = is_trained
            drawn += BYTES.decode([token]).encode()
        documents.append(drawn.decode() + "⟧" * is_on)
    return documents + [word for words in made.unrendered for word in words]


def chatml(*texts: str, first: str = "user") -> str:
    """Return a chat as CHATML writes it, with what is to be trained marked."""
    return "".join(
        f"<|im_start|>{m['role']}\n"
        + (
            f"⟦{m['content']}<|im_end|>⟧\n"
            if m["role"] == "assistant"
            else f"{m['content']}<|im_end|>\n"
        )
        for m in said(*texts, first=first)
    )


@pytest.mark.parametrize("text", [CHATML, NEXT_HEADER, NEXT_END])
def test_headers_and_ends_belong_to_their_messages_whichever_pass_writes_them(text: str) -> None:
    assert shown(text, said(*"abcdef")) == [chatml(*"abcdef")]


def test_separators_of_words_alone_are_not_trained() -> None:
    text = looped(
        "{{ m.content }}{% if not loop.last %}"
        "{{ '\\nAssistant: ' if messages[loop.index].role == 'assistant' else '\\nUser: ' }}"
        "{% endif %}",
        before="User: ",
        after="{% if add_generation_prompt %}{{ '\\nAssistant: ' }}{% endif %}",
    )
    assert shown(text, said(*"abcd")) == ["User: a\nAssistant: ⟦b⟧\nUser: c\nAssistant: ⟦d⟧"]


@pytest.mark.parametrize(
    ("text", "answer"), [(SECRET, "the secret"), (CUT, "a long answer")], ids=["secret", "cut"]
)
def test_an_answer_that_is_rewritten_for_its_words_is_refused_behind_harmless_ones(
    text: str, answer: str
) -> None:
    harmless = read_chat({"messages": said("a", "b", "c", "d")})
    hurt = read_chat({"messages": said("a", answer, "c", "d")})
    template = model_template(text)
    for chats in ([hurt], [harmless, hurt]):
        with pytest.raises(InputError, match="message 2: the template renders this answer"):
            render(chats, template, tokenizer=BYTES)
    with pytest.raises(InputError, match="message 4: the template renders this answer"):
        shown(text, said("a", "b", "c", answer, "c", "d"))


def test_a_prompt_is_that_of_its_own_question() -> None:
    assert shown(PROMPT_BY_WORD, said("hi brief", "b", "why so", "d")) == [
        "<|im_start|>user\nhi brief<|im_end|>\n<|im_start|>assistant\n⟦b<|im_end|>⟧\n"
        "<|im_start|>user\nwhy so<|im_end|>\n<|im_start|>assistant\nTHINK:⟦d<|im_end|>⟧\n"
    ]


def test_a_prompt_is_that_of_its_own_place() -> None:
    [drawn] = shown(FIRST_IS_OTHER, said(*"abcdef"))
    assert drawn.count("<|im_start|>assistant\n⟦") == 2
    assert drawn.count("<|im_start|>FIRST assistant\n⟦b<|im_end|>⟧") == 1


SHARED = st.lists(
    st.sampled_from(["a", " ", "the secret", "a longer text", "be brief", "<think>x</think>y"]),
    min_size=2,
    max_size=6,
).map(lambda texts: said(*texts))


def alone_or_refused(chat: Any, template: Any) -> Any:
    try:
        made = render([chat], template, tokenizer=BYTES)
    except InputError:
        return None
    return made


@pytest.mark.parametrize("name", [*LOOKING, *SHAPES])
@settings(max_examples=15, deadline=None)
@given(records=st.lists(SHARED | st.just(CALLED), min_size=1, max_size=5))
def test_no_chat_depends_on_those_that_it_is_rendered_with(name: str, records: Any) -> None:
    for text in [LOOKING[name]] if name in LOOKING else [plain(name), marked(name)]:
        template = model_template(text, special_tokens=SPECIAL)
        chats = [read_chat({"messages": messages}) for messages in records]
        alone = [alone_or_refused(chat, template) for chat in chats]
        if any(made is None for made in alone):
            with pytest.raises(InputError):
                render(chats, template, tokenizer=BYTES)
        kept = [chat for chat, made in zip(chats, alone, strict=True) if made is not None]
        together = render(kept, template, tokenizer=BYTES)
        for number, made in enumerate(made for made in alone if made is not None):
            assert together.chat_ids(number).tolist() == made.ids.tolist()
            assert together.chat_turns(number).tolist() == made.turns.tolist()
            assert together.unrendered[number] == made.unrendered[0]


def test_the_header_of_an_answer_that_comes_first_is_not_trained() -> None:
    assert shown(CHATML, said(*"abc", first="assistant")) == [chatml(*"abc", first="assistant")]
    needs_one = "{% if messages[0].role == 'system' %}{{ 'S' }}{% endif %}" + CHATML
    assert shown(needs_one, said(*"abc", first="assistant")) == [chatml(*"abc", first="assistant")]


def test_a_template_without_a_generation_prompt_trains_no_header() -> None:
    bare = CHATML.removesuffix(PROMPT)
    assert shown(bare, said(*"abcd")) == [chatml(*"abcd")]
    tooled = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}"
        "{% elif m.tool_calls %}{{ '<tool_call>' + m.tool_calls[0].function.name + '</s>' }}"
        "{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}{% endfor %}"
    )
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}
    # There is no header here: what opens a call is for the model to say, and so is the blank.
    assert shown(tooled, [*said("a", "b", "c"), call]) == [
        "[INST]a[/INST]⟦ b</s>⟧[INST]c[/INST]⟦<tool_call>f</s>⟧"
    ]


def test_a_template_that_does_not_tell_where_an_answer_begins_is_refused() -> None:
    upper = CHATML.removesuffix(PROMPT).replace("m.content +", "(m.content|tojson)[1:-1] +")
    escaped = upper.replace("|tojson", "|tojson(ensure_ascii=true)")
    with pytest.raises(InputError, match="message 2: the template does not tell where") as caught:
        shown(escaped, said("a", "b"))
    assert "{% generation %}" in str(caught.value)


def test_a_prompt_that_is_written_behind_every_chat_is_not_trained() -> None:
    always = looped(
        HEADER + "{{ m.content + '<|im_end|>\\n' }}", after="{{ '<|im_start|>assistant\\n' }}"
    )
    assert shown(always, said(*"abcd")) == [chatml(*"abcd") + "<|im_start|>assistant\n"]
    twice = [*said("a", "b"), {"role": "assistant", "content": "c"}]
    [drawn] = shown(always, twice)
    assert drawn.endswith(
        "⟦b<|im_end|>⟧\n<|im_start|>assistant\n⟦c<|im_end|>⟧\n<|im_start|>assistant\n"
    )


def test_answers_that_a_template_joins_end_once() -> None:
    messages = [*said("a", "b"), {"role": "assistant", "content": "c"}, *said("d")]
    drawn, counted = shown(NEXT_END, messages)
    assert "<|im_start|>assistant\n⟦bc<|im_end|>⟧\n<|im_start|>user\nd" in drawn
    assert counted == STRAYS  # the prompt for the second ends the first


def test_marks_around_other_messages_train_none_of_them() -> None:
    text = looped(
        HEADER + "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
    )
    assert shown(text, said(*"abcd")) == [chatml(*"abcd")]


@pytest.mark.parametrize("policy", ["each_answer", "last_answer"])
def test_the_remedy_is_no_policy_that_is_in_use(policy: str) -> None:
    counts = "{{ 'Turns: ' ~ messages|length }}" + CHATML
    with pytest.raises(InputError, match="in another way") as caught:
        shown(counts, said(*"abcd"), policy=policy)
    assert "policy=" not in str(caught.value)
    assert "leave such chats out" in str(caught.value)
    with pytest.raises(InputError, match='policy="each_answer"'):
        shown(counts, said(*"abcd"))


def test_a_header_that_looks_at_its_answer_is_told_or_refused_never_trained() -> None:
    looks = looped(
        "{{ '<|im_start|>' + m.role + (' at length' if m.content|length > 5 else '') + '\\n' }}"
        "{{ m.content + '<|im_end|>\\n' }}",
        after="",
    )
    [drawn] = shown(looks, said("a", "a long answer", "c", "d"))
    assert "<|im_start|>assistant at length\n⟦a long answer<|im_end|>⟧" in drawn
    assert "<|im_start|>assistant\n⟦d<|im_end|>⟧" in drawn
    exact = looks.replace("> 5", "== 5")
    with pytest.raises(InputError, match="message 4: the template does not tell where"):
        shown(exact, said("a", "b", "c", "five!"))  # with a mark before it, it has six characters


def test_an_answer_that_leaves_its_prompt_begins_with_its_content_and_is_counted() -> None:
    sure = CHATML.replace("assistant\\n' }}{% endif %}", "assistant\\nSure' }}{% endif %}")
    drawn, counted = shown(sure, said("a", "Surely", "c", "Su"))
    assert "<|im_start|>assistant\nSure⟦ly<|im_end|>⟧" in drawn
    assert "<|im_start|>assistant\n⟦Su<|im_end|>⟧" in drawn
    assert counted == STRAYS


def test_a_tail_behind_the_last_answer_trains_the_stop_of_a_template_that_writes_none() -> None:
    glm = "{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content }}{% endfor %}"
    prompt = "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
    tail = "{% if not add_generation_prompt %}<|endoftext|>{% endif %}"
    tokenizer = byte_tokenizer(["<|user|>", "<|assistant|>", "<|endoftext|>"])
    messages = [{"role": role, "content": role[0]} for role in ("user", "assistant") * 2]
    chats = by_answer([read_chat({"messages": messages})], policy="each_answer")
    for text, expected in ((glm + prompt, "aa"), (glm + prompt + tail, "a<|endoftext|>" * 2)):
        made = render(chats, model_template(text), tokenizer=tokenizer, policy="each_answer")
        assert tokenizer.decode(made.ids[made.token_weights() > 0]) == expected
