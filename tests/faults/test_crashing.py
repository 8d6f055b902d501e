"""The simulated disk itself: what a power failure takes of what was not synced."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.crashing import CrashingFileSystem


def renamed_folder(folder: Path, *, bytes_synced: bool, names_synced: bool) -> CrashingFileSystem:
    """Write a file into a folder and rename the folder durably."""
    disk = CrashingFileSystem()
    disk.make_dir(folder / "draft")
    with disk.create(folder / "draft/file") as output:
        output.write(b"words")
        if bytes_synced:
            output.sync()
    if names_synced:
        disk.sync_dir(folder / "draft")
    disk.rename(folder / "draft", folder / "final")
    disk.sync_dir(folder)
    return disk


@pytest.mark.parametrize(
    ("bytes_synced", "names_synced", "left"),
    [(True, True, b"words"), (False, True, b""), (True, False, None), (False, False, None)],
)
def test_a_renamed_folder_keeps_of_its_files_what_was_synced(
    tmp_path: Path, bytes_synced: bool, names_synced: bool, left: bytes | None
) -> None:
    disk = renamed_folder(tmp_path, bytes_synced=bytes_synced, names_synced=names_synced)
    assert (tmp_path / "final/file").read_bytes() == b"words"
    disk.fall("dropped")
    file = tmp_path / "final/file"
    assert (file.read_bytes() if file.exists() else None) == left
    assert not (tmp_path / "draft").exists() and (tmp_path / "final").is_dir()


def test_a_folder_whose_rename_is_lost_has_its_old_name_and_what_was_synced_in_it(
    tmp_path: Path,
) -> None:
    disk = CrashingFileSystem()
    disk.make_dir(tmp_path / "draft")
    with disk.create(tmp_path / "draft/file") as output:
        output.write(b"synced")
        output.sync()
        output.write(b" and not")
    disk.sync_dir(tmp_path / "draft")
    disk.rename(tmp_path / "draft", tmp_path / "final")
    disk.fall("dropped")
    assert (tmp_path / "draft/file").read_bytes() == b"synced"
    assert not (tmp_path / "final").exists()
