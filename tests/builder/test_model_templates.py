"""Builds of chats by the template that ships with a model."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from tests.text.chats.jinja_shapes import SPECIAL, marked, plain, train_bpe

from tokenreel.builder.build import Built, build
from tokenreel.builder.build_settings import BuildSettings
from tokenreel.builder.chat_template import pick_template
from tokenreel.canonical import canonical_bytes
from tokenreel.cli.main import main
from tokenreel.errors import ConfigError, ExistsError, InputError
from tokenreel.store.build_folder import BUILD_FOLDER, PLAN_NAME
from tokenreel.text.chats import ModelTemplate, load_template
from tokenreel.text.tokenizers import load_tokenizer

REASONED: list[dict[str, Any]] = [
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "four", "reasoning_content": "two and two"},
    {"role": "user", "content": "and you?"},
    {"role": "assistant", "content": "hello", "reasoning_content": "be nice"},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model's tokenizer, with a template in Qwen3's shape."""
    folder = tmp_path_factory.mktemp("model")
    train_bpe(folder)
    config = {"chat_template": plain("qwen3"), **SPECIAL}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "dated.jinja").write_text(marked("harmony"))
    return folder


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    records = [REASONED if number % 4 == 3 else REASONED[2:] for number in range(40)]
    path.write_text("".join(json.dumps({"messages": record}) + "\n" for record in records))
    return path


def built(chats: Path, model: Path, out: str, **settings: Any) -> Built:
    given = {"template": "model", "policy": "each_answer", **settings}
    return build(
        chats, out=chats.parent / out, tokenizer=str(model), chat=True, progress=False, **given
    )


def test_a_build_makes_a_document_of_each_answer_with_the_tokenizers_own_template(
    chats: Path, model: Path
) -> None:
    from transformers import AutoTokenizer

    made = built(chats, model, "s")
    reference = AutoTokenizer.from_pretrained(str(model))
    assert made.store.num_documents == 50
    split = made.store["train"]
    for number, messages in ((0, REASONED[2:]), (3, REASONED[:2]), (4, REASONED)):
        expected: Any = reference.apply_chat_template(messages)
        assert split.document(number).tokens.tolist() == expected["input_ids"]


def test_the_default_policy_names_the_remedy_and_skips_what_it_must(
    chats: Path, model: Path
) -> None:
    with pytest.raises(
        InputError, match=r"chats.jsonl:4: message 2: the template renders"
    ) as caught:
        built(chats, model, "s", policy="assistant")
    assert 'policy="each_answer"' in str(caught.value)
    made = built(chats, model, "s", policy="assistant", on_bad="skip")
    [(reason, count)] = made.report["skipped"].items()
    assert (count, made.report["documents"]) == (10, 30)
    assert "in another way when more messages follow" in reason


def test_no_byte_depends_on_workers_or_chunks_in_flight(chats: Path, model: Path) -> None:
    settings = {"chunk_bytes": 1000, "on_bad": "skip", "policy": "assistant"}
    one = built(chats, model, "one", **settings)
    two = built(chats, model, "two", workers=2, **settings)
    assert one.store.fingerprint == two.store.fingerprint


def test_arguments_make_another_build_and_are_told(chats: Path, model: Path) -> None:
    first = built(chats, model, "s", template_arg={"enable_thinking": False})
    again = built(chats, model, "s", template_arg={"enable_thinking": False})
    assert again.already_built
    assert first.report["settings"]["template_arg"] == {"enable_thinking": False}
    with pytest.raises(ExistsError, match="template_arg"):
        built(chats, model, "s", template_arg={"enable_thinking": True})


def test_the_date_of_a_build_is_recorded_and_kept(chats: Path, model: Path) -> None:
    template = str(model / "dated.jinja")
    first = built(chats, model, "s", template=template, template_date="2024-07-26")
    assert first.report["settings"]["template_date"] == "2024-07-26"
    text = first.tokenizer.decode(first.store["train"].document(0).tokens)
    assert "Current date: 2024-07-26" in text
    # Another day, the same build.
    assert built(chats, model, "s", template=template).already_built
    with pytest.raises(ExistsError, match="template_date"):
        built(chats, model, "s", template=template, template_date="2024-07-27")
    now = built(chats, model, "t", template=template)
    assert now.report["settings"]["template_date"] == date.today().isoformat()
    assert "template_date" not in built(chats, model, "u").report["settings"]


def test_what_the_template_left_out_is_counted(chats: Path, model: Path) -> None:
    made = built(chats, model, "s", policy="last_assistant")
    assert made.report["dirt"] == {
        "reasoning_content of messages, not rendered by the template": 10
    }


def test_wrong_settings_are_errors_before_a_folder_is_made(chats: Path, model: Path) -> None:
    for settings, words in (
        ({"template": None, "template_arg": {"x": 1}}, "without the name of a model's own"),
        ({"template_date": "yesterday"}, "expected a date such as 2026-07-26"),
        ({"template": "chatml", "template_arg": {"x": 1}}, "takes no arguments"),
        ({"template_arg": {"enable_thinkng": 0}}, r"no argument 'enable_thinkng'.*did you mean"),
        ({"template": str(model / "no.jinja")}, "no such file of a chat template"),
        ({"template": str(model / "tokenizer.json")}, "no chat template here"),
    ):
        with pytest.raises(ConfigError, match=words):
            built(chats, model, "s", **settings)
    with pytest.raises(ConfigError, match="template_arg does not apply to documents"):
        build(texts=["a"], out=chats.parent / "s", tokenizer="byte", template_arg={"x": 1})
    (chats.parent / "bad.jinja").write_text("{% if %}")
    with pytest.raises(ConfigError, match="not a chat template"):
        built(chats, model, "s", template=str(chats.parent / "bad.jinja"))
    assert not (chats.parent / "s").exists()


