"""tokenreel plan: what each phase shows of each source, what is too much or nothing, the plot."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tokenreel import StoreWriter
from tokenreel.cli.main import main
from tokenreel.display.style_sheet import style_of
from tokenreel.feed.feed import Feed
from tokenreel.feed.recipe import Recipe

LENGTH = 16
SOURCES = {"web": (900, 0.75), "chat": (120, 0.25), "notes": (300, 0.0)}  # rows, weight
PHASES = ((40, 20, {"web": 0.5, "chat": 0.25, "notes": 0.25}), (80, 0, {"notes": 1.0}))


def write_recipe(
    path: Path, sources: dict[str, tuple[int, float]], *, phases: Any = (), settings: str = ""
) -> Path:
    """Write stores of as many rows as asked for, and a recipe of all of them."""
    text = f"seq_len = {LENGTH}\nglobal_batch_size = 8\nseed = 7\n{settings}\n"
    for name, (num_rows, weight) in sources.items():
        with StoreWriter(path.parent / name, vocab_size=100) as writer:
            writer.add(np.zeros(num_rows * LENGTH + 1, np.uint16))
        weighted = f"weight = {weight}\n" if "passes" not in settings else ""
        text += f'[[sources]]\nname = "{name}"\npath = "{name}"\n{weighted}'
    path.write_text(text + phases_text(phases))
    return path


def phases_text(phases: Any) -> str:
    text = ""
    for start, ramp, weights in phases:
        inside = ", ".join(f"{name} = {weight}" for name, weight in weights.items())
        text += f"[[phases]]\nstart_step = {start}\nramp_steps = {ramp}\nweights = {{ {inside} }}\n"
    return text


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write_recipe(tmp_path / "r.toml", SOURCES, phases=PHASES, settings="steps = 100")


def facts_of(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert main(["plan", *map(str, words), "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def drawn(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["plan", *map(str, words)]) == 0
    return capsys.readouterr().out


def rows_shown(feed: Feed, steps: range) -> list[int]:
    """Count the rows of each source by making every batch."""
    shown = np.concatenate([feed.batch(step).source_ids.reshape(-1) for step in steps])
    return np.bincount(shown[shown >= 0], minlength=len(feed.recipe.sources)).tolist()


def test_each_phase_counts_what_its_batches_show(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, feed = facts_of(capsys, recipe), Feed(recipe)
    spans = [(p["start_step"], p["stop_step"], p["ramp_steps"]) for p in facts["phases"]]
    assert spans == [(0, 40, 0), (40, 80, 20), (80, 100, 0)]
    for phase in [*facts["phases"], {"start_step": 0, "stop_step": 100, "sources": facts["shown"]}]:
        rows = rows_shown(feed, range(phase["start_step"], phase["stop_step"]))
        assert [source["rows"] for source in phase["sources"]] == rows
        for source, plan in zip(phase["sources"], feed.plans, strict=True):
            assert source["tokens"] == source["rows"] * LENGTH
            assert source["epochs"] == pytest.approx(source["rows"] / plan.num_rows)
            assert source["share"] == pytest.approx(source["rows"] / sum(rows))


def test_the_drawing_has_the_figures_of_every_phase(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, text = facts_of(capsys, recipe), drawn(capsys, recipe)
    for title in (
        "steps 0 to 39\n",
        "steps 40 to 79, weights change over the first 20\n",
        "in all",
    ):
        assert title in text
    for source in facts["shown"]:
        figures = (f"{source['share']:.3f}", source["rows"], f"{source['epochs']:.2f}")
        lines = [line.split() for line in text.splitlines() if line.startswith(source["name"])]
        assert any(all(str(figure) in line for figure in figures) for line in lines)


def test_its_words_are_explained_and_none_of_the_ledger_is_left_bare(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = drawn(capsys, recipe)
    head = next(line for line in text.splitlines() if line.startswith("source"))
    for word in ("rows", "tokens", "left out", "trained", "context", "padding"):
        assert word in head
        assert any(line.startswith(f"{word} ") for line in text.splitlines())
    assert not any(word in text for word in ("slots", "overlap", "masked"))
    with pytest.raises(SystemExit):
        main(["plan", "--help"])
    told = capsys.readouterr().out
    assert all(word in told for word in ("slots", "overlap", "masked"))


def test_a_source_that_is_shown_too_often_is_told_with_numbers_and_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = {"web": (9000, 0.75), "chat": (100, 0.25)}
    path = write_recipe(tmp_path / "r.toml", sources, settings="steps = 400")
    (warning,) = facts_of(capsys, path)["warnings"]
    feed = Feed(path)
    step = next(step for step in range(400) if feed.epoch_of(step + 1)["chat"] > 4)
    assert warning == (
        "chat is shown 8.0 times (800 rows of 100); more than about 4 times teaches less and "
        "less: give it less weight (0.107 instead of 0.25), or fewer steps (4 epochs end in step "
        f"{step}), or more text"
    )
    assert f"warning: {warning}" in drawn(capsys, path)
    followed = facts_of(capsys, path, "--set", "sources.chat.weight=0.107")
    assert followed["warnings"] == []
    assert followed["shown"][1]["epochs"] == pytest.approx(4, abs=0.05)
    assert facts_of(capsys, path, "--set", f"steps={step}")["warnings"] == []


def test_a_source_or_a_phase_that_never_comes_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = {"web": (900, 1.0), "rare": (900, 0.0004), "none": (900, 0.0)}
    phases = [(50, 0, {"none": 1.0})]
    path = write_recipe(tmp_path / "r.toml", sources, phases=phases, settings="steps = 20")
    rare, none, phase = facts_of(capsys, path)["warnings"]
    endless = Feed(replace(Recipe.read(path), steps=None))
    first = next(step for step in range(99) if 2 in endless.batch(step).source_ids)
    assert none == (
        f"none is never shown: its first row would come in step {first}, and the run ends after "
        "20 steps; give it more weight, or the run more steps"
    )
    assert rare == (
        "rare is never shown: its weights add up to less than a row; give it more weight, or leave "
        "the source out"
    )
    assert phase == "the phase from step 50 on is not reached: the run ends after 20 steps"
    without = write_recipe(tmp_path / "w.toml", {"on": (90, 1.0), "off": (90, 0.0)})
    (told,) = facts_of(capsys, without)["warnings"]  # also where the run has no end
    assert told.startswith("off is never shown: its weight is 0 in every phase;")


def test_a_run_without_end_tells_final_shares_and_when_a_source_was_shown_often(
    recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    endless = recipe.with_name("endless.toml")
    endless.write_text(recipe.read_text().replace("steps = 100\n", ""))
    facts = facts_of(capsys, endless)
    assert facts["steps"] is None and facts["shown"] is None
    last = facts["phases"][-1]
    assert (last["stop_step"], [s["share"] for s in last["sources"]]) == (None, [0, 0, 1])
    assert last["sources"][2]["rows"] is None
    steps = [source["step_after_4_epochs"] for source in facts["sources"]]
    assert steps[:2] == [None, None]  # neither is shown so often before its weight is 0
    feed = Feed(endless)
    assert feed.epoch_of(steps[2])["notes"] <= 4 < feed.epoch_of(steps[2] + 1)["notes"]
    text = drawn(capsys, endless)
    assert "8 rows of 16 tokens a step, no end" in text
    assert "shown 4 times by step" in text and "--set steps=N" in text


def test_an_evaluation_shows_every_row_as_often_as_asked_and_warns_of_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_recipe(tmp_path / "r.toml", SOURCES, settings="passes = 6")
    for shuffle in ("true", "false"):
        settings = [f"--set=sources.{name}.shuffle={shuffle}" for name in SOURCES]
        facts = facts_of(capsys, path, *settings)
        assert [source["epochs"] for source in facts["shown"]] == [6, 6, 6]
        assert [source["rows"] for source in facts["shown"]] == [6 * 900, 6 * 120, 6 * 300]
        assert facts["warnings"] == [] and len(facts["phases"]) == 1
        assert "shares over the steps" in drawn(capsys, path, *settings)


def plot_of(text: str) -> dict[str, str]:
    lines = text[text.index("shares over the steps") :].splitlines()[1:]
    return {line.split()[0]: line for line in lines if line.split()[:1] and "to" in line}


@pytest.mark.parametrize("width", [60, 100])
def test_the_plot_follows_the_shares_and_fits_the_terminal(
    recipe: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = plot_of(drawn(capsys, recipe))
    bars = {name: line.split()[1] for name, line in lines.items() if name in SOURCES}
    assert {name: line.split(maxsplit=2)[2] for name, line in lines.items() if name in SOURCES} == {
        "web": "0.750 to 0.000",
        "chat": "0.250 to 0.000",
        "notes": "0.000 to 1.000",
    }
    assert len(set(map(len, bars.values()))) == 1
    assert width - 12 <= max(map(len, lines.values())) <= width
    assert bars["notes"].startswith("··") and bars["notes"].endswith("██")
    assert bars["web"].startswith("▆▆") and bars["web"].endswith("··")


def test_the_plot_can_be_read_where_there_is_no_unicode(
    recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rich.console.Console.encoding", "ascii")
    lines = plot_of(drawn(capsys, recipe))
    assert lines["notes"].split()[1].strip(".123456789") == ""
    assert lines["notes"].split()[1].endswith("99")


def test_a_million_steps_of_a_hundred_sources_are_planned_without_walking_through_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    phases = [(k * 100_000, 50_000, {f"s{k}": 1.0, f"s{99 - k}": 3.0}) for k in range(1, 9)]
    path = write_recipe(tmp_path / "r.toml", {"s": (20, 1.0)}, settings="steps = 1000000")
    text = path.read_text()
    head, source = text[: text.index("[[")], text[text.index("[[") :]
    many = "".join(source.replace('name = "s"', f'name = "s{n}"') for n in range(100))
    path.write_text(head + many + phases_text(phases))
    facts = facts_of(capsys, path)
    assert sum(source["rows"] for source in facts["shown"]) == 8_000_000
    text = drawn(capsys, path)
    assert "85 smaller ones" in text
    assert len(facts["warnings"]) == 100 and text.count("warning: ") == 8
    assert "and 92 warnings more; --json has all of them" in text


def test_the_report_is_one_page_with_the_figures_of_the_plan(
    recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "plan.html"
    facts = facts_of(capsys, recipe, "--report", page)
    text = page.read_text()
    assert style_of("chips.css") in text and "default-src 'none'" in text
    assert not any(word in text for word in ("<script", "url(", "http:", "https:", "masked"))
    for warning in facts["warnings"]:
        assert f"<li>{warning}</li>" in text
    for source in facts["shown"]:
        figures = (f"{source['share']:.1%}", f"{source['rows']:,}", f"{source['tokens']:,}")
        cells = "".join(f'<td class="n">{figure}</td>' for figure in figures)
        assert f"</span> {source['name']}</td>{cells}" in text
    assert "step 40: web 0.5, chat 0.25, notes 0.25 over 20 steps" in text
    assert text.count("<path ") == len(SOURCES)
    main(["plan", str(recipe), "--report", str(page)])
    assert capsys.readouterr().err == f"report: {page}\n"


def test_the_report_of_a_run_without_end_says_by_when_sources_are_shown_often(
    tmp_path: Path,
) -> None:
    recipe = write_recipe(tmp_path / "<b>.toml", {"web": (90, 1.0)})
    assert main(["plan", str(recipe), "--report", str(tmp_path / "p.html")]) == 0
    text = (tmp_path / "p.html").read_text()
    assert "shown 4 times by step" in text and "Steps 0 on" in text
    assert "<h1>&lt;b&gt;.toml" in text


@pytest.mark.parametrize("name", ["plan.pdf", "nowhere/plan.html"])
def test_a_report_that_cannot_be_written_is_refused_before_rows_are_planned(
    name: str, recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", str(recipe), "--report", str(tmp_path / name)]) == 2
    assert "bad --report (expected " in capsys.readouterr().err
    assert not (tmp_path / name).exists()
