"""Which tokens of a model's own template are trained, against transformers where it is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from tests.text.chats.jinja_shapes import CONTROLS, SHAPES, SPECIAL, marked, plain, train_bpe
from tests.text.chats.test_jinja_ids import CALLED, CHATS, TOOL, sentencepiece_like

from tokenreel.errors import InputError
from tokenreel.text.chats import Rendered, by_answer, read_chat, render
from tokenreel.text.chats.jinja_render import STRAYS
from tokenreel.text.chats.model_template import model_template
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer
from tokenreel.text.turns import ROLES

MULTI: list[dict[str, Any]] = [
    {"role": "system", "content": "you are helpful"},
    {"role": "user", "content": "what is two plus two?"},
    {"role": "assistant", "content": "it is four."},
    {"role": "user", "content": "and you?"},
    {"role": "assistant", "content": "hello to you"},
]
KEEPS_ANSWERS = ["llama3", "qwen2", "gemma", "mistral", "deepseek", "phi3"]


@pytest.fixture(scope="module")
def bpe_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_bpe(tmp_path_factory.mktemp("jinja"))


@pytest.fixture(scope="module")
def bpe(bpe_path: Path) -> Tokenizer:
    return load_tokenizer(bpe_path)


@pytest.fixture(scope="module")
def reference(bpe_path: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_file=str(bpe_path), **SPECIAL)


def rendered(
    text: str, messages: Any, tokenizer: Tokenizer, *, policy: Any = "assistant", **record: Any
) -> Rendered:
    chats = by_answer([read_chat({"messages": messages, **record})], policy=policy)
    template = model_template(text, special_tokens=SPECIAL)
    return render(chats, template, tokenizer=tokenizer, policy=policy)


def trained(made: Rendered, tokenizer: Tokenizer) -> list[str]:
    """Return the text of each trained span."""
    spans = []
    for number in range(len(made)):
        ids = made.chat_ids(number)
        for turn in made.chat_turns(number):
            stop = int(turn["start"] + turn["length"] - turn["tail"])
            if turn["weight"] > 0:
                spans.append(tokenizer.decode(ids[int(turn["start"] + turn["head"]) : stop]))
    return spans


ENDS = {
    "llama3": "<|eot_id|>",
    "qwen2": "<|im_end|>",
    "gemma": "<end_of_turn>",
    "mistral": "</s>",
    "deepseek": "<｜end▁of▁sentence｜>",
}


@pytest.mark.parametrize("name", list(ENDS))
@pytest.mark.parametrize("form", [plain, marked])
def test_an_answer_is_trained_with_its_end_and_without_its_header(
    name: str, form: Any, bpe: Tokenizer
) -> None:
    messages = MULTI if name != "gemma" else MULTI[1:]
    space = " " if name == "mistral" else ""
    expected = [f"{space}{text}{ENDS[name]}" for text in ("it is four.", "hello to you")]
    assert trained(rendered(form(name), messages, bpe), bpe) == expected


@pytest.mark.parametrize("name", list(SHAPES))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(messages=CHATS)
def test_masks_equal_those_of_transformers_where_no_token_is_shared(
    name: str, messages: list[dict[str, str]], bpe: Tokenizer, reference: Any
) -> None:
    if any(control in m["content"] for m in messages for control in CONTROLS):
        return
    if not all(m["content"].strip().isascii() and m["content"].strip() for m in messages):
        return  # empty spans and characters of several tokens: its known wrong cases, below
    messages = [m | {"content": m["content"].strip()} for m in messages[-2:]]
    made = rendered(marked(name), messages, bpe)
    expected = reference.apply_chat_template(
        messages, chat_template=marked(name), return_dict=True, return_assistant_tokens_mask=True
    )
    assert made.ids.tolist() == expected["input_ids"]
    assert (made.token_weights() > 0).tolist() == list(map(bool, expected["assistant_masks"]))


@pytest.mark.parametrize("name", ["llama3", "qwen2", "gemma", "mistral", "deepseek", "harmony"])
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(messages=CHATS)
def test_masks_by_prompts_are_those_by_marks(
    name: str, messages: list[dict[str, str]], bpe: Tokenizer
) -> None:
    messages = messages[-2:]
    if not messages[1]["content"].strip():
        return
    by_prompt = rendered(plain(name), messages, bpe)
    by_mark = rendered(marked(name), messages, bpe)
    assert by_prompt.ids.tolist() == by_mark.ids.tolist()
    assert by_prompt.token_weights().tolist() == by_mark.token_weights().tolist()


def test_tool_calls_are_trained_and_results_are_not(bpe: Tokenizer) -> None:
    made = rendered(plain("qwen2"), CALLED, bpe, tools=[TOOL])
    call, answer = trained(made, bpe)
    assert call.endswith('"arguments": {"town": "Ulm", "a": 1}}\n</tool_call><|im_end|>')
    assert answer == "it is sunny.<|im_end|>"
    roles = [ROLES[role] for role in made.turns["role"]]
    assert roles == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("name", KEEPS_ANSWERS)
def test_turns_lie_end_to_end_and_begin_with_their_messages(name: str, bpe: Tokenizer) -> None:
    messages = MULTI if name not in ("gemma",) else MULTI[1:]
    made = rendered(plain(name), messages, bpe)
    starts = made.turns["start"].astype(int)
    stops = starts + made.turns["length"]
    assert starts[1:].tolist() == stops[:-1].tolist()
    assert stops[-1] == len(made.ids)
    spoken = [turn for turn in made.turns if ROLES[turn["role"]] in ("user", "assistant")]
    contents = [m["content"] for m in messages if m["role"] != "system"]
    for turn, content in zip(spoken, contents, strict=True):
        stop = int(turn["start"] + turn["length"])
        assert content in bpe.decode(made.ids[int(turn["start"]) : stop])


REASONED = [
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "four", "reasoning_content": "two and two"},
    {"role": "user", "content": "and you?"},
    {"role": "assistant", "content": "hello", "reasoning_content": "be nice"},
]


@pytest.mark.parametrize("form", [plain, marked])
@pytest.mark.parametrize("name", ["qwen3", "harmony"])
def test_a_template_that_rewrites_earlier_answers_is_refused_with_the_remedy(
    name: str, form: Any, bpe: Tokenizer
) -> None:
    with pytest.raises(InputError, match="in another way when more messages follow") as caught:
        rendered(form(name), REASONED, bpe)
    assert 'policy="each_answer"' in str(caught.value)
    assert "message 2" in str(caught.value)


def test_each_answer_is_a_document_as_the_model_will_see_it(bpe: Tokenizer, reference: Any) -> None:
    made = rendered(plain("qwen3"), REASONED, bpe, policy="each_answer")
    assert len(made) == 2
    for number, stop in enumerate((2, 4)):
        expected = reference.apply_chat_template(REASONED[:stop], chat_template=plain("qwen3"))
        assert made.chat_ids(number).tolist() == expected["input_ids"]
    assert trained(made, bpe) == [
        "<think>\ntwo and two\n</think>\n\nfour<|im_end|>",
        "<think>\nbe nice\n</think>\n\nhello<|im_end|>",
    ]
    last = rendered(plain("qwen3"), REASONED, bpe, policy="last_answer")
    assert last.ids.tolist() == made.chat_ids(1).tolist()
    assert trained(last, bpe) == trained(made, bpe)[1:]


def test_a_document_for_each_answer_heeds_the_weights_of_messages(bpe: Tokenizer) -> None:
    messages = [*MULTI[1:3], *MULTI[3:]]
    messages[1] = {**messages[1], "train": False}
    made = rendered(plain("qwen2"), messages, bpe, policy="each_answer")
    assert trained(made, bpe) == ["hello to you<|im_end|>"]
    alone = rendered(plain("qwen2"), MULTI[1:2], bpe, policy="each_answer")
    assert (len(alone), alone.token_weights().sum()) == (1, 0)


def test_weights_of_messages_reach_the_turn_table(bpe: Tokenizer) -> None:
    messages = [*MULTI[:2], {**MULTI[2], "weight": 0.5}, *MULTI[3:]]
    for form in (plain, marked):
        made = rendered(form("qwen2"), messages, bpe)
        assert [w for w in made.turns["weight"].tolist() if w] == [0.5, 1.0]


def test_other_messages_than_answers_cannot_be_trained(bpe: Tokenizer) -> None:
    for policy, messages in (("all", MULTI), ("assistant", [{**MULTI[1], "weight": 1}, MULTI[2]])):
        with pytest.raises(InputError, match="a model's own template trains answers alone"):
            rendered(plain("qwen2"), messages, bpe, policy=policy)


def test_an_answer_that_the_template_does_not_render_is_refused(bpe: Tokenizer) -> None:
    silent = (
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content + '</s>' }}{% endif %}"
        "{% endfor %}"
    )
    with pytest.raises(InputError, match="message 2: the template renders nothing for this answer"):
        rendered(silent, MULTI[1:3], bpe)
    unmarked = (
        plain("qwen2")
        + "{% if messages|length > 9 %}{% generation %}x{% endgeneration %}{% endif %}"
    )
    with pytest.raises(InputError, match="renders nothing for this answer"):
        rendered(unmarked, MULTI[1:3], bpe)


def test_a_prompt_that_opens_with_reasoning_is_left_where_the_answer_leaves_it(
    bpe: Tokenizer,
) -> None:
    made = rendered(plain("deepseek"), MULTI, bpe)
    assert trained(made, bpe)[0] == "it is four.<｜end▁of▁sentence｜>"
    assert list(made.unrendered) == [[STRAYS]]
    assert list(rendered(plain("llama3"), MULTI, bpe).unrendered) == [[]]


def test_what_a_template_writes_behind_the_last_message_breaks_no_answer(bpe: Tokenizer) -> None:
    assert trained(rendered(plain("phi3"), MULTI, bpe), bpe) == [
        "it is four.<|end|>",
        "hello to you<|end|>\n</s>",
    ]


def test_a_token_of_header_and_answer_is_not_trained(bpe: Tokenizer) -> None:
    messages = [MULTI[1], {"role": "assistant", "content": "\n\nfour"}]
    for form in (plain, marked):
        made = rendered(form("qwen2"), messages, bpe)
        ids = made.ids[made.token_weights() > 0]
        # The three newlines are one token, in which the header's is.
        assert bpe.decode(ids) == "four<|im_end|>"
        assert "assistant\n\n\nfour" in bpe.decode(made.ids)


def test_places_are_found_in_text_that_its_tokenizer_changes(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(sentencepiece_like(tmp_path, "first"))
    messages = [MULTI[1], {"role": "assistant", "content": "quick brown fox"}] * 2
    for name in ("qwen2", "mistral"):
        made = rendered(plain(name), messages, tokenizer)
        spans = [text.strip() for text in trained(made, tokenizer)]
        assert spans == [f"quick brown fox{ENDS[name]}"] * 2


# What transformers' mask gets wrong, and how it is here.
def theirs(reference: Any, text: str, messages: Any) -> list[str]:
    made = reference.apply_chat_template(
        messages, chat_template=text, return_dict=True, return_assistant_tokens_mask=True
    )
    ids = [i for i, m in zip(made["input_ids"], made["assistant_masks"], strict=True) if m]
    return [reference.decode(ids)]


def test_transformers_masks_part_of_a_last_character_that_is_several_tokens(
    bpe: Tokenizer, reference: Any
) -> None:
    bare = marked("qwen2").replace(
        "{{- '<|im_end|>' }}{%- endgeneration %}", "{%- endgeneration %}{{- '<|im_end|>' }}"
    )
    messages = [MULTI[1], {"role": "assistant", "content": "né"}]
    assert trained(rendered(bare, messages, bpe), bpe) == ["né"]
    assert theirs(reference, bare, messages) != ["né"]


def test_transformers_trains_the_header_of_a_shared_token(bpe: Tokenizer, reference: Any) -> None:
    messages = [MULTI[1], {"role": "assistant", "content": "\n\nfour"}]
    assert theirs(reference, marked("qwen2"), messages) == ["\n\n\nfour<|im_end|>"]


def test_transformers_loses_the_place_of_marks_in_a_macro(bpe: Tokenizer, reference: Any) -> None:
    text = (
        "{% macro turn(m) %}{{ '<|im_start|>' + m.role + '\\n' }}{% generation %}"
        "{{ m.content + '<|im_end|>' }}{% endgeneration %}{% endmacro %}"
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ turn(m) }}"
        "{% else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )
    assert trained(rendered(text, MULTI[:3], bpe), bpe) == ["it is four.<|im_end|>"]
    assert theirs(reference, text, MULTI[:3]) != ["it is four.<|im_end|>"]


def test_transformers_loses_answers_that_begin_with_a_blank_where_offsets_are_trimmed(
    bpe_path: Path, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer as Model
    from tokenizers import processors
    from transformers import PreTrainedTokenizerFast

    model = Model.from_file(str(bpe_path))
    model.post_processor = processors.ByteLevel(trim_offsets=True)  # as in Llama 3
    path = tmp_path / "tokenizer.json"
    model.save(str(path))
    reference = PreTrainedTokenizerFast(tokenizer_file=str(path), **SPECIAL)
    tokenizer = load_tokenizer(path)
    spans = trained(rendered(marked("mistral"), MULTI, tokenizer), tokenizer)
    assert spans == [" it is four.</s>", " hello to you</s>"]
    assert theirs(reference, marked("mistral"), MULTI) == [""]
