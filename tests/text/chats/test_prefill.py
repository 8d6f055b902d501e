"""Prompts that end with the beginning of an answer are left open, as in transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.text.chats.jinja_shapes import CONTROLS, SHAPES, SPECIAL, plain, train_bpe

from tokenreel.errors import InputError
from tokenreel.text.chats import CHATML, Template
from tokenreel.text.chats.model_template import ModelTemplate, model_template
from tokenreel.text.chats.prefill import TAG
from tokenreel.text.chats.prompt_render import render_prompts
from tokenreel.text.chats.prompt_shapes import read_prompt
from tokenreel.text.provenance import Provenance
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer

PLACE = Provenance(file="math.jsonl", row=6)
ASKED = {"role": "user", "content": "2+2?"}
BEGINNING = st.text(st.sampled_from("aeth .,é\n\t<|"), min_size=1, max_size=12).filter(str.strip)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_bpe(tmp_path_factory.mktemp("bpe"))


@pytest.fixture(scope="module")
def bpe(folder: Path) -> Tokenizer:
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder), **SPECIAL)


def ids_of(
    messages: list[Any], template: Template | ModelTemplate, tokenizer: Tokenizer
) -> list[int]:
    prompt = read_prompt({"prompt": messages}, PLACE)
    rendered = render_prompts([prompt], template, tokenizer=tokenizer)
    assert not rendered.token_weights().any()
    return rendered.ids.tolist()


@pytest.mark.parametrize("name", SHAPES)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(begun=BEGINNING)
def test_a_begun_answer_is_left_open_as_transformers_leaves_it(
    name: str, begun: str, bpe: Tokenizer, reference: Any
) -> None:
    if any(control in begun for control in CONTROLS):
        return
    messages = [ASKED, {"role": "assistant", "content": begun}]
    template = model_template(plain(name), special_tokens=SPECIAL)
    expected = reference.apply_chat_template(
        messages,
        chat_template=plain(name),
        tokenize=True,
        return_dict=True,
        continue_final_message=True,
    )["input_ids"]
    assert ids_of(messages, template, bpe) == expected


@pytest.mark.parametrize("parts", [False, True])
def test_a_begun_answer_by_a_template_of_toml_is_that_of_the_same_template_in_jinja(
    bpe: Tokenizer, parts: bool
) -> None:
    jinja = "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    jinja += "{{ m.content if m.content is string else m.content[0].text }}<|im_end|>\n{% endfor %}"
    content: Any = [{"type": "text", "text": "It is "}] if parts else "It is "
    messages = [ASKED, {"role": "assistant", "content": content}]
    ids = ids_of(messages, CHATML, bpe)
    assert ids == ids_of(messages, model_template(jinja), bpe)
    assert bpe.decode(ids).endswith("<|im_start|>assistant\nIt is ")


CALL = {"function": {"name": "add", "arguments": {}}}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a call": (
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        "field 'tool_calls': a prompt that ends with a tool call",
    ),
    "a control token": (
        {"role": "assistant", "content": "<think>\n"},
        "spells a control token in it .*got '<think>'.*let the template write it",
    ),
    "the tag": ({"role": "assistant", "content": f"so {TAG}"}, "spells a control token in it"),
}
JINJA = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


@pytest.mark.parametrize("template", [CHATML, model_template(JINJA)], ids=["toml", "jinja"])
@pytest.mark.parametrize(("last", "message"), BAD.values(), ids=list(BAD))
def test_what_cannot_be_gone_on_with_is_refused_with_its_place(
    last: dict[str, Any], message: str, template: Template | ModelTemplate, bpe: Tokenizer
) -> None:
    with pytest.raises(InputError, match=rf"^math\.jsonl:7: message 2, .*{message}"):
        ids_of([ASKED, last], template, bpe)


def test_a_begun_answer_without_a_text_is_its_header(bpe: Tokenizer) -> None:
    asked = ids_of([ASKED], CHATML, bpe)
    contents: tuple[Any, ...] = ("", [])
    for content in contents:
        messages = [ASKED, {"role": "assistant", "content": content}]
        assert ids_of(messages, CHATML, bpe) == asked
        shape = model_template(plain("qwen2"))
        assert ids_of(messages, shape, bpe) == ids_of([ASKED], shape, bpe)


def test_a_template_that_does_not_write_the_end_of_an_answer_is_refused(bpe: Tokenizer) -> None:
    for text in ("{{ messages[-1].content[:4] }}", "{{ messages[-1].content * 2 }}"):
        last = {"role": "assistant", "content": "It is so"}
        with pytest.raises(InputError, match=r"^math\.jsonl:7: .*does not write the last message"):
            ids_of([ASKED, last], model_template(text), bpe)
