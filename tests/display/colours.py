"""The colours of chips.css as numbers: contrast by WCAG 2.2, distance as an eye sees it."""

from __future__ import annotations

import re
from importlib.resources import files

import numpy as np

Palette = dict[str, str]

# Machado, Oliveira and Fernandes 2009, severity 1.0: linear RGB as those who lack a kind of cone
# see it.
EYES = {
    "usual": np.eye(3),
    "without red": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "without green": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "without blue": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
# Ottosson 2020: linear RGB to cone responses to OKLab, in which equal distances look equal.
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def sheet() -> str:
    return (files("tokenreel.display") / "chips.css").read_text("utf-8")


def palettes() -> list[Palette]:
    """Return the palettes in their order: light, the system's dark, the reader's dark."""
    blocks = re.findall(r"\{([^{}]*--paper:[^{}]*)\}", sheet())
    found = [dict(re.findall(r"--([\w-]+):\s*([^;]+);", block)) for block in blocks]
    assert len(found) == 3
    return found


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def mixed(first: str, share: float, second: str) -> str:
    """Return what color-mix(in srgb, first share, second) is."""
    parts = (
        round(share * int(first[at : at + 2], 16) + (1 - share) * int(second[at : at + 2], 16))
        for at in (1, 3, 5)
    )
    return "#" + "".join(f"{part:02x}" for part in parts)


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours: 1 for the same, 21 for black on white."""
    dark, light = sorted(
        float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (first, second)
    )
    return (light + 0.05) / (dark + 0.05)


def distance(first: str, second: str, eye: str) -> float:
    """Return how far apart two colours look to an eye; black and white are 100 apart."""
    seen = (np.clip(EYES[eye] @ linear(colour), 0, 1) for colour in (first, second))
    one, other = (TO_LAB @ np.cbrt(TO_CONES @ light) for light in seen)
    return 100 * float(np.linalg.norm(one - other))
