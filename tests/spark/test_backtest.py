"""`ts.backtest`: what would have fired, counted and explained, over journals and lakes; what is said of mistakes."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.spark.detect_cases import NOON, events_in, expected, plant
from tocsin import BoundError, DefinitionError, Event, Filter, FilterError, JournalError, TocsinError
from tocsin import spark as ts
from tocsin.clock import ManualClock, as_micros
from tocsin.composite.language import parse
from tocsin.journal.archiver import archive
from tocsin.journal.reader import open_reader
from tocsin.journal.sqlite import SqliteJournal
from tocsin.spark import reporting
from tocsin.sync import connect

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAIR = "SEQ([type = 'a'] AS x, [type = 'b'] AS y) WITHIN 30 SECONDS BY machine"
LATE = "PLUS([type = 'a'] AS x, 10 SECONDS) BY machine"


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("backtest") / "plant.db", 21, 400)


@pytest.mark.parametrize(("text", "way"), [(PAIR, "window functions of Spark"), (LATE, "2 engines")])
def test_a_composite_event(spark: Any, journal: Path, text: str, way: str) -> None:
    events = events_in(journal)
    wanted = sorted(expected({"alarm": text}, events).values(), key=lambda event: event.time)
    told: list[tuple[int, int | None]] = []
    found = ts.backtest(spark, f"file:{journal}", text, name="alarm", progress=lambda *each: told.append(each))
    assert found.kind == "composite" and found.way == way
    assert found.count == len(wanted) > 20
    assert (found.first, found.last) == (wanted[0].time, wanted[-1].time)
    assert sum(bar.count for bar in found.bars) == found.count and len(found.bars) <= 60
    assert (found.first_offset, found.last_offset, found.events) == (1, len(events), len(events))
    for bar in found.bars:
        inside = [event for event in wanted if bar.begin <= event.time < bar.begin + found.step]
        assert len(inside) == bar.count
    by_key = Counter(json.dumps(event.data["key"]["machine"], ensure_ascii=False) for event in wanted)
    assert found.grouped == "machine" and found.groups == len(by_key)
    assert list(found.largest.values()) == sorted(by_key.values(), reverse=True)[:5]
    assert found.largest.items() <= by_key.items()
    known = {event.id: event for event in wanted}
    by_offset = {event.offset: event for event in events}
    assert len(found.examples) == 3
    for example in found.examples:
        parts = known[example.id].data["parts"]
        assert [part.offset for part in example.constituents] == [part.get("offset") for part in parts]
        assert example.time == known[example.id].time and "until" in example.explanation.lower()
        for part in example.constituents:
            if part.offset is not None:
                event = by_offset[part.offset]
                assert (part.type, part.data, part.time) == (event.type, event.data, event.arrived)
    assert told and all(total is not None and 0 <= done <= total for done, total in told)
    assert json.loads(json.dumps(found.as_dict()))["count"] == found.count
    assert f"{found.count:,} times" in str(found) and "█" in str(found)
    step = found.step // timedelta(microseconds=1)
    begins = [as_micros(bar.begin) for bar in found.bars]
    assert begins == list(range(begins[0], begins[-1] + 1, step)) and begins[0] % step == 0
    assert begins[0] <= as_micros(found.begin) and begins[-1] <= as_micros(found.end) < begins[-1] + step


def test_a_filter_and_a_stretch_of_time(spark: Any, journal: Path) -> None:
    since, until = NOON + timedelta(minutes=1), NOON + timedelta(minutes=4)
    inside = [event for event in events_in(journal) if since <= event.arrived <= until]
    test = Filter("value > 3 AND type <> 'd'")
    wanted = [event for event in inside if test.matches(event)]
    found = ts.backtest(spark, f"file:{journal}", "value > 3 AND type <> 'd'", since=since, until=until, examples=2)
    assert (found.kind, found.count, found.groups) == ("filter", len(wanted), len({event.type for event in wanted}))
    assert found.first_offset == inside[0].offset and found.last_offset == inside[-1].offset
    assert found.count > 10
    assert [each.id for each in found.examples] == [wanted[0].id, found.examples[1].id]
    by_offset = ts.backtest(
        spark, journal, PAIR, since=found.first_offset, until=str(found.last_offset), context="chronicle"
    )
    again = expected({"backtest": (PAIR, "chronicle")}, inside)
    assert by_offset.count == len(again) > 3
    assert {each.id for each in by_offset.examples} <= again.keys()


def test_a_lake_alone_and_a_journal_that_goes_on_in_one(spark: Any, journal: Path, tmp_path: Path) -> None:
    copy, lake = tmp_path / "plant.db", tmp_path / "lake"
    copy.write_bytes(journal.read_bytes())
    wanted = expected({"backtest": LATE}, events_in(copy))
    with open_reader(copy) as reader:
        archive(reader, str(lake))
    alone = ts.backtest(spark, lake, LATE)
    assert (alone.count, alone.events) == (len(wanted), len(events_in(copy)))
    with SqliteJournal(copy) as opened:
        opened.trim(200)
    whole = ts.backtest(spark, f"file:{copy}", LATE, lake=lake)
    assert (whole.count, whole.first_offset) == (len(wanted), 1)
    assert [each.id for each in whole.examples] == [each.id for each in alone.examples]


def test_what_never_fires_says_what_its_filters_match(spark: Any, journal: Path) -> None:
    found = ts.backtest(spark, f"file:{journal}", "SEQ([type = 'a'], [type = 'never']) BY machine")
    assert found.count == 0 and found.first is None and found.examples == ()
    assert found.leaves["type = 'never'"] == 0 and found.leaves["type = 'a'"] > 50
    assert "would have fired never" in str(found)


def test_timers_fire_up_to_until(spark: Any, journal: Path) -> None:
    events = events_in(journal)
    last = events[-1].arrived
    text = "PLUS([type = 'a'], 40 SECONDS)"
    found = ts.backtest(spark, journal, text, until=last + timedelta(hours=1))
    assert found.count == len(expected({"backtest": text}, events)) + 1 and found.end == last + timedelta(hours=1)


def test_mistakes_are_told(spark: Any, journal: Path, tmp_path: Path) -> None:
    url = f"file:{journal}"
    with pytest.raises(DefinitionError) as bad:
        ts.backtest(spark, url, "SEQ([type = 'a'], [type ==== 'b'])")
    assert bad.value.position is not None and "^" in str(bad.value)
    with pytest.raises(FilterError) as worse:
        ts.backtest(spark, url, "value >")
    assert worse.value.position is not None
    with pytest.raises(DefinitionError, match="context"):
        ts.backtest(spark, url, PAIR, context="often")
    with pytest.raises(DefinitionError, match="break_in"):
        ts.backtest(spark, url, "SEQ(break_in, [type = 'a'])")
    with pytest.raises(BoundError, match="no events") as nothing:
        ts.backtest(spark, url, PAIR, since="1h")
    assert nothing.value.help is not None and "2026-01-01T12:00:00Z" in nothing.value.help
    for wrong in ("soon", -1, "1 year", True):
        with pytest.raises(BoundError, match="since"):
            ts.backtest(spark, url, PAIR, since=wrong)
    with pytest.raises(JournalError, match="there is no journal"):
        ts.backtest(spark, tmp_path / "nowhere.db", PAIR)
    with pytest.raises(JournalError, match="no lake"):
        ts.backtest(spark, tmp_path, PAIR)
    SqliteJournal(tmp_path / "empty.db").close()
    with pytest.raises(BoundError, match="is empty"):
        ts.backtest(spark, tmp_path / "empty.db", PAIR)


def test_a_picture(spark: Any, journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("matplotlib.image")
    found = ts.backtest(spark, journal, "type = 'a'", examples=0)
    found.png(tmp_path / "pair.png")
    picture = image.imread(tmp_path / "pair.png")
    assert picture.shape[0] > 200 and picture.shape[1] > 400
    bars = msgspec.structs.replace(found, bars=tuple(msgspec.structs.replace(each, count=0) for each in found.bars))
    bars.png(tmp_path / "nothing.png")
    assert (image.imread(tmp_path / "nothing.png") != picture).any(), "the bars are in it"
    with pytest.raises(FileNotFoundError):
        found.png(tmp_path / "nowhere" / "pair.png")
    monkeypatch.setattr(reporting.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TocsinError, match="matplotlib") as missing:
        found.png(tmp_path / "again.png")
    assert missing.value.help == "pip install 'tocsin[plot]'"


def test_examples_where_all_is_in_one_bar(spark: Any, tmp_path: Path) -> None:
    """There are as many as were asked for, if so many there are; keys 1 and "1" are told apart."""
    clock = ManualClock(NOON)
    with SqliteJournal(tmp_path / "plant.db", clock=clock) as journal:
        journal.append([Event("a", "/x", data={"k": n % 2 or "1"}) for n in range(40)])
        clock.advance(7200)
        journal.append([Event("b", "/x", data={"k": 1}), Event("b", "/x", data={"k": "1"})])
    for text, count, wanted in (("type = 'a'", 40, 5), ("SEQ([type = 'a'], [type = 'b']) BY k", 2, 2)):
        found = ts.backtest(spark, tmp_path / "plant.db", text, examples=5)
        assert (found.count, sum(bar.count > 0 for bar in found.bars)) == (count, 1)
        assert len({each.id for each in found.examples}) == len(found.examples) == wanted
        assert [each.time for each in found.examples] == sorted(each.time for each in found.examples)
    assert found.largest == {"1": 1, '"1"': 1}
    assert len(ts.backtest(spark, tmp_path / "plant.db", "type = 'a' OR type = 'b'", examples=3).examples) == 3


def test_what_a_node_has_defined(spark: Any, journal: Path, tmp_path: Path) -> None:
    """A name is tested as it is defined, and definitions may be named; those given go before the node's."""
    copy = tmp_path / "plant.db"
    copy.write_bytes(journal.read_bytes())
    first = "SEQ([type = 'a'], [type = 'b']) BY machine"
    with connect(f"file:{copy}", name="test") as bus:
        bus.define("first", first, context="chronicle")
        bus.define("both", "AND([type = 'a'], [type = 'c']) BY machine", semantics="interval")
    events = [event for event in events_in(copy) if not event.type.startswith("tocsin.definition")]
    by_name = ts.backtest(spark, copy, "first")
    assert (by_name.kind, by_name.context, by_name.text) == ("composite", "chronicle", parse("first", first).text)
    wanted = expected({"first": (first, "chronicle")}, events)
    assert by_name.count == len(wanted) > 5 and {each.id for each in by_name.examples} <= wanted.keys()

    text = "SEQ(first AS f, both AS b) BY machine"
    known = {
        "first": (first, "chronicle"),
        "both": ("AND([type = 'a'], [type = 'c']) BY machine", "recent", "interval"),
    }
    wanted = {
        id: event
        for id, event in expected(known | {"alarm": (text, "continuous", "interval")}, events).items()
        if event.type == "alarm"
    }
    for given in (None, known):
        place = copy if given is None else journal
        found = ts.backtest(
            spark, place, text, context="continuous", semantics="interval", name="alarm", definitions=given
        )
        assert found.count == len(wanted) > 5 and {each.id for each in found.examples} <= wanted.keys()
    with pytest.raises(DefinitionError, match="first"):
        ts.backtest(spark, copy, text, definitions={})
    assert ts.backtest(spark, copy, "machine").kind == "filter", "a name that nobody has defined is a field"


def test_what_a_thread_says_of_its_jobs_is_put_back(spark: Any, journal: Path) -> None:
    context = spark.sparkContext
    names = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
    before = [context.getLocalProperty(name) for name in names]
    ts.backtest(spark, journal, "type = 'a'", examples=0)
    assert [context.getLocalProperty(name) for name in names] == before
