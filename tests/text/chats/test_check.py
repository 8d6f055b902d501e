"""The conformance check finds what is wrong with a template, and nothing where nothing is."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tokenreel.cli import check_template_command as command
from tokenreel.text.chats import BUILT_IN, CHATML, Name, Template, Text
from tokenreel.text.chats.check import check_template
from tokenreel.text.tokenizers import Encoded, Tokenizer
from tokenreel.text.tokenizers.tokenizer_protocol import join


class Wrapped:
    """A tokenizer that passes everything on; to be spoiled."""

    def __init__(self, inner: Tokenizer) -> None:
        self.inner = inner

    @property
    def vocab_size(self) -> int:
        return self.inner.vocab_size

    @property
    def control_ids(self) -> Mapping[str, int]:
        return self.inner.control_ids

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        return self.inner.encode_batch(texts)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        return self.inner.decode(ids)


class Forging(Wrapped):
    """Makes a control id of a control string in text, as an unprotected tokenizer does."""

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        return join([self._ids(text) for text in texts])

    def _ids(self, text: str) -> list[int]:
        spelled = "|".join(map(re.escape, self.control_ids))
        ids: list[int] = []
        for part in re.split(f"({spelled})", text):
            known = self.control_ids.get(part)
            ids += self.inner.encode_batch([part]).ids.tolist() if known is None else [known]
        return ids


class Neighbourly(Wrapped):
    """Adds a token to the last text of every batch."""

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        encoded = self.inner.encode_batch(texts)
        offsets = encoded.offsets.copy()
        offsets[-1] += 1
        return Encoded(ids=np.append(encoded.ids, np.uint32(7)), offsets=offsets)


def header_text(role: str) -> tuple[Text]:
    return (Text(text=f"\n### {role}\n"),)


ALL_TEXT = Template(
    name="text",
    headers=tuple((role, header_text(role)) for role in ("user", "assistant")),
    end=(Text(text="</s>"),),
)


@pytest.mark.parametrize("template", BUILT_IN.values(), ids=list(BUILT_IN))
def test_nothing_is_found_against_the_built_in_templates(
    template: Template, tokenizer: Tokenizer
) -> None:
    assert check_template(template, tokenizer) == ()


@pytest.mark.parametrize(
    ("template", "claims"),
    [
        (ALL_TEXT, ["stop", "injection"]),
        (replace(CHATML, end=(), tail=CHATML.end), ["stop"]),
        (replace(CHATML, end=(*CHATML.end, Text(text="\n"))), ["stop"]),
        (replace(CHATML, end=CHATML.end * 2), ["stop"]),
        (
            replace(
                CHATML,
                headers=(
                    *CHATML.headers[:2],
                    ("assistant", (*CHATML.end, Name(name=" as "), Text(text="\n"))),
                ),
            ),
            ["parity"],
        ),
    ],
    ids=["text", "end in tail", "text behind end", "two ends", "named answer"],
)
def test_a_broken_template_is_found_out(
    template: Template, claims: list[str], byte: Tokenizer
) -> None:
    assert [finding.claim for finding in check_template(template, byte)] == claims


def test_a_tokenizer_that_forges_control_ids_is_found_out(byte: Tokenizer) -> None:
    findings = {finding.claim: finding for finding in check_template(CHATML, Forging(byte))}
    assert "injection" in findings
    said = " ".join(message.content for message in findings["injection"].messages)
    assert any(token in said for token in byte.control_ids)


def test_a_tokenizer_that_looks_at_neighbours_is_found_out(byte: Tokenizer) -> None:
    claims = [finding.claim for finding in check_template(CHATML, Neighbourly(byte))]
    assert claims == ["prefix", "stop", "injection", "parity"]


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    command.configure(parser)
    return command.run(parser.parse_args(words))


def test_the_command_says_that_nothing_broke(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("chatml", "--tokenizer", "byte") == 0
    out = capsys.readouterr().out
    assert "template chatml" in out
    assert out.count("holds") == 4
    assert "nothing broke it" in out


def test_without_a_name_the_command_checks_the_template_that_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--tokenizer", "byte") == 0
    assert capsys.readouterr().out.startswith(f"template chatml ({CHATML.fingerprint[:12]})")


BROKEN = """
end = [{text = "\\u001b[2J"}]
[headers]
user = [{text = "Q"}]
assistant = [{text = "A"}]
"""


def test_the_command_prints_the_counterexample_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(BROKEN)
    assert run(str(file), "--tokenizer", "byte") == 1
    out = capsys.readouterr().out
    assert "BROKEN  stop" in out
    assert "BROKEN  injection" in out
    assert 'user: "hello\\u001b[2JAanything"' in out
    assert "2 of 4 claims broken" in out
    assert "\x1b" not in out


def test_the_command_speaks_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(BROKEN)
    assert run(str(file), "--tokenizer", "byte", "--json") == 1
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["ok"] is False
    assert verdict["claims"] == {"prefix": True, "stop": False, "injection": False, "parity": True}
    assert verdict["findings"][0]["messages"][0]["role"] == "user"
