"""The files of the page: a list made once, from the package alone; no request names a path."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

INDEX = "index.html"
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    """A file of the page: its bytes and what they are."""

    content: bytes
    media_type: str


@cache
def page_files() -> dict[str, PageFile]:
    """Return all files of the page by their names; the style of chips is that of reports."""
    folders = [files("tokenreel.view") / "static", files("tokenreel.display")]
    found = {}
    for folder in folders:
        for file in folder.iterdir():
            ending = file.name.rpartition(".")[2]
            if ending in MEDIA_TYPES and file.is_file():
                content = file.read_bytes()
                found[file.name] = PageFile(content=content, media_type=MEDIA_TYPES[ending])
    return found
