"""Figures have their colours from one style, which can be read in light and in dark."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from tools.figures import FIGURES, styled

STYLE = (FIGURES / "figure.css").read_text()
DRAWN = [path for path in sorted(FIGURES.glob("*.svg")) if path.stem != "bell"]
SETS = [dict(re.findall(r"--fig-([a-z-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r"{[^{}]*}", STYLE)]
LIGHT, *DARK = (colours for colours in SETS if colours)
AA = 4.5
"""WCAG AA asks this contrast of text."""


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_measured_rightly() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize(("colours", "page"), [(LIGHT, "#ffffff"), (DARK[0], "#1e2129")], ids=["light", "dark"])
def test_texts_can_be_read_on_every_ground(colours: dict[str, str], page: str) -> None:
    grounds = [page, *(value for name, value in colours.items() if name.endswith("back") or name in ("paper", "panel"))]
    assert len(grounds) == 7
    for ink, ground in product(("ink", "soft"), grounds):
        assert contrast(colours[ink], ground) >= AA, f"{ink} {colours[ink]} on {ground}"


def test_dark_is_the_same_by_system_and_by_choice() -> None:
    assert len(DARK) == 2 and DARK[0] == DARK[1] and DARK[0].keys() == LIGHT.keys()


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_a_figure_says_what_it_shows_and_has_the_style_of_today(path: Path) -> None:
    drawing = path.read_text()
    assert styled(drawing) == drawing, "run: python -m tools.figures"
    body = re.sub(r"<style>.*?</style>", "", drawing, flags=re.DOTALL)
    assert re.search(r"<title>[^<]{5,}</title>", body) and re.search(r"<desc>[^<]{40,}</desc>", body)
    assert not re.search(r"(fill|stroke|style)=|#(?!arrow)", body), "a colour of its own"
