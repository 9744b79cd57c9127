"""All readers can distinguish the colors, which have enough contrast with either page, and text on them is readable."""

import itertools
import math
import re
from typing import get_args

import pytest

from pages.figures import colors, ink
from runner.schema import Backend, Phase, Precision, Status

Vector = tuple[float, float, float]

#: Machado, Oliveira, Fernandes 2009, "A Physiologically-based Model for Simulation of Color Vision Deficiency".
_EYES: dict[str, tuple[Vector, Vector, Vector]] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}


def test_every_entity_has_a_color() -> None:
    for kind in (Phase, Precision, Backend, Status):
        assert all(colors.color_of(name) in colors.PALETTE for name in get_args(kind))


@pytest.mark.parametrize("family", colors.FAMILIES)
@pytest.mark.parametrize("eye", ["normal", "protanopia", "deuteranopia"])
def test_colors_of_a_family_stay_apart(family: str, eye: str) -> None:
    """They are at least 12 apart in CIELAB (2 is just noticeable), also for red- and green-blind readers."""
    seen = {name: _lab(_seen(color, eye)) for name, color in colors.FAMILIES[family].items()}
    close = {
        (a, b): math.dist(seen[a], seen[b])
        for a, b in itertools.combinations(seen, 2)
        if math.dist(seen[a], seen[b]) < 12
    }
    assert not close


@pytest.mark.parametrize("page", ["#FFFFFF", "#10151C"])
def test_colors_stand_out(page: str) -> None:
    """Contrast with the light and the dark page is at least 3:1 (WCAG 2.2, 1.4.11)."""
    for color in (*colors.PALETTE, colors.QUIET):
        light, dark = sorted((_luminance(_linear(color)), _luminance(_linear(page))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, color


@pytest.mark.parametrize(("page", "number"), [("#FFFFFF", 0), ("#10151C", 1)])
def test_text_in_any_color_can_be_read(page: str, number: int) -> None:
    """Contrast is at least 4.5:1 (WCAG 2.2, 1.4.3); every color of a chart has a matching text color."""
    rules = re.findall(r"rgb\((\d+), (\d+), (\d+)\)\"\] \{ fill: light-dark\((\S+), (\S+)\)", ink.ink_rules())
    inks = {"#" + "".join(f"{int(part):02X}" for part in rule[:3]): rule[3:][number] for rule in rules}
    assert {*colors.PALETTE, colors.QUIET, colors.STRONG} <= set(inks)
    for color, found in inks.items():
        light, dark = sorted((_luminance(_linear(found)), _luminance(_linear(page))), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, color


def _linear(color: str) -> Vector:
    parts = (int(color[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return red, green, blue


def _product(matrix: tuple[Vector, Vector, Vector], vector: Vector) -> Vector:
    x, y, z = (sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)
    return x, y, z


def _seen(color: str, eye: str) -> Vector:
    return _product(_EYES[eye], _linear(color))


def _luminance(linear: Vector) -> float:
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _lab(linear: Vector) -> Vector:
    """Returns the color in CIELAB under D65."""
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    relative = zip(_product(to_xyz, linear), (0.9505, 1.0, 1.089), strict=True)
    f = [max(v / w, 0) ** (1 / 3) if v / w > 0.008856 else 7.787 * v / w + 16 / 116 for v, w in relative]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])
