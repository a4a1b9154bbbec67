"""Write docs/figures/figure.css into every figure, so that each can also be shown alone: `python -m tools.figures`.

A figure has its colours from there and nowhere else; a test compares.
"""

from __future__ import annotations

import re
from pathlib import Path

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)


def styled(drawing: str) -> str:
    """A figure with the style of today."""
    style = f"<style>\n{(FIGURES / 'figure.css').read_text()}</style>"
    return STYLE.sub(lambda _: style, drawing, count=1)


def main() -> None:
    """Renew all figures."""
    for path in sorted(FIGURES.glob("*.svg")):
        path.write_text(styled(path.read_text()))


if __name__ == "__main__":
    main()