def test_a_loaded_template_is_taken_as_it_is(chats: Path, model: Path) -> None:
    template = load_template(model, args={"enable_thinking": False})
    assert isinstance(template, ModelTemplate)
    made = built(chats, model, "s", template=template)
    named = built(chats, model, "t", template_arg={"enable_thinking": False})
    assert made.store.fingerprint == named.store.fingerprint


def test_the_command_takes_arguments_one_by_one(
    chats: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["build", str(chats), "--chat", "--template", "model", "--tokenizer", str(model)]
    words += ["--workers", "1", "--out", str(chats.parent / "s"), "--policy", "last_answer"]
    given = ["--template-arg", "enable_thinking=false", "--template-arg", "reasoning=brief"]
    assert main([*words, *given, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["settings"]["template_arg"] == {"enable_thinking": False, "reasoning": "brief"}
    assert main([*words, "--template-arg", "thinking"]) != 0
    assert "expected NAME=VALUE" in capsys.readouterr().err


def test_skipped_chats_carry_the_words_of_the_template(chats: Path, model: Path) -> None:
    (chats.parent / "strict.jinja").write_text(
        "{{ raise_exception('No reasoning: ' + messages[1].content) if messages|length > 2 }}"
        + plain("qwen2")
    )
    template = str(chats.parent / "strict.jinja")
    made = built(chats, model, "s", template=template, policy="assistant", on_bad="skip")
    reason = "chat: the template refuses the chat: No reasoning: four"
    assert made.report["skipped"] == {reason: 10}
    assert made.report["skipped_places"][0]["reason"] == reason


def test_words_that_differ_from_chat_to_chat_are_not_counted_without_end(
    tmp_path: Path, model: Path
) -> None:
    (tmp_path / "loud.jinja").write_text(
        "{{ raise_exception(messages[0].content) if messages|length == 1 else 'fine' }}"
    )
    loud = [{"messages": [{"role": "user", "content": f"{number} " * 99}]} for number in range(50)]
    made = build(
        chats=[{"messages": REASONED}, *loud],
        out=tmp_path / "s",
        tokenizer=str(model),
        template=str(tmp_path / "loud.jinja"),
        policy={"user": 0.0},
        on_bad="skip",
        progress=False,
    )
    assert len(made.report["skipped"]) == 21
    assert made.report["skipped"]["chat: the template refuses the chat"] == 30
    assert max(map(len, made.report["skipped"])) < 200


def test_a_tokenizers_own_template_is_named_where_another_is_picked(
    chats: Path, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    built(chats, model, "s", template="chatml", policy="assistant")
    assert not caplog.records
    made = built(chats, model, "t", template=None)
    assert made.report["settings"]["template"] == "chatml"
    [record] = caplog.records
    assert 'the tokenizer has one of its own: pass template="model"' in record.getMessage()


def test_a_tokenizers_own_template_is_the_remedy_where_no_other_fits(
    chats: Path, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer as Model
    from tokenizers import models

    folder = tmp_path / "words"
    folder.mkdir()
    Model(models.WordLevel({"a": 0, "?": 1}, unk_token="?")).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "a"}))
    with pytest.raises(ConfigError, match="no built-in chat template fits") as caught:
        built(chats, folder, "s", template=None)
    assert str(caught.value).endswith('pass template="model" for the template of the tokenizer')


def test_a_killed_build_with_other_arguments_leaves_no_date(tmp_path: Path, model: Path) -> None:
    begun = {"template_arg": {"reasoning_effort": "low"}, "template_date": "2024-02-02"}
    plan = tmp_path / "s" / BUILD_FOLDER / PLAN_NAME
    plan.parent.mkdir(parents=True)
    plan.write_bytes(canonical_bytes({"note": {"settings": begun}}))
    for effort, expected in (("low", date(2024, 2, 2)), ("high", date.today())):
        settings = BuildSettings(
            out=tmp_path / "s",
            tokenizer=str(model),
            chats=[],
            template=str(model / "dated.jinja"),
            template_arg={"reasoning_effort": effort},
        )
        picked = pick_template(settings, load_tokenizer(model))
        assert isinstance(picked, ModelTemplate)
        assert picked.date == expected


def test_a_date_may_be_an_object(chats: Path, model: Path) -> None:
    template = str(model / "dated.jinja")
    made = built(chats, model, "s", template=template, template_date=date(2024, 7, 26))
    assert made.report["settings"]["template_date"] == "2024-07-26"
    again = built(chats, model, "s", template=template, template_date="2024-07-26")
    assert again.already_built


def test_build_and_show_name_the_template_its_arguments_and_its_date(
    chats: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["build", str(chats), "--chat", "--template", str(model / "dated.jinja")]
    words += ["--tokenizer", str(model), "--workers", "1", "--out", str(chats.parent / "s")]
    words += ["--template-arg", "reasoning_effort=high", "--template-date", "2024-07-26"]
    assert main([*words, "--policy", "last_answer"]) == 0
    line = 'dated.jinja, reasoning_effort="high", date 2024-07-26'
    assert f"chat template: {line}" in capsys.readouterr().out
    assert main(["show", str(chats.parent / "s")]) == 0
    assert line in capsys.readouterr().out
