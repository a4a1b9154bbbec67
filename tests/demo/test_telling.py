"""What the demo tells, and how it looks: reasons now and then, within the width of a terminal, plainly without one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tocsin.demo.promises import PROMISES, Promises
from tocsin.demo.screen import Screen, foot, summary
from tocsin.demo.story import Line, Story
from tocsin.demo.supervision import Supervision
from tocsin.demo.warming import Warmth
from tocsin.model import Event

LONG = Line(75.2, "m3: no value for 3 s, " * 8, "nobody publishes silence, " * 12, "warning")


def on(width: int, *, terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False), out


def test_a_reason_is_told_first_and_again_after_a_minute() -> None:
    now, lines = [0.0], list[Line]()
    story = Story(lambda: now[0], lines.append)
    for now[0] in (0.0, 10.0, 59.0, 60.0, 61.0):
        story.tell("it", "because", topic="a")
        story.tell("whole", "because", topic="b", once=True)
    assert [line.why for line in lines if line.what == "it"] == ["because", "", "", "because", ""]
    assert [line.at for line in lines if line.what == "whole"] == [0.0, 60.0]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_lines_fit_the_terminal(width: int) -> None:
    console, out = on(width, terminal=True)
    Screen(console, headless=False).show(LONG)
    overview, promises = Supervision(), Promises()
    for number in range(8):
        overview.hear(Event("machine.value", "line", data={"machine": f"m{number}", "value": 9.0}, offset=number + 1))
    for key in PROMISES:
        promises.saw(key)
    console.print(foot("http://127.0.0.1:8420", promises, overview, Warmth()))
    summary(console, promises)
    shown = out.getvalue().splitlines()
    assert max(map(len, shown)) <= width
    assert shown[0].startswith(" 1:15 ! m3: no value for 3 s")
    beside = [line for line in shown if "│" in line]
    assert len(beside) > 2 and all(("m3" in beside[0]) == (width >= 100) for line in beside)
    assert "http://127.0.0.1:8420" in out.getvalue() and "m7 9.00" in out.getvalue()


def test_without_a_terminal_lines_are_plain_and_whole() -> None:
    console, out = on(80, terminal=False)
    Screen(console, headless=False).show(LONG)
    assert out.getvalue().splitlines() == [f"  75.2 s  {LONG.what}", f"          why: {LONG.why}"]


def test_what_was_seen_is_counted_from_the_beginning() -> None:
    now = [100.0]
    promises = Promises(spark=False, clock=lambda: now[0])
    assert promises.missing == [key for key, promise in PROMISES.items() if not promise.is_spark]
    now[0] = 103.5
    promises.saw("past")
    now[0] = 200.0
    promises.saw("past")
    promises.saw("spark")  # nobody asked for it
    assert promises.seen["past"] == (2, 3.5) and "past" not in promises.missing and "spark" not in promises.seen
    console, out = on(100, terminal=False)
    summary(console, promises)
    assert "    2 ×  first after   3.5 s" in out.getvalue() and "    0 ×  NOT SEEN" in out.getvalue()
