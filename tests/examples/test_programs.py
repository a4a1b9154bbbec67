"""Every program in `examples/` runs as a newcomer would run it: a process of its own that prints what was promised,
leaves nothing behind, and ends by itself with 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

SHOWN = {
    # What each must print, in this order; whatever stands between is its own affair.
    "alert_desk": [
        "hall-1 got fire, priority 10\n  hall-1 got lamp.broken, priority 2\n\n",  # overtaken; the door has expired
        "The fire is live: answered by ['hall-1'], not yet by ['hall-2'].",
        "The desk cancels that alert before hall 2 has looked.\n  hall-2 got fire\n\n",  # and not the lift
        "fire was acknowledged by hall-1\n  fire was acknowledged by hall-2",
        "door: expired, answered by []",
        "lift: cancelled, answered by []",
        "fire: settled, answered by ['hall-1', 'hall-2']",
        "00:00:00 published desk",
        "00:01:01 acked hall-2",
    ],
    "plant_supervision": [
        "m1: normal, m2: normal, m3: normal",
        "m1: normal, m2: normal, m3: inactive",
        "possible_stop m2\n         drifting m1\n         m1: normal, m2: possible stop, m3: inactive",
        "back_to_normal m2\n         m1: normal, m2: normal, m3: inactive",
        "possible_stop m1\n         possible_stop m2\n         m1: possible stop, m2: possible stop, m3: inactive",
    ],
    "door_badge_motion": [
        "ALARM: break_in at the north door. Why?",
        "break_in occurred at 2026-01-01T00:00:44Z for door = 'north'",
        "opener  opened",
        "closer  motion",
        "Why not earlier: Until motion came",
        "break_in was detected 1 time, in a night of 7 events.",
    ],
    "parameter_server": [
        "NoServer: nobody serves 'params'",
        "'limit': 9.1, 'from': 'left', 'attempt': 1",
        "'limit': 9.1, 'from': 'right', 'attempt': 1",
        "first answer counts:\n  answer: {'limit': 12.0",
        "[{'limit': 12.0, 'from': 'left', 'attempt': 1}, {'limit': 12.0, 'from': 'right', 'attempt': 1}]",
        "RequestFailed: 'left' failed to answer for 'params': KeyError: 'm9'",
        "RequestTimeout: 'right' did not answer for 'params' within 0.2 s",
        "the other one is asked:\n  answer: {'limit': 9.1, 'from': 'right', 'attempt': 2}",
        "Then that one dies as well:\n  ",
    ],
}


def run(name: str, directory: Path) -> str:
    """Run an example in an empty directory, which it must leave empty."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        cwd=directory,
        env=os.environ | {"TMPDIR": str(directory), "PYTHONPATH": str(EXAMPLES.parent / "src")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert not list(directory.iterdir())
    return done.stdout


@pytest.mark.parametrize("name", SHOWN)
def test_it_shows_what_it_promises(name: str, tmp_path: Path) -> None:
    printed, at = run(name, tmp_path), 0
    for text in SHOWN[name]:
        found = printed.find(text, at)
        assert found >= 0, f"{text!r} is not there, or not in this order:\n{printed}"
        at = found + len(text)
    if name == "door_badge_motion":
        assert printed.count("ALARM") == 1
    if name == "parameter_server":
        assert printed.splitlines()[-1].split(":")[0].strip() in ("NoServer", "ServerLost")


def test_late_traders_hear_the_newest_rate_of_their_own_and_then_every_new_one(tmp_path: Path) -> None:
    lines = run("currency_rates", tmp_path).splitlines()
    for name, heard in {
        "ann": ["newest known: EUR/USD 1.084", "live: EUR/USD 1.09"],
        "bob": ["newest known: USD/JPY 151.9", "live: USD/JPY 152.3"],
        "eve": ["newest known: EUR/CHF 0.952", "live: EUR/CHF 0.949"],
        "joe": ["live: GBP/USD 1.27"],
    }.items():
        assert [line.split(", ", 1)[1] for line in lines if line.startswith(name)] == heard


def test_every_example_is_in_the_index_and_tested() -> None:
    there = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    index = (EXAMPLES / "README.md").read_text()
    assert [name for name in sorted(there) if f"]({name})" not in index] == []
    assert {name for name in there if name.endswith(".py")} == {f"{name}.py" for name in (*SHOWN, "currency_rates")}
