"""Columns of what was detected: the same whether pairs are made at once or one by one; `parts` as in the payload."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tests.composite.in_columns import rows_of
from tests.composite.test_rows import APART, some_events
from tocsin import Detector, Event
from tocsin.clock import as_micros
from tocsin.composite.deriving import Derived
from tocsin.model import parse_time
from tocsin.spark import detected


def found_in(made: Detector, events: Sequence[Event]) -> list[Derived]:
    """What is detected in some batches: openers of one are closed in another."""
    names, found = [each.name for each in made.definitions()], []
    for begin in range(0, len(events), 100):
        batch = events[begin : begin + 100]
        derived = Derived()
        assert batch[0].arrived is not None and batch[-1].arrived is not None and batch[-1].offset is not None
        made.begin(max(as_micros(batch[0].arrived), made.time))
        made.feed_rows(rows_of(made, batch), derived, names)
        made.reach(batch[-1].offset, as_micros(batch[-1].arrived), derived, names)
        found.append(derived)
    return found


def told(found: Sequence[Derived], *, is_exact: bool = False) -> list[dict[str, Any]]:
    rows = [row for each in found for batch in detected.batches(each, is_exact=is_exact) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: str(row["id"]))


def parts_in(data: str) -> list[dict[str, Any]]:
    """What the payload says of parts, as the column has it."""
    nothing = {"name": None, "offset": None, "id": None, "source": None, "time": None}
    parts = [nothing | part for part in msgspec.json.decode(data)["parts"]]
    return [part | {"time": part["time"] and parse_time(part["time"], "time")} for part in parts]


@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_pairs_at_once_are_as_pairs_one_by_one(seed: int, is_exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(f"detected {seed}")
    texts, events = draw.sample(APART, 4), some_events(draw, 400)
    contexts = [draw.choice(("recent", "chronicle", "continuous")) for _ in texts]
    rows = []
    for few in (0, 1 << 30):
        monkeypatch.setattr(detected, "_FEW", few)
        made = Detector()
        for number, (text, context) in enumerate(zip(texts, contexts, strict=True)):
            made.define(f"d{number}", text, context)
        found = found_in(made, events)
        assert any(each.pairs for each in found)
        rows.append(told(found, is_exact=is_exact))
    assert len(rows[0]) > 50
    assert rows[0] == rows[1]


def test_rows_that_came_before_bring_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detected, "_FEW", 0)
    made, derived = Detector(), Derived()
    made.define("pair", APART[0], "chronicle")
    rows = rows_of(made, some_events(random.Random("again"), 100))
    made.feed_rows(rows, derived, ["pair"])
    once = told([derived])
    made.feed_rows(rows, derived, ["pair"])
    assert len(derived.pairs) == 2
    assert told([derived]) == once != []


def test_parts_are_those_of_the_payload() -> None:
    """Of events and of ticks, with names and without."""
    draw, made = random.Random("parts"), Detector()
    for number, text in enumerate(
        [
            *APART[:2],
            "P([type = 'a'], 1 SECOND, [type = 'c']) BY machine",
            "SEQ([type = 'b'] AS x, PLUS([type = 'c'], 1 SECOND)) BY machine",
            "ANY(3, [type = 'a'], [type = 'b'], [type = 'c'], [type = 'd']) BY machine",
        ]
    ):
        made.define(f"d{number}", text, "chronicle")
    rows = told(found_in(made, some_events(draw, 400)))
    assert {row["type"] for row in rows} == {each.name for each in made.definitions()}
    for row in rows:
        assert row["parts"] == parts_in(row["data"])
