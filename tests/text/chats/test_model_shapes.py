"""The templates of docs/chat-templates.md against `transformers` on Jinja texts of these shapes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.text.chats.jinja_shapes import LLAMA_SPLIT, WORDS, train_bpe
from tests.text.chats.test_jinja_ids import sentencepiece_like

from tokenreel.text.chats import (
    CHATML,
    Message,
    Template,
    Text,
    load_template,
    read_chat,
    render,
)
from tokenreel.text.chats.render import render_prompt
from tokenreel.text.tokenizers import Tokenizer, load_tokenizer

DOCS = Path(__file__).parents[3] / "docs" / "chat-templates.md"
CONTROLS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>"]
CONTROLS += ["<|start_header_id|>", "<|end_header_id|>", "<bos>", "<start_of_turn>"]
CONTROLS += ["<end_of_turn>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"]
CONTROLS += ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"]
CONTROLS += ["<|system|>", "<|user|>", "<|assistant|>"]


def looped(first: str, body: str, prompt: str) -> str:
    """Return a template: what comes first, the body for each message, the generation prompt."""
    body = body.replace("GEN(", "{% generation %}{{ ").replace(")GEN", " }}{% endgeneration %}")
    loop = f"{{% for m in messages %}}{body}{{% endfor %}}"
    return f"{first}{loop}{{% if add_generation_prompt %}}{prompt}{{% endif %}}"


def by_role(**bodies: str) -> str:
    """Return a body that depends on the role."""
    return "".join(
        f"{{% if m['role'] == '{role}' %}}{body}{{% endif %}}" for role, body in bodies.items()
    )


LLAMA_HEADER = "<|start_header_id|>{{ m['role'] }}<|end_header_id|>{{ '\\n\\n' }}"
LLAMA_PROMPT = "<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}"
SHAPES = {
    "qwen": looped(
        "",
        "<|im_start|>{{ m['role'] + '\\n' }}"
        "{% if m['role'] == 'assistant' %}GEN(m['content'] + '<|im_end|>')GEN"
        "{% else %}{{ m['content'] }}<|im_end|>{% endif %}{{ '\\n' }}",
        "<|im_start|>assistant{{ '\\n' }}",
    ),
    "llama": looped(
        "<|begin_of_text|>",
        LLAMA_HEADER
        + "{% if m['role'] == 'assistant' %}GEN((m['content'] | trim) + '<|eot_id|>')GEN"
        "{% else %}{{ m['content'] | trim }}<|eot_id|>{% endif %}",
        LLAMA_PROMPT,
    ),
    "gemma": looped(
        "<bos>",
        "<start_of_turn>{{ ('model' if m['role'] == 'assistant' else m['role']) + '\\n' }}"
        "{% if m['role'] == 'assistant' %}GEN((m['content'] | trim) + '<end_of_turn>')GEN"
        "{% else %}{{ m['content'] | trim }}<end_of_turn>{% endif %}{{ '\\n' }}",
        "<start_of_turn>model{{ '\\n' }}",
    ),
    "mistral": looped(
        "<s>",
        by_role(
            system="[SYSTEM_PROMPT]{{ ' ' + m['content'] }}[/SYSTEM_PROMPT]",
            user="[INST]{{ ' ' + m['content'] }}[/INST]",
            assistant="GEN(' ' + m['content'] + '</s>')GEN",
        ),
        "",
    ),
    "deepseek": looped(
        "<｜begin▁of▁sentence｜>",
        by_role(
            system="{{ m['content'] }}",
            user="<｜User｜>{{ m['content'] }}",
            assistant="<｜Assistant｜>GEN(m['content'] + '<｜end▁of▁sentence｜>')GEN",
        ),
        "<｜Assistant｜>",
    ),
    "worked": looped(
        "<s>",
        by_role(
            system="<|system|>{{ '\\n' + m['content'] + '\\n' }}",
            user="<|user|>{{ '\\n' + m['content'] + '\\n' }}",
            assistant="<|assistant|>{{ '\\n' }}GEN(m['content'] + '</s>')GEN",
        ),
        "<|assistant|>{{ '\\n' }}",
    ),
}
# Words, blanks of all kinds at the ends, empty contents, and pieces of control tokens.
CONTENT = st.text(st.sampled_from("aeiou thx?.,!é🙂\n\t <|>[]0123"), max_size=20)
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
MANY = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def train(folder: Path, pre_tokenizer: str) -> Path:
    from tokenizers import Regex, decoders, models, pre_tokenizers, trainers
    from tokenizers import Tokenizer as Model

    model = Model(models.BPE())
    levels: Any = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre_tokenizer == "llama":
        split = pre_tokenizers.Split(Regex(LLAMA_SPLIT), "isolated")
        bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        levels = pre_tokenizers.Sequence([split, bytes_alone])
    model.pre_tokenizer, model.decoder = levels, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=CONTROLS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Newlines in runs, so that there are tokens which header and content make together.
    model.train_from_iterator([f"{WORDS}\n\n{WORDS}\n\n\n  \n\n"] * 5, trainer)
    path = folder / "tokenizer.json"
    model.save(str(path))
    return path


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def bpe_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def bpe(bpe_path: Path) -> Tokenizer:
    return load_tokenizer(bpe_path)


@pytest.fixture(scope="module")
def reference(bpe_path: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_file=str(bpe_path))


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Template]:
    """The templates of the page by their file's names, and the one that is built in."""
    folder, found = tmp_path_factory.mktemp("page"), {"qwen": CHATML}
    for name, text in re.findall(r"```toml\n# (\w+)\.toml\n(.*?)```", DOCS.read_text(), re.S):
        (folder / f"{name}.toml").write_text(text)
        template = load_template(folder / f"{name}.toml")
        assert isinstance(template, Template)
        found[name] = template
    return found


