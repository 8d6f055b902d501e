"""Templates as data: what they mean, where they come from, what is refused."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from tokenreel.errors import ConfigError
from tokenreel.text.chats import (
    BUILT_IN,
    CHATML,
    NGPT,
    Chat,
    Control,
    Message,
    Name,
    Template,
    Text,
    Wrapping,
    fitting_template,
    load_template,
    read_chat,
    render,
)
from tokenreel.text.chats.template import bind
from tokenreel.text.tokenizers import Tokenizer, byte_tokenizer

FILE = """
name = "mine"
lead = " "
end = [{control = "<|im_end|>"}]
tail = [{text = "\\n"}]

[headers]
user = [{control = "<|im_start|>"}, {text = "user"}, {name = " name="}, {text = "\\n"}]
assistant = [{control = "<|im_start|>"}, {text = "assistant\\n"}]

[calls]
open = "<call>"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return path


def test_a_file_says_what_an_object_says(file: Path) -> None:
    start = Control(control="<|im_start|>")
    assert load_template(str(file)) == Template(
        name="mine",
        lead=" ",
        headers=(
            ("user", (start, Text(text="user"), Name(name=" name="), Text(text="\n"))),
            ("assistant", (start, Text(text="assistant\n"))),
        ),
        end=(Control(control="<|im_end|>"),),
        tail=(Text(text="\n"),),
        calls=Wrapping(open="<call>"),
    )


def test_the_lead_is_encoded_with_the_content(file: Path, bpe: Tokenizer) -> None:
    chat = Chat(messages=(Message(role="assistant", content="hello"),))
    rendered = render([chat], load_template(str(file)), tokenizer=bpe)
    (turn,) = rendered.turns
    content = rendered.ids[int(turn["head"]) : -1 - int(turn["tail"])]
    assert content.tolist() == bpe.encode_batch([" hello"]).ids.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("tail =", "tial ="), r"no key 'tial' in a template .*did you mean 'tail'\?"),
        (('{control = "<|im_end|>"}', '{controll = "x"}'), r"end\[0\]: no key 'controll'"),
        (('{control = "<|im_end|>"}', "{control = 1}"), r"end\[0\]\.control: not a string"),
        (('{control = "<|im_end|>"}', '{control = "x", text = "y"}'), "a part is one of"),
        (('end = [{control = "<|im_end|>"}]', ""), "the key 'end' is missing"),
        (("assistant = ", "robot = "), "a header for an unknown role"),
        (("assistant = ", "tool = "), "no header for the assistant"),
        (('{text = "\\n"}]\n\n', '{name = ""}]\n\n'), "a name can stand in a header only"),
        (('name = "mine"', "name = "), "not a template"),
        (('open = "<call>"', 'opens = "<call>"'), "calls: no key 'opens'.*'open'"),
        (("[calls]", "[ends]\nrobot = []\n[calls]"), "an end for an unknown role"),
        (("[calls]", "[ends]\ntool = []\n[calls]"), "an end for the role 'tool', which has no h"),
        (("[calls]", '[ends]\nuser = [{name = ""}]\n[calls]'), "not in 'ends.user'"),
        (("[calls]", "[ends]\nuser = 1\n[calls]"), r"ends\.user: not a list of parts"),
        (('lead = " "', 'strip = "yes"'), "strip: not a flag .expected true or false, got 'yes'"),
        (('{name = " name="}', '{name = "a"}, {name = "b"}'), "a header with two names"),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_key(
    file: Path, change: tuple[str, str], message: str
) -> None:
    assert change[0] in FILE
    file.write_text(FILE.replace(*change, 1))
    with pytest.raises(ConfigError, match=message) as caught:
        load_template(str(file))
    assert "mine" in str(caught.value)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no template 'chatlm' .*did you mean 'chatml'\?"):
        load_template("chatlm")


def test_a_missing_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: not a template"):
        load_template(str(tmp_path / "none.toml"))


def test_a_tokenizer_without_the_control_token_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"template chatml: the tokenizer has no control token"):
        bind(CHATML, byte_tokenizer(["<eos>"]))


