"""tokenreel diff: what it prints, as JSON and for people, and the exit codes of `diff`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tokenreel
from tokenreel import Feed, Provenance, Recipe, StoreWriter
from tokenreel.cli.main import main

HOSTILE = "web\x1b[31m\x07\x9b[bold]"


def write_recipe(path: Path, *sources: str, settings: str = "") -> Path:
    text = f"seq_len = 32\nglobal_batch_size = 4\nseed = 7\n{settings}\n"
    for name in sources:
        text += f'[[sources]]\nname = "{name}"\npath = "{name}"\nrows = "packed"\n'
    path.write_text(text)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two stores of texts, of which one document differs, and a recipe of the first."""
    texts = [f"Story {n}. " + "So it goes. " * (n % 5) for n in range(60)]
    tokenreel.build(texts=texts, out=tmp_path / "tales", tokenizer="byte")
    texts[41] = "Story 41, told anew."
    tokenreel.build(texts=texts, out=tmp_path / "anew" / "tales", tokenizer="byte")
    write_recipe(tmp_path / "a.toml", "tales")
    write_recipe(tmp_path / "anew" / "b.toml", "tales")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], code: int, *words: object) -> str:
    assert main(["diff", *map(str, words), "--quiet"]) == code
    return capsys.readouterr().out


def facts(capsys: pytest.CaptureFixture[str], code: int, *words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(capsys, code, *words, "--json"))
    return found


def test_the_same_recipe_is_0_and_says_why(folder: Path, capsys: Any) -> None:
    recipe = folder / "a.toml"
    out = told(capsys, 0, recipe, recipe)
    assert "no step differs: identities are equal, so every batch is" in out
    assert facts(capsys, 0, recipe, recipe)["differences"] == []


def test_a_setting_may_be_tried_on_the_second(folder: Path, capsys: Any) -> None:
    recipe = folder / "a.toml"
    found = facts(capsys, 1, recipe, recipe, "--set", "seed=8")
    assert found["differences"] == [{"field": "seed", "a": 7, "b": 8}]
    assert found["first_step"] == 0 and found["same"] is False
    assert facts(capsys, 0, recipe, recipe, "--set", "grad_accum=2")["others"] == [
        {"field": "grad_accum", "a": 1, "b": 2}
    ]


def test_the_first_difference_is_shown_with_documents_and_text(folder: Path, capsys: Any) -> None:
    both = (folder / "a.toml", folder / "anew" / "b.toml")
    found = facts(capsys, 1, *both)
    feeds = [Feed(Recipe.read(path)) for path in both]
    step = found["step"]
    assert step["step"] == found["first_step"]
    row = next(item for item in step["rows"] if not item["same"])
    for side, feed in zip((row["a"], row["b"]), feeds, strict=True):
        explained = feed.explain(step["step"]).rows[row["row"]]
        assert side["segments"] == [segment.as_dict() for segment in explained.segments]
        batch = feed.batch(step["step"])
        start = side["start"]
        ids = batch.input_ids[row["row"], start : start + len(side["ids"])].tolist()
        assert side["ids"] == ids
        assert side["text"] == tokenreel.load_tokenizer("byte").decode(ids)
    out = told(capsys, 1, *both)
    assert f"step {found['first_step']}:" in out and "rows differ" in out
    assert repr(row["a"]["text"]) in out and repr(row["b"]["text"]) in out
    assert "sources.tales.path" in out.split("alters no batch")[1]


def test_a_step_that_is_asked_for_decides_the_exit_code(folder: Path, capsys: Any) -> None:
    """A phase that begins later alters no step before it."""
    write_recipe(folder / "mixed.toml", "tales", "anew/tales")
    phase = "[[phases]]\nstart_step = 9\nweights = { tales = 1.0 }\n"
    base = (folder / "mixed.toml").read_text()
    (folder / "late.toml").write_text(base + phase)
    both = (folder / "mixed.toml", folder / "late.toml")
    first = facts(capsys, 1, *both)["first_step"]
    assert first > 0
    assert f"step {first - 1}: the same in all 4 rows" in told(
        capsys, 0, *both, "--step", first - 1
    )
    assert f"step {first}: " in told(capsys, 1, *both, "--step", first)


