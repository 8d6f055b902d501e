"""The batch: what each token is, in colour and in words, for pointer and keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.keys import Keys
from tests.view.browser.driving import Page, serving
from tests.view.looking import write_recipe

from tokenreel.feed.feed import Feed
from tokenreel.view.answers import Answers
from tokenreel.view.subject import open_subjects


def row_of(page: Page, source: int, *, step: int = 57) -> int:
    """Return the first row of a source."""
    rows = page.served.answer(f"api/step/{step}")["rows"]
    return next(row["row"] for row in rows if row["source"] == source)


def test_chips_are_trained_context_control_and_padding_as_the_batch_has_them(page: Page) -> None:
    feed = page.served.answers.subjects[0].target
    assert isinstance(feed, Feed)
    batch = feed.batch(57)
    opened = ",".join(map(str, range(6)))
    page.open(f"step=57&open={opened}")
    for row in range(6):
        selector = f'.chunk[data-row="{row}"] .chip'
        page.js("window.scrollTo(0, 0)")
        page.press(Keys.ARROW_DOWN)
        page.wait("return document.querySelector(arguments[0])", selector)
        # A label is what the slot before is asked for.
        trained = int((batch.loss_weights[row][:-1] > 0).sum())
        assert page.count(f"{selector}.trained") == trained
        used = int((batch.segment_ids[row] > 0).sum())
        assert page.count(f"{selector}:not(.padding)") == used
        if used < 192:
            assert page.texts(f"{selector}.padding") == [
                f"{192 - used} padding" if used < 191 else "padding"
            ]
        borders = int((batch.position_ids[row][:used] == 0).sum()) - 1
        assert page.count(f"{selector}.begins") >= borders


def test_pointing_at_a_token_tells_all_of_it(page: Page) -> None:
    row = row_of(page, 1)
    part = page.served.answer(f"api/step/57/row/{row}", start=0, stop=192)
    slot = next(n for n, weight in enumerate(part["weights"]) if weight > 0)
    page.open(f"step=57&open={row}")
    chip = f'.chunk[data-row="{row}"] .chip[data-slot="{slot}"]'
    page.pointer().move_to_element(page.find(chip)).perform()
    card = page.find("#hover")
    page.wait_for(card.is_displayed)
    words = card.text.replace("\n", " ")
    segment = part["segments"][0]
    for wanted in (
        page.chip_text(part["texts"][slot]).strip(),
        f"id {part['ids'][slot]:,}",
        f"slot {slot} of 192",
        f"position {slot}",
        "segment 1",
        "weight 1 (trained)",
        "turn assistant",
        f"document {segment['document']} of chat",
        f"from {segment['provenance']}",
    ):
        assert wanted in words
    page.pointer().move_to_element(page.find("h1")).perform()
    page.wait_for(lambda: not card.is_displayed())


def test_keys_alone_choose_a_token_open_its_row_and_its_document(page: Page) -> None:
    row = row_of(page, 1)
    page.open("step=57")
    for _ in range(row + 1):
        page.press(Keys.ARROW_DOWN)
    page.press(Keys.ENTER)
    page.wait(f"return document.querySelector('.row.open[data-row=\"{row}\"]')")
    page.press(Keys.ARROW_RIGHT, shift=True)
    page.press(Keys.ARROW_RIGHT, shift=True)
    page.wait_for(lambda: "1 of 192" in page.find(".panel").text)
    part = page.served.answer(f"api/step/57/row/{row}", start=0, stop=192)
    page.wait_for(lambda: f"id {part['ids'][1]}" in page.texts("#spoken")[0])
    assert len(part["segments"]) > 1
    page.press(Keys.ARROW_DOWN, shift=True)
    page.wait_for(lambda: page.state["slot"] == str(part["segments"][1]["start"]))
    page.press("d")
    number = part["segments"][1]["document"]
    page.wait_for(lambda: f"document {number} of chat" in page.find(".page-title").text)
    page.press("b")
    page.wait("return document.querySelector('.row')")


@pytest.mark.parametrize(
    ("colour", "words"),
    [
        ("loss", ["trained", "context", "control", "padding"]),
        ("segment", ["segment 1", "segment 2"]),
        ("source", ["chat"]),
        ("turn", ["system", "user", "assistant"]),
    ],
)
def test_each_way_to_colour_has_its_meaning_in_words(
    page: Page, colour: str, words: list[str]
) -> None:
    row = row_of(page, 1)
    page.open(f"step=57&colour={colour}&open={row}")
    legend = page.find(".legend").text
    assert all(word in legend for word in words)
    chips = f'.chunk[data-row="{row}"] .chip'
    hues = {name: page.count(f"{chips}.hue-{name}") for name in range(8)}
    part = page.served.answer(f"api/step/57/row/{row}", start=0, stop=192)
    if colour == "loss":
        assert not any(hues.values())
    elif colour == "source":
        assert hues[1] == part["used"]
    elif colour == "segment":
        lengths = [segment["stop"] - segment["start"] for segment in part["segments"]]
        assert [hues[number] for number in range(len(lengths))] == lengths
    else:
        roles = page.served.answer("api/target")["roles"]
        for number, role in enumerate(roles):
            turns = [turn for turn in part["turns"] if turn["role"] == role]
            assert hues[number] == sum(turn["stop"] - turn["start"] for turn in turns)


def test_control_ids_are_pills_and_text_that_spells_them_is_not(page: Page) -> None:
    row = row_of(page, 1)
    part = page.served.answer(f"api/step/57/row/{row}", start=0, stop=192)
    page.open(f"step=57&open={row}")
    chips = f'.chunk[data-row="{row}"] .chip'
    assert page.count(f"{chips}.control") == len(part["controls"])
    spelled = "".join(page.texts(f"{chips}:not(.control):not(.padding)"))
    assert "<|im_end|>" in spelled  # the user's own words


def test_ranks_part_the_rows_and_one_is_shown_alone(page: Page) -> None:
    page.open("step=57&ranks=3&rank=1")
    rows = page.served.answer("api/step/57", world_size=3)["rows"]
    mine = [f"row {row['row']}" for row in rows if row["rank"] == 1]
    assert page.texts(".row-name") == mine
    page.press("r")
    page.wait_for(lambda: page.state["rank"] == "2")
    page.press("r")
    page.wait_for(lambda: len(page.texts(".row-name")) == 6)
    page.js("document.querySelector('.ranks input').select()")
    page.press("2", Keys.ENTER)
    page.wait_for(lambda: page.state["ranks"] == "2")
    page.wait_for(lambda: page.texts(".ranks .choice button") == ["all", "0", "1"])


@pytest.mark.soak
def test_a_token_that_weighs_less_is_paler_and_still_underlined(page: Page) -> None:
    page.open("step=57")
    grounds = page.driver.execute_async_script(
        "const done = arguments[0];"
        "import(document.baseURI.split('#')[0] + 'static/tokens.js').then((tokens) => {"
        "  const part = {start: 0, stop: 4, ids: [1, 2, 3, 4], texts: ['a', 'b', 'c', 'd'],"
        "    weights: [0, 0.1, 1, 3], controls: [], turns: [],"
        "    segments: [{number: 1, start: 0, stop: 4, source: 0}]};"
        "  const about = {sources: [], roles: [], has_tokenizer: true};"
        "  const palette = new tokens.Palette(about, 'loss');"
        "  const holder = document.querySelector('.chips');"
        "  holder.replaceChildren(tokens.chipsOf(part, 0, 4, palette));"
        "  done([...holder.querySelectorAll('.chip')].map((chip) => {"
        "    const style = getComputedStyle(chip);"
        "    return [style.backgroundColor, style.borderBottomStyle];"
        "  }));"
        "})"
    )
    (context, light, whole, more) = (ground for ground, _ in grounds)
    assert len({context, light, whole}) == 3
    assert whole == more
    assert [line for _, line in grounds] == ["none", "solid", "solid", "solid"]


@pytest.mark.soak
def test_answers_of_pairs_microbatches_and_missing_tokenizers_are_told(
    driver: Chrome, stores: Path, tmp_path: Path
) -> None:
    head = "seq_len = 256\nglobal_batch_size = 4\ngrad_accum = 2\n"
    pairs = {"name": "pairs", "path": str(stores / "pairs"), "rows": "pairs", "weight": 0.5}
    ids = {"name": "ids", "path": str(stores / "nowhere"), "rows": "packed", "weight": 0.5}
    recipe = write_recipe(tmp_path / "recipe.toml", head, pairs, ids)
    with serving(Answers(open_subjects([str(recipe)]))) as served:
        page = Page(driver, served)
        page.resize(1280, 800)
        row, numbers = row_of(page, 0, step=0), row_of(page, 1, step=0)
        page.open(f"row={row}&slot=2")
        page.wait("return document.querySelector('.panel .chip.big')")
        part = served.answer(f"api/step/0/row/{row}", start=0, stop=256)
        wanted = f"answer\n{part['segments'][0]['role_of_answer']}"
        page.wait_for(lambda: wanted in page.find(".panel").text)
        assert "microbatch 0" in page.find('.row[data-row="0"]').text
        assert "microbatch 1" in page.find('.row[data-row="3"]').text
        shown = served.answer(f"api/step/0/row/{numbers}", start=0, stop=256)["ids"]
        assert page.texts(f'.row[data-row="{numbers}"] .chip')[:5] == [str(n) for n in shown[:5]]


def test_the_panel_tells_what_a_token_sees_and_how_full_the_step_is(page: Page) -> None:
    row = row_of(page, 1)
    part = page.served.answer(f"api/step/57/row/{row}", start=0, stop=192)
    second = part["segments"][1]
    slot = second["start"] + 2
    page.open(f"step=57&row={row}&slot={slot}")
    page.wait("return document.querySelector('canvas.attention')")
    words = f"Slot {slot} sees slots {second['start']} to {slot}"
    page.wait_for(lambda: words in page.find(".panel").text)
    label = page.find("canvas.attention").get_attribute("aria-label")
    assert label is not None and label.startswith(words)
    # What the picture shows: the slot sees its own segment, and nothing of the first.
    colours = page.js(
        "const c = document.querySelector('canvas.attention'), side = c.width;"
        "const alpha = c.getContext('2d').getImageData(0, 0, side, side).data;"
        "const pixel = (slot) => Math.floor((slot + .5) / 192 * side);"
        "const at = (x, y) => alpha[4 * (pixel(y) * side + pixel(x)) + 3];"
        "return [at(arguments[0], arguments[0] + 8), at(1, arguments[0] + 8), at(180, 3)]",
        second["start"],
    )
    assert colours[0] > 0 and colours[1:] == [0, 0]
    summary = page.served.answer("api/step/57")
    assert f"{summary['trained']:,} of {summary['slots']:,}" in page.find(".panel").text


def test_every_control_has_a_name_and_can_be_reached_by_tab(page: Page) -> None:
    page.open("step=57&row=1&slot=3&ranks=2")
    nameless = page.js(
        "return [...document.querySelectorAll('button, input, a, [tabindex=\"0\"]')]"
        ".filter((e) => !e.closest('[hidden]') && !(e.textContent.trim() || e.ariaLabel))"
        ".map((e) => e.outerHTML)"
    )
    assert nameless == []
    seen = set()
    for _ in range(30):
        page.press(Keys.TAB)
        seen.add(
            page.js("return document.activeElement.className || document.activeElement.tagName")
        )
    assert {"step-field", "needle", "row-name"} <= seen
    outline = page.js("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


@pytest.mark.soak
def test_a_row_opened_by_its_button_keeps_the_focus(page: Page) -> None:
    page.open("step=57")
    page.js("document.querySelector('.row[data-row=\"1\"] .row-name').focus()")
    page.press(Keys.ENTER)
    page.wait("return document.querySelector('.row.open[data-row=\"1\"]')")
    assert page.js("return document.activeElement.textContent") == "row 1"
    assert page.js("return document.activeElement.getAttribute('aria-expanded')") == "true"
    page.press(Keys.ENTER)
    page.wait("return !document.querySelector('.row.open')")


@pytest.mark.soak
def test_help_lists_the_keys_and_escape_closes_it(page: Page) -> None:
    page.open()
    page.press("?")
    page.wait_for(lambda: "100 steps" in page.find("#keys").text)
    page.press(Keys.ESCAPE)
    page.wait("return !document.querySelector('#keys').open")


def test_light_and_dark_follow_the_system_or_the_reader(page: Page) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        page.paint(scheme)
        page.open()
        grounds[scheme] = page.js("return getComputedStyle(document.body).backgroundColor")
    assert grounds["light"] != grounds["dark"]
    page.press("t")  # from dark as the system has it to light
    ground = "return getComputedStyle(document.body).backgroundColor"
    page.wait_for(lambda: page.js(ground) == grounds["light"])
    page.press("t", "t")
    page.wait_for(lambda: page.js(ground) == grounds["dark"])
    page.paint("light")


@pytest.mark.parametrize(
    "width", [390, *(pytest.param(width, marks=pytest.mark.soak) for width in (768, 1024))]
)
def test_no_view_is_wider_than_its_window(page: Page, width: int) -> None:
    page.resize(width, 844, is_phone=width < 500)
    for fragment in (
        "step=57&row=1&slot=9&open=1",
        "view=document&source=1&document=3",
        "view=document&source=0&document=3",
        "view=store&store=0",
    ):
        page.open(fragment)
        wide = page.js(
            "return [...document.querySelectorAll('body *')]"
            ".filter((e) => e.getBoundingClientRect().right > arguments[0] + 1)"
            ".filter((e) => !e.closest('.scroll'))"
            ".map((e) => e.tagName + '.' + e.className)",
            width,
        )
        assert wide == [], fragment
        assert page.js("return document.documentElement.scrollWidth") <= width
