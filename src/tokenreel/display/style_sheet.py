"""The style sheets of this folder: as they are for a page, under names of their own for a notebook.

A notebook is somebody else's page. There the palette belongs to `.tokenreel` and not to the root,
every class has `tokenreel-` before its name, and dark follows the notebook's own theme where it
says so (JupyterLab, VS Code, Colab, pages of documentation), else the system.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

PREFIX = "tokenreel-"
CARD = ".tokenreel"
CHIPS_BEGIN = "/* chips:"
# How JupyterLab, VS Code, Colab and pages of documentation say which theme they are in.
SAID_LIGHT = (
    '[data-jp-theme-light="true"]',
    ".vscode-light",
    '[theme="light"]',
    '[data-theme="light"]',
)
SAID_DARK = (
    '[data-jp-theme-light="false"]',
    ".vscode-dark",
    '[theme="dark"]',
    '[data-theme="dark"]',
)


@cache
def style_of(name: str) -> str:
    """Return a style sheet of this folder in few characters, without its comments."""
    return _short((files("tokenreel.display") / name).read_text("utf-8"))


def _short(css: str) -> str:
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    return re.sub(r"\s*([{};,>])\s*", r"\1", re.sub(r"\s+", " ", css)).strip()


@cache
def notebook_style() -> str:
    """Return the style of everything that is drawn in a notebook; it touches nothing else there."""
    own = (files("tokenreel.display") / "notebook.css").read_text("utf-8")
    return f"<style>{notebook_palette()}{_short(_renamed(_parts()[1]) + own)}</style>"


@cache
def notebook_palette() -> str:
    """Return the palette for whatever is inside `.tokenreel`, in the theme of the notebook."""
    light, dark, *_ = re.findall(r"\{([^{}]*\bpaper:[^{}]*)\}", _parts()[0])
    rules = (
        f"{CARD}{{{light}}}",
        f"@media (prefers-color-scheme: dark){{{CARD}{{{dark}}}}}",
        f"{_below(SAID_LIGHT)}{{{light} color-scheme: light;}}",
        f"{_below(SAID_DARK)}{{{dark} color-scheme: dark;}}",
    )
    return _short("".join(rules))


@cache
def shadow_style() -> str:
    """Return the look of chips without a palette, for a tree of its own inside `.tokenreel`."""
    return _short(_parts()[1])


def _parts() -> tuple[str, str]:
    """Return chips.css in two: palettes, and chips."""
    text = (files("tokenreel.display") / "chips.css").read_text("utf-8")
    palettes, chips = text.split(CHIPS_BEGIN)
    return palettes, CHIPS_BEGIN + chips


def _below(themes: Sequence[str]) -> str:
    """Return the selector of cards anywhere below an element that names a theme."""
    return ",".join(f"{theme} {CARD}" for theme in themes)


def _renamed(css: str) -> str:
    """Return rules with `tokenreel-` before the name of every class."""
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    return re.sub(r"([^{}]+)\{", lambda found: _selector(found[1]) + "{", css)


def _selector(text: str) -> str:
    if "@media" in text:
        return text
    return f"{CARD} {re.sub(r'[.](?=[a-z])', f'.{PREFIX}', text.strip())}"
