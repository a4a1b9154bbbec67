"""Settings shared by all tests: how hard Hypothesis tries, and a note on files that grow long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

SOURCE = Path(__file__).resolve().parents[1] / "src" / "tocsin"
LONG = 400
"""Lines a module should stay under; `test_layers.py` refuses what is far above it."""

# `ci` tries the same examples every time: a red build means a change, not luck. `thorough` looks for new ones.
# No deadline and no "too slow" check: both measure the machine, and ours are shared.
COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("ci", derandomize=True, max_examples=100, **COMMON)
settings.register_profile("thorough", max_examples=5_000, **COMMON)
settings.load_profile(os.environ.get("TOCSIN_HYPOTHESIS", "ci"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List modules that should be split before they become a burden."""
    lengths = {path: len(path.read_text().splitlines()) for path in sorted(SOURCE.rglob("*.py"))}
    for path, lines in lengths.items():
        if lines > LONG:
            terminalreporter.write_line(f"note: {path.relative_to(SOURCE.parent)} has {lines} lines, more than {LONG}")
