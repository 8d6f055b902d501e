"""Ids of a model's own template against `apply_chat_template(tokenize=True)` of transformers.

The shapes are those of real models (jinja_shapes.py); the templates of TRL are tried as well
where that package is installed. The tokenizer is a byte-level BPE that is trained here.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.text.chats.jinja_shapes import CONTROLS, SHAPES, SPECIAL, marked, plain, train_bpe

from tokenreel.errors import InputError
from tokenreel.text.chats import ModelTemplate, by_answer, read_chat, render, render_prompt
from tokenreel.text.chats.messages import Message
from tokenreel.text.chats.model_template import model_template
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer

TODAY = date.today()
# What a chat may say: words, what templates look for, what seams are made of, and no control.
TEXT = st.text(st.sampled_from("aeiou thx?.,!é🙂\n\t <|>[]/0123'\"\\{}\x00\ue000"), max_size=24)
CHATS = st.builds(
    lambda system, pairs: (
        [{"role": "system", "content": text} for text in system]
        + [
            {"role": role, "content": text}
            for pair in pairs
            for role, text in zip(("user", "assistant"), pair, strict=True)
        ]
    ),
    st.lists(TEXT, max_size=1),
    st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3),
)
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}, "a": {}}},
    },
}
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"town": "Ulm", "a": 1}}}
CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "weather in Ulm?"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "name": "weather", "content": "sunny"},
    {"role": "assistant", "content": "it is sunny."},
]


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


def template_of(text: str, **args: Any) -> ModelTemplate:
    return model_template(text, special_tokens=SPECIAL, args=args, today=TODAY)


def expected_ids(reference: Any, text: str, messages: Any, **more: Any) -> list[int] | str:
    """Return the ids of transformers, or what its template raised."""
    try:
        made = reference.apply_chat_template(
            messages, chat_template=text, tokenize=True, return_dict=True, **more
        )
    except Exception as error:
        return str(error)
    return made["input_ids"]


def our_ids(
    template: ModelTemplate, messages: Any, tokenizer: Tokenizer, **record: Any
) -> list[int] | str:
    """Return our ids; the last answer alone is trained, so that no answer is refused for a mask."""
    try:
        chats = by_answer([read_chat({"messages": messages, **record})], policy="last_assistant")
        return render(chats, template, tokenizer=tokenizer, policy="last_assistant").ids.tolist()
    except InputError as error:
        return str(error)


def fits(ours: list[int] | str, theirs: list[int] | str) -> bool:
    """Tell whether the ids are the same, or both refuse the chat for the same reason."""
    if isinstance(theirs, str):
        return isinstance(ours, str) and theirs in ours
    return ours == theirs


@pytest.mark.parametrize("name", list(SHAPES))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(messages=CHATS)
def test_ids_equal_those_of_transformers(
    name: str, messages: list[dict[str, str]], bpe: Tokenizer, reference: Any
) -> None:
    if any(control in message["content"] for message in messages for control in CONTROLS):
        return
    ours = our_ids(template_of(plain(name)), messages, bpe)
    assert isinstance(ours, list) or "renders nothing" in ours or "refuses" in ours
    if "renders nothing" not in ours:
        assert fits(ours, expected_ids(reference, plain(name), messages))


@pytest.mark.parametrize("name", list(SHAPES))
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(messages=CHATS)
def test_prompts_equal_those_of_transformers(
    name: str, messages: list[dict[str, str]], bpe: Tokenizer, reference: Any
) -> None:
    asked = [m for m in messages[:-1] if m["role"] != "system"]
    if any(control in m["content"] for m in asked for control in CONTROLS):
        return
    expected = expected_ids(reference, plain(name), asked, add_generation_prompt=True)
    said = [Message(role=m["role"], content=m["content"]) for m in asked]
    assert render_prompt(said, template_of(plain(name)), tokenizer=bpe).tolist() == expected


@pytest.mark.parametrize("name", ["llama3", "qwen2", "qwen3", "harmony"])
@pytest.mark.parametrize("form", [marked, plain])
def test_reasoning_tools_calls_and_results_go_through_as_they_are(
    name: str, form: Any, bpe: Tokenizer, reference: Any
) -> None:
    thought = [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "four", "reasoning_content": "two and two", "name": "bob"},
    ]
    for messages, tools in ((CALLED, [TOOL]), (CALLED, None), (thought, None)):
        record = {"tools": tools} if tools else {}
        expected = expected_ids(reference, form(name), messages, tools=tools)
        assert our_ids(template_of(form(name)), messages, bpe, **record) == expected


@pytest.mark.parametrize("key", ["reasoning_content", "thinking", "reasoning"])
def test_an_empty_reasoning_is_given_by_all_its_names(
    key: str, bpe: Tokenizer, reference: Any
) -> None:
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "to you", key: ""},
    ]
    for name in ("harmony", "qwen3"):
        ours = our_ids(template_of(plain(name)), messages, bpe)
        assert ours == expected_ids(reference, plain(name), messages)
        assert isinstance(ours, list)
        opened = "<|channel|>analysis" if name == "harmony" else "<think>"
        assert opened in bpe.decode(ours)


def test_arguments_reach_the_template(bpe: Tokenizer, reference: Any) -> None:
    asked = [Message(role="user", content="2+2?")]
    for args in ({}, {"enable_thinking": False}, {"enable_thinking": True}):
        ids = render_prompt(asked, template_of(plain("qwen3"), **args), tokenizer=bpe)
        expected = expected_ids(
            reference,
            plain("qwen3"),
            [{"role": "user", "content": "2+2?"}],
            add_generation_prompt=True,
            **args,
        )
        assert ids.tolist() == expected


def test_a_record_may_bring_arguments_and_documents_of_its_own(
    bpe: Tokenizer, reference: Any
) -> None:
    text = (
        "{% for d in documents or [] %}{{ d.title + ': ' + d.text + '<|end|>' }}{% endfor %}"
        "{{ style }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
    )
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    documents = [{"title": "fox", "text": "quick"}]
    ours = our_ids(
        template_of(text, style="dull"),
        messages,
        bpe,
        documents=documents,
        chat_template_kwargs={"style": "brief"},
    )
    expected = expected_ids(reference, text, messages, documents=documents, style="brief")
    assert ours == expected


def test_arguments_as_text_are_text_unless_the_template_would_quote_or_refuse_them(
    bpe: Tokenizer, reference: Any
) -> None:
    def called(arguments: Any) -> list[dict[str, Any]]:
        call = {"type": "function", "function": {"name": "weather", "arguments": arguments}}
        return [CALLED[0], {**CALLED[1], "tool_calls": [call]}, *CALLED[2:]]

    written, read = called('{"town":"Ulm","a":1}'), called({"town": "Ulm", "a": 1})
    # Qwen's shape takes text as it is: so does transformers, to the blank.
    ours = our_ids(template_of(plain("qwen2")), written, bpe)
    assert ours == expected_ids(reference, plain("qwen2"), written)
    assert ours != expected_ids(reference, plain("qwen2"), read)
    # Llama's shape would write "{\"town\": …}" in quotes, which no model is served.
    ours = our_ids(template_of(plain("llama3")), written, bpe)
    assert ours == expected_ids(reference, plain("llama3"), read)
    picky = plain("qwen2").replace(
        "{%- if tool_call.arguments is string %}{{- tool_call.arguments }}",
        "{%- if tool_call.arguments is string %}{{- raise_exception('an object please') }}",
    )
    assert our_ids(template_of(picky), written, bpe) == expected_ids(reference, picky, read)


def test_the_order_of_keys_in_tools_and_arguments_is_kept(bpe: Tokenizer) -> None:
    ids = our_ids(template_of(plain("qwen2")), CALLED, bpe, tools=[TOOL])
    assert isinstance(ids, list)
    text = bpe.decode(ids)
    assert '{"town": "Ulm", "a": 1}' in text
    assert json.dumps(TOOL) in text


def test_control_tokens_that_swallow_blanks_do_so_here(tmp_path: Path) -> None:
    from transformers import PreTrainedTokenizerFast

    flags = {"<|end|>": {"rstrip": True}, "<|user|>": {"lstrip": True, "rstrip": True}}
    path = train_bpe(tmp_path, **flags)
    tokenizer, reference = (
        load_tokenizer(path),
        PreTrainedTokenizerFast(tokenizer_file=str(path), **SPECIAL),
    )
    messages = [
        {"role": "user", "content": " \u2003two \x1c"},
        {"role": "assistant", "content": "  four \u3000\n"},
        {"role": "user", "content": "\n\n"},
        {"role": "assistant", "content": "x"},
    ]
    ours = our_ids(template_of(plain("phi3")), messages, tokenizer)
    assert ours == expected_ids(reference, plain("phi3"), messages)


def sentencepiece_like(folder: Path, scheme: str) -> Path:
    """Save a BPE whose pre-tokenizer puts ▁ before words: before the first, before all, or not."""
    from tests.text.chats.jinja_shapes import WORDS
    from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Model

    model = Model(models.BPE(byte_fallback=True, unk_token="<unk>"))
    model.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    model.decoder = decoders.Metaspace(prepend_scheme=scheme)
    bytes_ = [f"<0x{number:02X}>" for number in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", *bytes_], show_progress=False
    )
    model.train_from_iterator([WORDS] * 5, trainer)
    definition = json.loads(model.to_str())
    definition["added_tokens"] = [t for t in definition["added_tokens"] if t["content"] == "<unk>"]
    model = Model.from_str(json.dumps(definition))
    model.add_special_tokens([AddedToken(token, normalized=False) for token in CONTROLS])
    model.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
@pytest.mark.parametrize("name", ["mistral", "qwen2", "deepseek"])
def test_text_behind_a_control_token_is_not_the_beginning_of_an_input(
    scheme: str, name: str, tmp_path: Path
) -> None:
    from transformers import PreTrainedTokenizerFast

    path = sentencepiece_like(tmp_path, scheme)
    tokenizer = load_tokenizer(path)
    reference = PreTrainedTokenizerFast(tokenizer_file=str(path), **SPECIAL)
    text = "hello " + plain(name).removeprefix("{{ bos_token }}")
    messages = [
        {"role": "user", "content": "what is two plus two?"},
        {"role": "assistant", "content": " it is four"},
    ]
    ours = our_ids(template_of(text), messages, tokenizer)
    assert ours == expected_ids(reference, text, messages)


def trl_templates() -> Iterator[Path]:
    found = importlib.util.find_spec("trl")
    if found is not None and found.origin is not None:
        yield from sorted((Path(found.origin).parent / "chat_templates").glob("*.jinja"))


@pytest.mark.skipif(not list(trl_templates()), reason="TRL is not installed")
def test_the_templates_of_trl_render_as_in_transformers(
    bpe: Tokenizer, reference: Any, tmp_path: Path
) -> None:
    messages = [
        {"role": "user", "content": "what is two plus two?"},
        {"role": "assistant", "content": "it is four."},
    ]
    for path in trl_templates():
        text = re.sub(r"<[|｜][^\s<>|｜]{1,48}[|｜]>", "<|end|>", path.read_text("utf-8"))
        expected = expected_ids(reference, text, messages)
        assert fits(our_ids(template_of(text), messages, bpe), expected), path.name
