"""Plan, packing and engines without a Spark: many random cases, cut in every way, against one detector."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; `make setup` installs it")

from tests.composite.test_rows import APART
from tests.spark.detect_cases import NOON, Definitions, expected, some_definitions
from tocsin import DefinitionError, Event
from tocsin.clock import as_micros
from tocsin.composite.expression import CONTEXTS
from tocsin.composite.keys import settled
from tocsin.journal.columns import SOURCE_ARROW, Columns
from tocsin.journal.rows import to_arrow, to_row
from tocsin.spark import detected as columns
from tocsin.spark import engines
from tocsin.spark.chunks import Chunk
from tocsin.spark.detecting import Plan, plan
from tocsin.spark.engines import Answer, Engines, Stored, Work, written
from tocsin.spark.packing import NOBODY, Packing
from tocsin.spark.picking import bucket_of

pytestmark = pytest.mark.spark


def some_stream(draw: random.Random, count: int) -> list[Event]:
    found, time = [], NOON
    for offset in range(1, count + 1):
        data = {"machine": draw.choice(["m1", "m1", "m2", 7, 7.0, True, None, [1]]), "value": draw.randint(0, 5)}
        kind, source = draw.choice("aaabbbcccde"), "/test"
        if draw.random() < 0.08:
            kind, source = draw.choice((("tocsin.clock", "tocsin"), ("tocsin.note", "t"), ("a", "tocsin:definitions")))
        found.append(Event(kind, source, f"e{offset}", data=data, offset=offset, arrived=time))
        time += timedelta(seconds=draw.choice((0, 0, 0.5, 1, 2, 3)))
    return found


def batch_of(events: list[Event]) -> pa.RecordBatch:
    rows = [to_row(event) for event in events]
    assert all(event.arrived is not None for event in events)
    made = to_arrow(rows, 1, [as_micros(event.arrived) for event in events if event.arrived is not None])
    offsets = pa.array([event.offset for event in events], pa.int64())
    return Columns(SOURCE_ARROW).of_journal(made.set_column(0, made.schema.field(0), offsets))


def chunks_of(made: Plan, events: list[Event]) -> Iterator[tuple[tuple[int, int], Chunk]]:
    """What a task makes of a batch of rows: division and bucket, and what they get."""
    for packed in Packing(made).rows(iter([batch_of(events)])):
        for _, division, bucket, *chunk in zip(*(each.to_pylist() for each in packed.columns), strict=True):
            if division == NOBODY:
                assert chunk[1] == max(event.offset or 0 for event in events)
            else:
                yield (division, bucket), Chunk(*chunk)


def cut(draw: random.Random, items: list[Any]) -> Iterator[list[Any]]:
    while items:
        size = draw.randint(1, max(1, min(len(items), 40)))
        yield items[:size]
        items = items[size:]


class Store:
    """What the state store does, and what may go wrong with engines: one is lost, a batch is done twice."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.engines = draw, Engines()
        self.states: dict[tuple[int, int], tuple[bytes, bytes, Stored]] = {}
        self.revived = 0

    def work(self, made: Plan, key: tuple[int, int], chunks: list[Chunk]) -> Answer:
        lineage, token, stored = self.states.get(key, (os.urandom(8), b"", Stored(None, [])))
        save = stored.snapshot is None or self.draw.random() < 0.2
        if self.draw.random() < 0.1:
            self.engines = Engines()
        answer = None
        for _ in range(2 if self.draw.random() < 0.2 else 1):  # the first attempt comes to nothing
            work = Work(lineage, token, os.urandom(8), made.division(key[0]), written(chunks), save)
            work = msgspec.msgpack.decode(msgspec.msgpack.encode(work), type=Work)
            answer = self.engines.run(work)
            if answer is None:
                self.revived += 1
                answer = self.engines.run(msgspec.structs.replace(work, stored=stored))
        assert answer is not None
        if answer.snapshot is not None:
            stored = Stored(answer.snapshot, [])
        else:
            stored = Stored(stored.snapshot, [*stored.batches, written(chunks)])
        self.states[key] = lineage, work.after, stored
        return answer


def detected(made: Plan, events: list[Event], draw: random.Random) -> tuple[list[str], int]:
    """What comes out when events are cut into batches, partitions and chunks of any size and order."""
    store, found = Store(draw), []
    for batch in cut(draw, events):
        rows: dict[tuple[int, int], list[Chunk]] = {}
        if draw.random() < 0.2:  # rows in any order: chunks overlap
            draw.shuffle(batch)
        for part in cut(draw, batch):
            draw.shuffle(part)
            for key, chunk in chunks_of(made, part):
                rows.setdefault(key, []).append(chunk)
        for key, chunks in rows.items():
            draw.shuffle(chunks)
            answer = store.work(made, key, chunks)
            for each in answer.detected:
                with pa.ipc.open_stream(each) as reader:
                    found += [name for rows in reader for name in rows.column("id").to_pylist()]
    assert len(set(found)) == len(found)
    return found, store.revived


