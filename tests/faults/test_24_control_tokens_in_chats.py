"""Fault 24, chats: text, names and tools that spell control tokens forge nothing.

For every kind of tokenizer (bytes, byte-level BPE, SentencePiece, a tiktoken-like rank
file is covered by the tokenizers' own tests) and every built-in template.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokenreel.errors import InputError
from tokenreel.text.chats import BUILT_IN, Chat, Control, Message, Template, ToolCall, read_chat
from tokenreel.text.chats import render as render_chats
from tokenreel.text.tokenizers import Tokenizer, byte_tokenizer, load_tokenizer

CONTROLS = list(
    dict.fromkeys(
        part.control
        for template in BUILT_IN.values()
        for group in (*dict(template.headers).values(), template.end, template.preamble)
        for part in group
        if isinstance(part, Control)
    )
)
CORPUS = ["the quick brown fox says hello, two plus two is four " * 5, "user assistant tool\n"] * 20


def bpe_file(folder: Path) -> Path:
    from tokenizers import Tokenizer as Model
    from tokenizers import models, pre_tokenizers, trainers

    model = Model(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=CONTROLS, initial_alphabet=alphabet, show_progress=False
    )
    model.train_from_iterator(CORPUS, trainer)
    model.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def sentencepiece_file(folder: Path) -> Path:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        vocab_size=340,
        model_type="bpe",
        byte_fallback=True,
        user_defined_symbols=CONTROLS,
        minloglevel=2,
    )
    path = folder / "spm.model"
    path.write_bytes(model.getvalue())
    return path


@pytest.fixture(scope="session", params=["byte", "bpe", "sentencepiece"])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    if request.param == "byte":
        return byte_tokenizer(CONTROLS)
    return load_tokenizer(
        bpe_file(folder) if request.param == "bpe" else sentencepiece_file(folder)
    )


HOSTILE = st.lists(
    st.sampled_from([*CONTROLS, "assistant\n", "a", " ", "\n", "<|", "|>", "<|im_", "🙂"]),
    max_size=5,
).map("".join)


def control_ids_in(chat: Chat, template: Template, tokenizer: Tokenizer) -> list[int]:
    ids = render_chats([chat], template, tokenizer=tokenizer).ids
    return ids[np.isin(ids, list(tokenizer.control_ids.values()))].tolist()


def two_turns(text: str, template: Template, *, name: str | None = None) -> Chat:
    calls = (ToolCall(name=text, arguments=f'{{"{text.strip()}":1}}'),) if template.calls else ()
    return Chat(
        messages=(
            Message(role="system", content=text),
            Message(role="user", content=text, name=name),
            Message(role="assistant", content=text, name=name, calls=calls),
        ),
        tools=(text,) if template.tools else (),
    )


@pytest.mark.parametrize("template", BUILT_IN.values(), ids=list(BUILT_IN))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=HOSTILE)
def test_no_content_name_tool_or_schema_becomes_a_control_id(
    template: Template, text: str, tokenizer: Tokenizer
) -> None:
    harmless = control_ids_in(two_turns("x", template), template, tokenizer)
    hostile = two_turns(text, template, name=text)
    assert control_ids_in(hostile, template, tokenizer) == harmless


@pytest.mark.parametrize("template", BUILT_IN.values(), ids=list(BUILT_IN))
@pytest.mark.parametrize("control", CONTROLS)
def test_masks_are_unaffected_by_what_content_spells(
    template: Template, control: str, tokenizer: Tokenizer
) -> None:
    said = f"before {control} after"
    chat = Chat(
        messages=(Message(role="user", content=said), Message(role="assistant", content=said))
    )
    rendered = render_chats([chat], template, tokenizer=tokenizer)
    trained = rendered.ids[rendered.token_weights() > 0]
    content = tokenizer.encode_batch([said]).ids
    assert trained[:-1].tolist() == content.tolist()
    assert rendered.turns["weight"][-2:].tolist() == [0, 1]


@pytest.mark.parametrize("control", CONTROLS)
def test_a_role_that_spells_a_control_token_is_refused(control: str) -> None:
    with pytest.raises(InputError, match="no known role"):
        read_chat({"messages": [{"role": control, "content": "x"}]})
