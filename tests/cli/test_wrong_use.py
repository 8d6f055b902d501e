"""Wrong use: the nearest right word and the usage of that command; steps and rows of no run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenreel import StoreWriter
from tokenreel.cli.main import COMMANDS, main


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    with StoreWriter(tmp_path / "s", vocab_size=100) as writer:
        for _ in range(6):
            writer.add(list(range(20)))
        writer.add([1])  # too short to train on
    path = tmp_path / "recipe.toml"
    path.write_text(
        "seq_len = 16\nglobal_batch_size = 4\nseed = 7\n"
        f'[[sources]]\nname = "s"\npath = "{tmp_path / "s"}"\nrows = "packed"\n'
    )
    return path


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize(
    ("words", "usage", "error"),
    [
        (
            ["bulid"],
            "tokenreel build --out",
            "tokenreel: unknown command 'bulid'; did you mean build?",
        ),
        (
            ["build", "--worker", "3"],
            "tokenreel build --out",
            "tokenreel build: unknown option --worker; did you mean --workers?",
        ),
        (
            ["build", "a.jsonl", "--outt=x", "--chats"],
            "tokenreel build --out",
            "tokenreel build: unknown option --outt; did you mean --out?",
        ),
        (
            ["build", "a.jsonl", "--val", "3"],
            "tokenreel build --out",
            "tokenreel build: unknown option --val; did you mean --val-frac or --val-tokens?",
        ),
        (
            ["completion", "bsh"],
            "tokenreel completion {bash,zsh,tcsh}",
            "tokenreel completion: bad shell (expected bash, zsh, tcsh, got 'bsh'); "
            "did you mean bash?",
        ),
        (
            ["convert", "a", "b", "--to", "megatorn"],
            "tokenreel convert SRC DST",
            "tokenreel convert: bad --to (expected native, flat, episodes, megatron, "
            "got 'megatorn'); did you mean megatron?",
        ),
        (
            ["convert", "a", "b", "--out-dtype", "uint8"],
            "tokenreel convert SRC DST",
            "tokenreel convert: bad --out-dtype (expected uint16, uint32, got 'uint8'); "
            '"tokenreel convert --help" lists the options',
        ),
        (
            ["convert", "a", "b", "--shard-bytes", "3"],
            "tokenreel convert SRC DST",
            "tokenreel convert: unknown option --shard-bytes; did you mean --shard-size?",
        ),
        (
            ["explain", "r.toml", "first"],
            "tokenreel explain recipe step",
            "tokenreel explain: bad step (expected a whole number, got 'first'); "
            '"tokenreel explain --help" lists the options',
        ),
        (
            ["where", "r.toml"],
            "tokenreel where recipe source document",
            "tokenreel where: the following arguments are required: source, document; "
            '"tokenreel where --help" lists the options',
        ),
        (
            ["doctor", "now", "please"],
            "tokenreel doctor",
            "tokenreel doctor: more words than it takes: 'now' 'please'; "
            '"tokenreel doctor --help" lists the options',
        ),
        (
            ["--quiet", "doctor"],
            "tokenreel COMMAND",
            "tokenreel: unknown option --quiet; give --quiet behind the command",
        ),
        (
            ["xyzzy"],
            "tokenreel COMMAND",
            "tokenreel: unknown command 'xyzzy'; \"tokenreel --help\" lists the commands",
        ),
    ],
)
def test_wrong_use_names_the_nearest_word_and_shows_that_command(
    capsys: pytest.CaptureFixture[str], words: list[str], usage: str, error: str
) -> None:
    told = refused(capsys, *words)
    assert told.startswith(f"usage: {usage}")
    assert told.endswith(f"\nerror: {error}\n")
    assert len(told.splitlines()) <= 3  # no wall of options above the error


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys)
    assert all(name in told for name in COMMANDS)


def test_wrong_use_is_an_object_where_json_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "r.toml", "--stes", "3", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "error": "ConfigError",
        "what": "unknown option --stes",
        "where": "tokenreel plan",
        "remedy": "did you mean --set?",
    }


def test_a_value_may_look_like_a_number_below_zero_and_two_dashes_end_options(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "bad step (expected >= 0, got -3)" in refused(capsys, "explain", recipe, "-3")
    assert main(["show", "--", "--outt"]) == 1
    assert "--outt: there is no such file or folder" in capsys.readouterr().err


def test_a_row_that_the_step_does_not_have_is_an_error(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for row in (4, 99, -1):
        told = refused(capsys, "explain", recipe, "0", "--row", str(row))
        assert told == f"error: step 0 has no such row (expected 0 to 3, got {row})\n"


def test_one_row_is_explained_in_json_too(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(recipe), "0", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert main(["explain", str(recipe), "0", "--row", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"step": 0, "rows": [whole["rows"][2]]}
    assert whole["rows"][2]["row"] == 2


@pytest.mark.parametrize(
    ("setting", "steps", "error"),
    [
        ("steps=5", 5, "the run ends after 5 steps, as its recipe says"),
        ("passes=2", 4, "the run ends after 4 steps: every row was shown"),
        (
            "sources.s.max_epochs=1",
            2,
            "the run ends after 2 steps: source 's' runs out in the next",
        ),
    ],
)
def test_a_step_beyond_the_run_is_an_error_that_names_the_last(
    recipe: Path, capsys: pytest.CaptureFixture[str], setting: str, steps: int, error: str
) -> None:
    assert main(["explain", str(recipe), str(steps - 1), "--set", setting]) == 0
    capsys.readouterr()
    for words in (["explain", recipe, steps], ["where", recipe, "s", "0", "--start-step", steps]):
        told = refused(capsys, *words, "--set", setting)
        assert told.startswith(f"error: {error}")
        assert f"(expected a step below {steps}, got {steps})" in told


def test_a_run_without_end_has_every_step_that_can_be_counted(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = 2**44 // 4 - 1
    for step in (123456789, last):
        assert main(["explain", str(recipe), str(step)]) == 0
    capsys.readouterr()
    told = refused(capsys, "explain", recipe, last + 1)
    assert told == f"error: bad step (expected below {last + 1:,}, got {last + 1:,})\n"


def test_what_is_not_there_is_not_damaged(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "nowhere/store"]) == 1
    assert capsys.readouterr() == ("", "error: nowhere/store: there is no such file or folder\n")
    assert main(["verify", "nowhere/store", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "NoStoreError"
    assert "bad --threads (expected >= 1, got 0)" in refused(capsys, "verify", "s", "--threads", 0)


def test_help_names_numbers_shortly(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["where", "--help"])
    assert "--start-step N  " in capsys.readouterr().out


def searched(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[str, dict]:
    """Return the last line for people, and the object for programs."""
    assert main(["where", *map(str, words)]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert main(["where", *map(str, words), "--json"]) == 0
    return line, json.loads(capsys.readouterr().out)


def test_where_says_which_steps_it_searched(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, told = searched(capsys, recipe, "s", 0, "--start-step", 3, "--stop-step", 40)
    assert told["searched"] == {"start_step": 3, "stop_step": 40, "more": True}
    assert line == (
        f"document 0 of s is shown {len(told['hits'])} times in steps 3 to 39; there may be more "
        "behind them: --stop-step searches further"
    )
    line, told = searched(capsys, recipe, "s", 0, "--stop-step", 99, "--set", "steps=7")
    assert told["searched"] == {"start_step": 0, "stop_step": 7, "more": False}
    assert line.endswith("in steps 0 to 6, the end of the run")
    assert "bad --stop-step (expected > 3, got 3)" in refused(
        capsys, "where", recipe, "s", 0, "--start-step", 3, "--stop-step", 3
    )


def test_where_nothing_is_found_the_steps_are_named_too(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, told = searched(capsys, recipe, "s", 0, "--stop-step", 9)
    shown = {hit["step"] for hit in told["hits"]}
    step = next(step for step in range(9) if step not in shown)
    line, told = searched(capsys, recipe, "s", 0, "--start-step", step, "--stop-step", step + 1)
    assert told["hits"] == []
    assert line.startswith(f"document 0 of s is not shown in step {step}; there may be more")


def test_without_a_stop_where_names_the_end_of_the_next_epoch(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenreel.feed.feed import Feed

    _, told = searched(capsys, recipe, "s", 1)
    stop, feed = told["searched"]["stop_step"], Feed(recipe)
    assert feed.epoch_of(stop - 1)["s"] < 2 <= feed.epoch_of(stop)["s"]
    expected = [
        (step, row.row)
        for step in range(stop)
        for row in feed.explain(step).rows
        if 1 in {segment.document for segment in row.segments}
    ]
    assert sorted({(hit["step"], hit["row"]) for hit in told["hits"]}) == expected


def test_a_document_that_is_in_no_row_is_said_to_be_left_out(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line, told = searched(capsys, recipe, "s", 6)
    assert told["in_no_row"] and told["hits"] == []
    assert line.startswith("document 6 of s is in no row: it was left out")