@pytest.mark.parametrize("seed", range(5))
def test_engines_detect_what_one_detector_does(seed: int) -> None:
    draw = random.Random(seed)
    events = some_stream(draw, 150)
    definitions = some_definitions(draw, events)
    made = plan(definitions, buckets=draw.choice((1, 2, 5)))
    assert {each.by for each in made.divisions} == {(), ("machine",), ("value",), ("machine", "value")}
    found, revived = detected(made, events, draw)
    wanted = expected(definitions, events)
    assert set(found) == wanted.keys()
    assert len(found) > 100 and revived > 0


@pytest.mark.parametrize("together", [1, 2_000, engines.TOGETHER])
@pytest.mark.parametrize("seed", range(4))
def test_many_definitions_of_pairs(seed: int, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that go key by key, whatever they take together, whether pairs are made at once or one by one."""
    draw = random.Random(f"pairs {seed} {together}")
    monkeypatch.setattr(engines, "TOGETHER", together)
    monkeypatch.setattr(columns, "_FEW", draw.choice((0, 8)))
    contexts = ("recent", "chronicle", "continuous")
    definitions: Definitions = {
        f"d{number}": (text, draw.choice(contexts), "detection") for number, text in enumerate(APART)
    }
    events = some_stream(draw, 400)
    made = plan(definitions, buckets=draw.choice((1, 2)))
    assert made.divisions[0].detector().is_apart
    found, revived = detected(made, events, draw)
    wanted = expected(definitions, events)
    assert set(found) == wanted.keys()
    assert len(found) > 100 and revived > 0


def test_absolute_times_count_from_the_first_event() -> None:
    for seed in range(8):
        draw = random.Random(seed)
        definitions: Definitions = {
            "noon": ("AT '12:00:07'", "recent", "detection"),
            "often": ("A*([type = 'a'], [type = 'b'], AT '* * * * *') BY machine", draw.choice(CONTEXTS), "detection"),
        }
        events = some_stream(draw, 150)
        found, _ = detected(plan(definitions, buckets=3), events, draw)
        wanted = expected(definitions, events)
        assert set(found) == wanted.keys() and len(wanted) > 2


# -- the plan


def test_divisions_follow_from_the_fields_of_by() -> None:
    by_one, by_two = "SEQ([type = 'a'], [type = 'b']) BY machine", "SEQ([type = 'a'], [type = 'b']) BY part, machine"
    made = plan(
        {"one": by_one, "two": by_two, "three": by_two.replace("part, machine", "machine, part"), "none": "[x > 1]"}
    )
    assert [(each.by, set(each.emits)) for each in made.divisions] == [
        ((), {"none"}),
        (("machine",), {"one"}),
        (("machine", "part"), {"two", "three"}),
    ]
    assert plan({"other": by_one}).divisions[0].number == made.divisions[1].number
    assert (
        made.types is None
        and made.divisions[1].types == frozenset("ab")
        and made.divisions[1].sure == {"a": (0,), "b": (1,)}
    )


def test_a_definition_runs_with_those_it_names_and_only_what_was_asked_for_is_told() -> None:
    texts = {"top": "SEQ(low, [type = 'c']) BY machine", "low": "SEQ([type = 'a'], [type = 'b']) BY machine, part"}
    made = plan(texts)
    assert [(each.by, set(each.emits)) for each in made.divisions] == [
        (("machine",), {"top"}),
        (("machine", "part"), {"low"}),  # where it would be without `top`, too
    ]
    assert [each.name for each in made.divisions[0].detector().definitions()] == ["low", "top"]
    made = plan(texts, silent=["low"])
    assert [(each.by, set(each.emits)) for each in made.divisions] == [(("machine",), {"top"})]
    assert [each.name for each in made.divisions[0].detector().definitions()] == ["low", "top"]
    with pytest.raises(DefinitionError, match="silent"):
        plan(texts, silent=["low", "top"])


def test_the_same_key_has_the_same_bucket() -> None:
    assert (bucket_of(("m1",), 1 << 32), bucket_of((7,), 1 << 32)) == (3226732335, 1790921346)  # for ever
    assert {bucket_of((f"m{n}",), 4) for n in range(50)} == {0, 1, 2, 3}
    for number in (1, -(2**53), 2**62, -(2**63), 2**63, 10**30):
        one, other = settled(number), settled(float(number))
        assert one is not None and one == other and bucket_of((one,), 1 << 32) == bucket_of((other,), 1 << 32), number