def test_every_template_of_the_page_has_a_jinja_text_to_be_compared_with(
    templates: dict[str, Template],
) -> None:
    assert set(templates) == set(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
@MANY
@given(messages=CHATS)
def test_a_models_shape_in_toml_gives_the_ids_of_transformers(
    name: str,
    messages: list[dict[str, str]],
    templates: dict[str, Template],
    bpe: Tokenizer,
    reference: Any,
) -> None:
    messages = [m for m in messages if m["role"] in dict(templates[name].headers)]
    theirs = reference.apply_chat_template(
        messages,
        chat_template=SHAPES[name],
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    ours = render([read_chat({"messages": messages})], templates[name], tokenizer=bpe)
    assert ours.ids.tolist() == theirs["input_ids"]
    # The mask of transformers has every token with a character of the answer; ours those of
    # which all characters are. It misses answers that are empty.
    contents = [m["content"] for m in messages if m["role"] == "assistant"]
    if all(text and text == text.strip() for text in contents):
        trained = (ours.token_weights() > 0).tolist()
        assert trained == list(map(bool, theirs["assistant_masks"]))


@pytest.mark.parametrize("name", SHAPES)
@MANY
@given(messages=CHATS)
def test_the_prompt_of_a_models_shape_is_that_of_transformers(
    name: str,
    messages: list[dict[str, str]],
    templates: dict[str, Template],
    bpe: Tokenizer,
    reference: Any,
) -> None:
    asked = [m for m in messages[:-1] if m["role"] in dict(templates[name].headers)]
    theirs = reference.apply_chat_template(
        asked,
        chat_template=SHAPES[name],
        tokenize=True,
        return_dict=True,
        add_generation_prompt=True,
    )
    said = [Message(role=m["role"], content=m["content"]) for m in asked]
    ours = render_prompt(said, templates[name], tokenizer=bpe)
    assert ours.tolist() == theirs["input_ids"]


def test_a_token_of_header_and_answer_together_is_not_trained(bpe: Tokenizer) -> None:
    chat = read_chat({"prompt": "hello", "completion": "\n\nit is four."})
    rendered = render([chat], CHATML, tokenizer=bpe)
    weights = rendered.token_weights()
    trained = bpe.decode(rendered.ids[weights > 0])
    assert "\n\nit is four.<|im_end|>".endswith(trained) and "it is four.<|im_end|>" in trained
    first = int(weights.argmax()) - 1
    assert "assistant" not in trained and bpe.decode(
        rendered.ids[: first + 1]
    ) + trained + "\n" == (
        "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n\n\nit is four.<|im_end|>\n"
    )


SAID = [
    {"role": "user", "content": " \u2003two \x1c"},
    {"role": "assistant", "content": "  four \u3000\n"},
    {"role": "user", "content": "\n\n"},
    {"role": "assistant", "content": "x"},
]


def theirs_of(path: Path, text: str, messages: list[dict[str, str]]) -> list[int]:
    from transformers import PreTrainedTokenizerFast

    reference: Any = PreTrainedTokenizerFast(tokenizer_file=str(path))
    made = reference.apply_chat_template(
        messages, chat_template=text, tokenize=True, return_dict=True
    )
    return list(made["input_ids"])


def test_control_tokens_that_swallow_blanks_do_so_for_templates_of_toml(tmp_path: Path) -> None:
    flags = {"<|im_start|>": {"lstrip": True}, "<|im_end|>": {"lstrip": True, "rstrip": True}}
    path = train_bpe(tmp_path, **flags)
    rendered = render([read_chat({"messages": SAID})], CHATML, tokenizer=load_tokenizer(path))
    assert rendered.ids.tolist() == theirs_of(path, SHAPES["qwen"], SAID)


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
@pytest.mark.parametrize("preamble", ["", "hello ", "<|im_end|>hello"])
def test_only_the_first_text_of_a_chat_is_the_beginning_of_an_input(
    scheme: str, preamble: str, tmp_path: Path
) -> None:
    path = sentencepiece_like(tmp_path, scheme)
    spelled = preamble.removeprefix("<|im_end|>")
    parts = CHATML.end if spelled != preamble else ()
    template = replace(CHATML, preamble=(*parts, Text(text=spelled)))
    rendered = render([read_chat({"messages": SAID})], template, tokenizer=load_tokenizer(path))
    assert rendered.ids.tolist() == theirs_of(path, preamble + SHAPES["qwen"], SAID)
