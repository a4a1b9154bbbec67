"""Definitions that come and go while batches run: engines against one detector that is changed event by event."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tests.spark.detect_cases import some_definitions
from tests.spark.test_detect_engines import Store, batch_of, cut, some_stream
from tocsin import Detector, Event
from tocsin.composite.language import parse
from tocsin.spark.begins import Begin
from tocsin.spark.detected import PROGRESS
from tocsin.spark.detecting import Plan, plan
from tocsin.spark.packing import Chunk, Packing


def run(store: Store, made: Plan, batch: list[Event], draw: random.Random) -> list[Any]:
    """The rows that a batch gives."""
    rows: dict[tuple[int, int], list[Chunk]] = {}
    for part in cut(draw, batch):
        for packed in Packing(made).rows(iter([batch_of(part)])):
            for division, bucket, *chunk in zip(*(column.to_pylist() for column in packed.columns), strict=True):
                rows.setdefault((division, bucket), []).append(Chunk(*chunk))
    found: list[Any] = []
    for key, chunks in rows.items():
        draw.shuffle(chunks)
        for each in store.work(made, key, chunks).detected:
            with pa.ipc.open_stream(each) as reader:
                found += [row for rows in reader for row in rows.to_pylist()]
    return found


@pytest.mark.parametrize("seed", range(2))
def test_each_definition_sees_what_comes_after_it(seed: int) -> None:
    draw = random.Random(seed)
    events = some_stream(draw, 200)
    given = _alike(some_definitions(draw, events))
    batches = list(cut(draw, events))
    since, low = {}, 0
    for name in given:  # those that others are made of come first
        low = since[name] = min(180, low + draw.randint(0, 9))
    gone: dict[str, int] = {}  # name → the number of the batch that does without it
    used = {each.name for name in given for each in Detector.of(_parsed(given)).family(name)[:-1]}
    for name in given:
        if name not in used and draw.random() < 0.3:
            gone[name] = draw.randrange(len(batches))
    reference, store, wanted, found = Detector(), Store(draw), set[str](), list[str]()
    silent = {name for name in given if draw.random() < 0.2}
    for number, batch in enumerate(batches):
        first, last = batch[0].offset or 0, batch[-1].offset or 0
        for name in [each.name for each in reference.definitions() if gone.get(each.name, number + 1) <= number]:
            reference.undefine(name)
        for event in batch:
            for name, said in given.items():
                is_known = any(each.name == name for each in reference.definitions())
                if since[name] < (event.offset or 0) and not is_known and gone.get(name, number + 1) > number:
                    reference.define(name, *said)
            wanted |= {each.id for each in reference.feed(event) if each.type not in silent}
        known = {
            name: said
            for name, said in given.items()
            if gone.get(name, number + 1) > number and (since[name] < last or draw.random() < 0.1)
        }
        known = {each.name: given[each.name] for name in known for each in Detector.of(_parsed(given)).family(name)}
        if set(known) <= silent:
            assert not any(since[name] < last for name in known)
            continue
        made = plan(known, buckets=3, silent=silent, begins={name: Begin(since[name], 0) for name in known})
        rows = run(store, made, batch, draw)
        progress = [row for row in rows if row["type"] == PROGRESS]
        assert len(progress) == sum(made.buckets_of(each) for each in made.divisions) and first <= last
        found += [row["id"] for row in rows if row["type"] != PROGRESS]
    assert len(found) == len(set(found)) and set(found) == wanted
    assert len(found) > 50 and gone


def _parsed(given: Any) -> list[Any]:
    return [parse(name, *said) for name, said in given.items()]


def _alike(given: Any) -> Any:
    """Those that are made of nothing that goes BY other fields: of such they would see what comes after them alone."""
    whole = Detector.of(_parsed(given))
    families = {name: whole.family(name) for name in given}
    return {name: said for name, said in given.items() if len({each.by for each in families[name]}) == 1}


def test_one_that_was_removed_and_made_again_has_nothing_half_detected() -> None:
    draw = random.Random(1)
    text = {"pair": "SEQ([type = 'a'], [type = 'b']) BY machine"}
    stream = some_stream(draw, 3)
    a, b, c = (
        Event(kind, "/test", f"{kind}{each.offset}", data={"machine": "m1"}, offset=each.offset, arrived=each.arrived)
        for kind, each in zip("abb", stream, strict=True)
    )
    for again, count in ((0, 1), (1, 0)):
        store, found = Store(draw), list[Any]()
        for batch, since in (([a], 0), ([b], again), ([c], again)):
            made = plan(text, begins={"pair": Begin(since, 0)})
            found += [row for row in run(store, made, batch, draw) if row["type"] == "pair"]
        assert len(found) == count or (again == 0 and len(found) == 2)  # recent: an opener serves again