def test_steps_that_were_searched_are_named(folder: Path, capsys: Any) -> None:
    with StoreWriter(folder / "dull", vocab_size=10) as writer:
        writer.add([1] * 3201)
    write_recipe(folder / "dull.toml", "dull")
    text = (folder / "dull.toml").read_text().replace("packed", "windows")
    (folder / "dull.toml").write_text(text)
    out = told(capsys, 1, *[folder / "dull.toml"] * 2, "--set", "seed=1", "--steps", 12)
    assert "the same in the 12 steps searched; there are more behind them" in out
    assert "(steps 0 to 11 were compared); --steps goes on" in out


def test_stores_differ_in_a_document(folder: Path, capsys: Any) -> None:
    both = (folder / "tales", folder / "anew" / "tales")
    (split,) = facts(capsys, 1, *both)["splits"]
    assert (split["first"]["document"], split["first"]["fields"]) == (41, ["tokens"])
    out = told(capsys, 1, *both)
    assert "split train: document 41, token 8, tokens differ first" in out
    assert "'y 41. So it goes'"[:9] in out and "'y 41, told anew.'"[:9] in out
    assert told(capsys, 0, both[0], both[0]).count("fingerprints are equal") == 1


def test_a_state_is_compared_with_its_recipe(folder: Path, capsys: Any) -> None:
    feed = Feed(Recipe.read(folder / "a.toml"))
    feed.step = 5
    (folder / "state.json").write_text(json.dumps(feed.state_dict()))
    assert facts(capsys, 0, folder / "a.toml", folder / "state.json")["same"] is True
    other = Feed(Recipe.read(folder / "a.toml", overrides=["seed=9"]))
    (folder / "other.json").write_text(json.dumps(other.state_dict()))
    states = (folder / "state.json", folder / "other.json")
    out = told(capsys, 1, *states)
    assert "cannot be told without the stores" in out and "seed" in out
    found = facts(capsys, 1, *states, "--store", folder / "tales")
    assert found["first_step"] == 0 and found["step"]["rows"]
    assert main(["diff", *map(str, states), "--step", "3"]) == 2
    assert "name the stores: --store" in capsys.readouterr().err


def test_what_cannot_be_compared_is_2(folder: Path, capsys: Any) -> None:
    recipe, store = str(folder / "a.toml"), str(folder / "tales")
    for words, said in (
        ((recipe, store), "a recipe cannot be compared with a store"),
        ((recipe, str(folder / "gone")), "no such file or folder"),
        ((recipe, str(folder / "gone.toml")), "cannot be read"),
        ((recipe, recipe, "--step", "-1"), "bad --step"),
        ((recipe, recipe, "--steps", "-1"), "bad number of steps"),
        ((store, store, "--step", "1"), "there is no step to compare"),
        ((store, store, "--set", "seed=1"), "only a recipe has settings to override"),
        ((recipe, recipe, "--dtype", "uint16"), "only a store is opened with such declarations"),
        ((recipe,), "required: B"),
    ):
        assert main(["diff", *words]) == 2, words
        assert said in capsys.readouterr().err, words


def test_a_damaged_store_is_2_and_not_a_difference(folder: Path, capsys: Any) -> None:
    (folder / "tales" / "manifest.json").write_text("{}")
    assert main(["diff", str(folder / "tales"), str(folder / "anew" / "tales"), "--json"]) == 2
    assert "error" in json.loads(capsys.readouterr().out)


def test_names_and_texts_cannot_command_the_terminal(tmp_path: Path, capsys: Any) -> None:
    for name, token in (("x", 27), ("y", 7)):
        with StoreWriter(tmp_path / name, vocab_size=259, provenance=True) as writer:
            writer.add([1, 2, 3], provenance=Provenance(file=HOSTILE, row=0, id="\x1b]0;title\x07"))
            writer.add([token] * 50, provenance=Provenance(file=HOSTILE, row=1))
        recipe = {"seq_len": 8, "global_batch_size": 4, "sources": []}
        source = {"name": HOSTILE, "path": str(tmp_path / name)}
        lines = [f"{key} = {value}" for key, value in recipe.items() if key != "sources"]
        lines += ["[[sources]]", *(f"{key} = {json.dumps(value)}" for key, value in source.items())]
        (tmp_path / f"{name}.toml").write_text("\n".join(lines))
    out = told(capsys, 1, tmp_path / "x.toml", tmp_path / "y.toml", "--tokenizer", "byte")
    out += told(capsys, 1, tmp_path / "x", tmp_path / "y", "--tokenizer", "byte")
    assert "web\\x1b[31m" in out and "[bold]" in out
    assert not any(character in out for character in "\x1b\x07\x9b")


def test_help_says_the_exit_codes(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["diff", "--help"])
    assert "exit codes: 0 no batch differs" in capsys.readouterr().out
