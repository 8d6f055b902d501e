"""The room itself: few files, each named for what it holds."""

from __future__ import annotations

from pathlib import Path

import tokenreel

SOURCE = Path(tokenreel.__file__).parent


def test_the_stream_is_at_most_twelve_files_of_names_that_no_other_room_has() -> None:
    room = SOURCE / "stream"
    names = {file.name for file in room.glob("*.py")}
    assert len(names) <= 12
    elsewhere = {file.name for file in SOURCE.rglob("*.py") if file.parent != room}
    assert names & elsewhere == {"__init__.py"}
