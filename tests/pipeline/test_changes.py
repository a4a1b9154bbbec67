"""Definitions come, change and go while events pour in: each finds what a detector finds that is changed where it was,
and the others are not disturbed.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tests.pipeline.plant import until
from tests.pipeline.storm import DEFINED, PACES, Storm
from tocsin import Detector, Event
from tocsin.journal.reader import open_reader

pytestmark = [
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
    pytest.mark.timeout(900),
]

GUESTS = (
    "SEQ([type = 'b'], [type = 'a']) BY k",
    "SEQ([type = 'b'], [type = 'a'])",  # in one task
    "PLUS([type = 'b'], 1 SECOND) BY k",
    "SEQ(pair, [type = 'a']) BY k",  # made of one that stays
    "SEQ(pair, [type = 'a'])",  # and goes BY others than that
)
NEVER = "SEQ([type = 'none'], [type = 'a']) BY k"


@pytest.mark.parametrize("pause", PACES)
def test_definitions_come_and_go_while_events_pour_in(tmp_path: Path, pause: float) -> None:
    storm = Storm(tmp_path / "data", 2, pause)
    begins = []
    try:
        storm.define("pair")
        storm.define("stop")
        storm.wait_for_more(20)
        for text in GUESTS:
            begins.append(storm.plant.tocsin("define", "guest", text, "--replace")["since"])
            until(lambda: _is_found(storm, begins[-1]), f"{text} is found")
            storm.wait_for_more(20)
        begins.append(storm.plant.tocsin("define", "guest", NEVER, "--replace")["since"])
        storm.plant.tocsin("undefine", "guest")
        storm.define("trio")
        storm.wait_for_more(60)
        assert storm.plant.status()["restarts"] == 0, "the application was not started again"
    finally:
        storm.end()
    storm.check()
    guests = _guests(storm)
    lengths = Counter(len(event.data["parts"]) for event in guests)
    assert set(lengths) >= {2, 3} and len({event.id for event in guests}) == len(guests)
    assert {event.id for event in guests} == _expected(storm, begins)


def _expected(storm: Storm, begins: list[int]) -> set[str]:
    """What a detector finds in the journal whose definitions change where those of the node did."""
    with open_reader(storm.data / "journal.db") as reader:
        events = [event for block in reader.blocks() for event in block.events()]
    changes = [(storm.since["pair"], "pair", DEFINED["pair"])]
    changes += [(since, "guest", text) for since, text in zip(begins, (*GUESTS, NEVER), strict=True)]
    detector, found = Detector(), set()
    for event in events:
        while changes and changes[0][0] < (event.offset or 0):
            detector.define(*changes.pop(0)[1:], replace=True)
        found |= {each.id for each in detector.feed(event) if each.type == "guest"}
    assert found and not changes
    return found


def _guests(storm: Storm, first: int = 1) -> list[Event]:
    with open_reader(storm.data / "journal.db") as reader:
        return [event for block in reader.blocks(first) for event in block.events() if event.type == "guest"]


def _is_found(storm: Storm, since: int) -> bool:
    """Was something derived last that begins behind an offset? What lies before that is not read again and again."""
    return any(event.data["parts"][0]["offset"] > since for event in _guests(storm, since + 1)[-1:])