def test_the_fingerprint_changes_with_every_field_but_the_name() -> None:
    changed = [
        replace(CHATML, lead=" "),
        replace(CHATML, strip=True),
        replace(CHATML, ends=(("user", ()),)),
        replace(CHATML, tail=()),
        replace(CHATML, end=(Text(text="<|im_end|>"),)),
        replace(CHATML, preamble=(Text(text="x"),)),
        replace(CHATML, default_system=""),
        replace(CHATML, calls=None),
        replace(CHATML, tools=Wrapping()),
        replace(CHATML, headers=CHATML.headers[1:]),
        *BUILT_IN.values(),
    ]
    assert len({template.fingerprint for template in changed}) == len(changed)
    assert replace(CHATML, name="other").fingerprint == CHATML.fingerprint


def test_the_fingerprint_of_ngpt_is_fixed() -> None:
    # A change of what is rendered must be noticed: stores keep this value.
    assert NGPT.fingerprint == ("15d81c6c84283bbaf68f6d0d07c6656a1405ce4234d8fa74075a77ac81b79f7a")


def test_the_fingerprint_of_a_template_with_text_is_that_of_its_second_version() -> None:
    # Its ids are others than they were: text beside a content is encoded with it.
    assert CHATML.fingerprint == "6383cad01eb5cdc7e9f6688140bee6b47ed411a1d4ae2d310e6f9679dcf688f1"


@pytest.mark.parametrize("template", BUILT_IN.values(), ids=list(BUILT_IN))
def test_the_template_that_fits_is_the_one_whose_control_tokens_are_there(
    template: Template,
) -> None:
    assert fitting_template(byte_tokenizer([*template.controls, "<|endoftext|>"])) is template


@pytest.mark.parametrize("template", BUILT_IN.values(), ids=list(BUILT_IN))
def test_a_template_does_not_fit_where_one_control_token_is_missing(template: Template) -> None:
    for missing in template.controls:
        rest = [token for token in template.controls if token != missing]
        with pytest.raises(ConfigError, match="no built-in chat template fits") as caught:
            fitting_template(byte_tokenizer(rest))
        assert all(token in str(caught.value.expected) for token in template.controls)
        assert all(name in str(caught.value.expected) for name in BUILT_IN)
        assert caught.value.actual == ", ".join(rest)
        assert "template=" in str(caught.value.remedy)


def test_several_templates_that_fit_are_named_and_none_is_taken(byte: Tokenizer) -> None:
    with pytest.raises(ConfigError, match=r"several chat templates \(got ngpt, chatml, llama3\)"):
        fitting_template(byte)
    two = byte_tokenizer([*BUILT_IN["llama3"].controls, *CHATML.controls])
    with pytest.raises(ConfigError, match=r"got chatml, llama3\); say which one .*template="):
        fitting_template(two)


def test_a_tokenizer_without_control_tokens_is_said_to_have_none() -> None:
    with pytest.raises(ConfigError, match=r"got none\)"):
        fitting_template(byte_tokenizer([]))


def test_of_a_thousand_control_tokens_an_error_names_ten_and_the_way_out() -> None:
    many = byte_tokenizer([f"[SPECIAL_{number}]" for number in range(1000)])
    with pytest.raises(ConfigError, match=r"\[SPECIAL_9\] and 990 more\)") as caught:
        fitting_template(many)
    with pytest.raises(ConfigError, match=r" and 990 more\)") as missing:
        bind(CHATML, many)
    for error in (caught.value, missing.value):
        assert len(str(error)) < 800
        assert ".toml" in str(error.remedy) and "the help of tokenreel.load_template" in str(
            error.remedy
        )


def test_the_file_that_the_help_of_load_template_shows_is_a_template(tmp_path: Path) -> None:
    shown = inspect.getdoc(load_template) or ""
    lines = shown[shown.index('    name = "mine"') : shown.index(">>>")]
    path = tmp_path / "mine.toml"
    path.write_text(textwrap.dedent(lines))
    template = load_template(path)
    assert isinstance(template, Template)
    assert all(getattr(template, field) for field in Template.__slots__)
    tokenizer = byte_tokenizer(template.controls)
    chat = read_chat({"prompt": "q", "completion": "a"})
    ids = render([chat], template, tokenizer=tokenizer).ids
    assert tokenizer.decode(ids) == (
        "<s><|system|> be brief<|end_of_system|>\n<|user|>\n q</s>\n<|assistant|>\n a</s>\n"
    )
