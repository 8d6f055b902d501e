"""A model's own template: where it is found, and what its fingerprint is made of."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.text.chats.jinja_shapes import SPECIAL, plain, train_bpe

from tokenreel.errors import ConfigError, FormatError
from tokenreel.text.chats import ModelTemplate, load_template, read_chat, render
from tokenreel.text.chats.model_template import model_template, parse_argument
from tokenreel.text.tokenizers import load_tokenizer

TEXT = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    train_bpe(tmp_path)
    eos = {"__type": "AddedToken", "content": "</s>", "special": True}
    config = {"chat_template": TEXT, "bos_token": "<s>", "eos_token": eos}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


def loaded(*args: Any, **kwargs: Any) -> ModelTemplate:
    template = load_template(*args, **kwargs)
    assert isinstance(template, ModelTemplate)
    return template


def test_a_folder_its_config_and_the_tokenizers_own_are_the_same(folder: Path) -> None:
    whole = loaded(folder)
    assert dict(whole.texts) == {"default": TEXT}
    assert dict(whole.special_tokens) == SPECIAL
    ways = [
        loaded(folder / "tokenizer_config.json"),
        loaded("model", tokenizer=str(folder)),
        loaded("model", tokenizer=folder / "tokenizer.json"),
    ]
    assert {way.fingerprint for way in ways} == {whole.fingerprint}


def test_a_tokenizer_of_transformers_brings_its_template(folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    template = loaded("model", tokenizer=tokenizer)
    assert dict(template.texts) == {"default": TEXT}
    assert dict(template.special_tokens)["bos_token"] == "<s>"


def test_a_file_of_its_own_wins_over_the_config_and_knows_its_special_tokens(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ eos_token }}")
    for where in (folder, folder / "chat_template.jinja"):
        assert dict(loaded(where).texts) == {"default": "{{ eos_token }}"}
        assert dict(loaded(where).special_tokens) == SPECIAL


def test_of_named_templates_tool_use_is_for_chats_with_tools(folder: Path) -> None:
    named = [
        {"name": "default", "template": "{{ messages[0].content }}</s>"},
        {"name": "tool_use", "template": "{{ tools[0].name + messages[0].content }}</s>"},
        {"name": "rag", "template": "rag{{ messages[0].content }}</s>"},
    ]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    tokenizer = load_tokenizer(folder)

    def said(template: ModelTemplate, **record: Any) -> str:
        chat = read_chat({"messages": [{"role": "user", "content": "hi"}], **record})
        return tokenizer.decode(render([chat], template, tokenizer=tokenizer).ids)

    assert said(loaded(folder)) == "hi</s>"
    assert said(loaded(folder), tools=[{"name": "add"}]) == "addhi</s>"
    assert said(loaded(f"{folder}:rag"), tools=[{"name": "add"}]) == "raghi</s>"
    with pytest.raises(ConfigError, match=r"no chat template 'no'.*one of default, tool_use, rag"):
        load_template(f"{folder}:no")


def test_several_templates_without_a_default_must_be_named(folder: Path) -> None:
    named = [{"name": "a", "template": "a"}, {"name": "b", "template": "b"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    with pytest.raises(ConfigError, match="none is the default") as caught:
        load_template(folder)
    assert str(caught.value).endswith(f"{folder}:a")


@pytest.mark.parametrize(
    ("config", "kind", "words"),
    [
        ("{}", ConfigError, "no chat template here"),
        ('{"chat_template": 3}', FormatError, "chat_template is no template"),
        ('{"chat_template": [{"name": "a"}]}', FormatError, "chat_template is no template"),
        ("{", FormatError, "no JSON"),
        ("[]", FormatError, "settings are no mapping"),
    ],
)
def test_a_config_without_a_template_is_an_error(
    config: str, kind: Any, words: str, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(kind, match=words):
        load_template(tmp_path)


def test_a_tokenizer_without_a_template_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"has no chat template of its own.*'byte'"):
        load_template("model", tokenizer="byte")


def test_text_arguments_and_a_date_that_is_written_make_the_fingerprint() -> None:
    first, second = date(2024, 7, 26), date(2024, 7, 27)
    base = model_template(TEXT, today=first, where="a")
    assert base.fingerprint == model_template(TEXT, today=second, where="b").fingerprint
    dated = "{{ strftime_now('%Y') }}"
    others = [
        model_template(TEXT + " "),
        model_template(TEXT, args={"x": 1}),
        model_template(TEXT, args={"x": True}),
        model_template(TEXT, special_tokens=SPECIAL),
        model_template(dated, today=first),
        model_template(dated, today=second),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 7


def test_an_argument_is_json_where_it_is() -> None:
    assert parse_argument('x={"a": [1]}') == ("x", {"a": [1]})
    assert parse_argument("x=a=b") == ("x", "a=b")
    for wrong in ("x", "=1", "a b=1"):
        with pytest.raises(ConfigError, match="expected NAME=VALUE"):
            parse_argument(wrong)


def test_what_a_chat_gives_is_no_argument_and_templates_of_toml_take_none() -> None:
    with pytest.raises(ConfigError, match="'messages' is given to a template by the chat"):
        model_template(TEXT, args={"messages": []})
    with pytest.raises(ConfigError, match="cannot be written as JSON"):
        model_template(TEXT, args={"x": object()})
    with pytest.raises(ConfigError, match="'chatml' takes no arguments"):
        load_template("chatml", args={"x": 1})


def test_a_template_goes_to_another_process(folder: Path) -> None:
    template = loaded(folder, args={"x": 1})
    assert pickle.loads(pickle.dumps(template)) == template


def test_jinja_is_loaded_with_the_first_template_that_needs_it() -> None:
    code = (
        "import sys, tokenreel; from tokenreel.text.chats import load_template;"
        "load_template('chatml'); assert 'jinja2' not in sys.modules;"
        "sys.modules['jinja2'] = None;"
        "from tokenreel.text.chats.model_template import model_template;"
        "from tokenreel.text.tokenizers import load_tokenizer;"
        "model_template('x').renderer(load_tokenizer('byte'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtraError: a model's chat template needs the package 'jinja2'" in done.stderr
    assert 'pip install "tokenreel[text]"' in done.stderr


def test_what_a_template_leaves_out_is_said(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    call = {"function": {"name": "f", "arguments": {}}}
    messages = [
        {"role": "user", "content": "a", "name": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "because", "tool_calls": [call]},
    ]
    record = {"messages": messages, "tools": [{"name": "f"}], "documents": [{"text": "long ago"}]}
    silent = (
        "{% for m in messages %}<s>{{ m.content }}</s>{% endfor %}"
        "{% if add_generation_prompt %}<s>{% endif %}"
    )
    made = render([read_chat(record)], model_template(silent), tokenizer=tokenizer)
    assert list(made.unrendered[0]) == [
        "name of messages, not rendered by the template",
        "reasoning_content of messages, not rendered by the template",
        "tool_calls of messages, not rendered by the template",
        "tools of chats, not rendered by the template",
        "documents of chats, not rendered by the template",
    ]
    whole = (
        "{{ tools | tojson }}{{ documents | tojson }}{% for m in messages %}<s>{{ m.name }}"
        "{{ m.reasoning_content }}{{ m.tool_calls | tojson if m.tool_calls }}{{ m.content }}</s>"
        "{% endfor %}{% if add_generation_prompt %}<s>{% endif %}"
    )
    made = render([read_chat(record)], model_template(whole), tokenizer=tokenizer)
    assert list(made.unrendered[0]) == []


def test_reasoning_of_earlier_turns_is_told_from_that_of_the_last(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "for one"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d", "reasoning_content": "for two"},
    ]
    template = model_template(plain("qwen3"), special_tokens=SPECIAL)
    whole, last = read_chat({"messages": messages}), read_chat({"messages": messages[2:]})
    made = render([whole, last], template, tokenizer=tokenizer, policy="last_assistant")
    assert list(map(list, made.unrendered)) == [
        ["reasoning_content of messages, not rendered by the template"],
        [],
    ]


def test_an_argument_that_the_template_never_asks_for_is_refused(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    chat = read_chat({"messages": [{"role": "user", "content": "a"}]})
    template = model_template(plain("qwen3"), args={"enable_thinkng": False})
    with pytest.raises(ConfigError, match="has no argument 'enable_thinkng'") as caught:
        render([chat], template, tokenizer=tokenizer)
    assert str(caught.value).endswith("did you mean 'enable_thinking'?")
    with pytest.raises(ConfigError, match=r"no argument 'x' \(expected none\)"):
        render([chat], model_template(TEXT, args={"x": 1}), tokenizer=tokenizer)


def test_arguments_of_a_record_that_the_template_never_asks_for_are_counted(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    given = {"enable_thinking": False, "enable_thinkng": False}
    chat = read_chat({"messages": messages, "chat_template_kwargs": given})
    template = model_template(plain("qwen3"), special_tokens=SPECIAL)
    made = render([chat], template, tokenizer=tokenizer, policy={"user": 0.0})
    assert list(made.unrendered[0]) == [
        "'enable_thinkng' of chat_template_kwargs, no argument of the template"
    ]


def test_a_template_of_several_is_called_by_its_name(folder: Path) -> None:
    named = [{"name": name, "template": name} for name in ("default", "rag")]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert loaded(f"{folder}:rag").name == f"{folder.name}:rag"
    assert loaded(folder).name == folder.name
