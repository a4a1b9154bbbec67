"""The report of a back-test, without Spark: plots fit, steps are round, texts do nothing to a terminal."""

from __future__ import annotations

import io
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark")

from tocsin.clock import as_datetime, as_micros
from tocsin.spark.reporting import Backtest, Bar, Constituent, Example, plot, step_for

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def report(**changes: Any) -> Backtest:
    bars = tuple(Bar(NOON + timedelta(minutes=n), n % 5) for n in range(30))
    parts = (Constituent("x", NOON, 7, "a", "/s", "id", {"text": "\x1b[31m" + "x" * 200}), Constituent("t2", NOON))
    given: dict[str, Any] = {
        "text": "PLUS([type = 'a'], 1 MINUTE) BY machine",
        "kind": "composite",
        "context": "recent",
        "place": "file:plant.db",
        "first_offset": 1,
        "last_offset": 1000,
        "begin": NOON,
        "end": NOON + timedelta(minutes=30),
        "count": sum(bar.count for bar in bars),
        "first": NOON,
        "last": NOON + timedelta(minutes=29),
        "step": timedelta(minutes=1),
        "bars": bars,
        "grouped": "machine",
        "groups": 9,
        "largest": {"m1": 12, "m2": 3},
        "examples": (Example(NOON, "e1", {"machine": "m1"}, parts, "Because."),),
        "seconds": 2.0,
        "way": "2 engines",
    }
    return Backtest(**given | changes)


@pytest.mark.parametrize("seed", range(20))
def test_steps_are_few_and_cover_everything(seed: int) -> None:
    choose = random.Random(seed)
    begin = as_micros(NOON) + choose.randrange(10**9)
    end = begin + choose.choice((0, 1, 10**3, 10**6, 10**9, 10**12, 10**14, 3 * 10**15)) * choose.randrange(1, 9)
    step = step_for(begin, end)
    bars = end // step - begin // step + 1
    assert bars <= 60
    assert step == 1000 or bars > 4 or end == begin


@pytest.mark.parametrize("count", [1, 2, 13, 59, 60])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_plot_fits_and_shows_every_bar(count: int, width: int) -> None:
    bars = [Bar(as_datetime(n * 3_600_000_000), n * n) for n in range(count)]
    lines = list(plot([*bars[:-1], Bar(bars[-1].begin, 1_234_567)], timedelta(hours=1), width))
    assert len(lines) == 10 and lines[0].startswith("1,234,567 ┤")
    assert all(len(line) <= max(width, count + 12) for line in lines[:-1])
    bottom = lines[7].partition("┤")[2]
    assert bottom.rstrip().endswith("█")
    if count > 2:
        wide = len(lines[8].partition("└")[2]) // count
        assert bottom[wide] == "▁" and bottom[0] == " "  # what is little is seen, what is nothing is not


def test_text_for_people() -> None:
    text = str(report())
    assert "would have fired 60 times" in text and "9 different machine; most often" in text
    assert "Example 1: 2026-01-01T12:00:00Z  machine = 'm1'" in text and "(a timer)" in text
    assert "\x1b" not in text and "…" in text
    assert "would have fired once, at" in str(report(count=1))
    never = str(report(count=0, first=None, last=None, examples=(), groups=0, leaves={"type = 'a'": 3}))
    assert "never" in never and "type = 'a'  3 events" in never and "┤" not in never
    out = io.StringIO()
    report().show(out)
    assert out.getvalue().rstrip() == text.rstrip()


def test_json_carries_everything() -> None:
    found = msgspec.json.decode(msgspec.json.encode(report().as_dict()))
    assert (found["count"], found["events"], found["rate"], found["step"]) == (60, 1000, 500, 60.0)
    assert found["bars"][4] == {"begin": "2026-01-01T12:04:00Z", "count": 4}
    assert found["examples"][0]["constituents"][1]["offset"] is None
