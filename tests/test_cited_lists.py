"""The numbered lists of docs/ and the tests that hold them name each other."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
NUMBERED = re.compile(r"^(\d+)\. ", re.MULTILINE)


def numbers_of(page: str) -> list[int]:
    return [int(number) for number in NUMBERED.findall((DOCS / page).read_text())]


def test_faults_and_properties_are_numbered_without_a_gap() -> None:
    for page in ("faults.md", "properties.md"):
        numbers = numbers_of(page)
        assert numbers == list(range(1, len(numbers) + 1))


def test_every_fault_has_tests_of_its_number_and_every_number_a_fault() -> None:
    tested = {int(file.name[5:7]) for file in (TESTS / "faults").glob("test_[0-9][0-9]_*.py")}
    assert tested == set(numbers_of("faults.md"))


def test_every_property_names_tests_that_exist() -> None:
    defined = {
        name
        for file in TESTS.rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }
    text = (DOCS / "properties.md").read_text()
    for number, entry in zip(numbers_of("properties.md"), NUMBERED.split(text)[2::2], strict=True):
        named = re.findall(r"`(test_\w+)`", entry)
        assert named, f"property {number} names no test"
        assert set(named) <= defined, f"property {number} names {set(named) - defined}"


def test_a_test_cites_no_fault_or_property_that_is_not_listed() -> None:
    pages = {"fault": set(numbers_of("faults.md")), "property": set(numbers_of("properties.md"))}
    cited = re.compile(r"\b(fault|property) (\d+)\b", re.IGNORECASE)
    wrong = [
        f"{file.relative_to(TESTS)}: {kind} {number}"
        for file in TESTS.rglob("*.py")
        for kind, number in cited.findall(file.read_text())
        if int(number) not in pages[kind.lower()]
    ]
    assert wrong == []
