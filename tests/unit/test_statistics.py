"""Statistics: what is collected, that it survives storing, and that it spares reading."""

from __future__ import annotations

import random

import pytest

from tests.past import NOON, SECOND, batch_of, stored
from tocsin.errors import JournalDamagedError
from tocsin.filters.filter import Filter
from tocsin.journal import statistics
from tocsin.journal.statistics import Statistics, collect, may_match
from tocsin.model import Event


def known_of(*events: Event) -> Statistics:
    return collect(batch_of(stored(events, 7)))


def value(**data: object) -> Event:
    return Event("machine.value", "line/7", data=data)


def test_what_is_collected() -> None:
    known = known_of(
        Event("a", "s", subject="x", ttl=2.5),
        Event("tocsin.ack", "s", priority=9, persistent=False, ack="client"),
        Event("b", "t"),
    )
    assert known.offsets == (7, 9)
    assert known.arrived == (NOON, NOON + 2 * SECOND)
    assert known.types == {"a", "b", "tocsin.ack"}
    assert known.sources == {"s", "t"}
    assert known.subjects == {"x"}
    assert known.priorities == {5, 9}
    assert (known.rows, known.system, known.volatile, known.tracked) == (3, 1, 1, 2)
    assert known.expires is None


def test_when_the_last_event_expires() -> None:
    assert known_of(Event("a", "s", ttl=60), Event("a", "s", ttl=2.5)).expires == NOON + 60 * SECOND
    assert known_of(Event("a", "s", ttl=60), Event("a", "s")).expires is None


def test_many_values_are_not_listed() -> None:
    known = known_of(*(Event(f"t{number:03}", f"s{number % 3}") for number in range(100)))
    assert known.types is None
    assert known.sources == {"s0", "s1", "s2"}
    assert known.subjects == frozenset()
    assert not may_match(Filter("type = 'u'"), known)
    assert not may_match(Filter("startswith(type, 'tx')"), known)
    assert may_match(Filter("type = 't050x'"), known)


def test_no_events() -> None:
    known = collect(batch_of([]))
    assert known.rows == 0
    assert known.types == frozenset()
    assert statistics.load(statistics.dump(known)) == known
    assert not may_match(Filter("type = 'a'"), known)


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("type = 'machine.value'", True),
        ("type = 'other'", False),
        ("type IN ('other', 'machine.value')", True),
        ("NOT type = 'machine.value'", False),
        ("priority > 5", False),
        ("priority BETWEEN 5 AND 6", True),
        ("subject IS NULL", True),
        ("subject IS NOT NULL", False),
        ("offset > 9", False),
        ("arrived < TIMESTAMP '2026-01-01T12:00:00Z'", False),
        ("arrived <= TIMESTAMP '2026-01-01T12:00:00Z'", True),
        ("persistent", True),
        ("NOT persistent", False),
        ("ttl > 3", False),
        ("x > 3", False),
        ("x = 3", True),
        ("x = 2", False),  # between the lowest and the highest, but the few values are known
        ("data.x = 3", True),
        ("attributes.x = 3", False),
        ("x = '3'", False),
        ("x IS NULL", False),
        ("y IS NULL", True),
        ("z IS NOT NULL", False),
        ("s = 'ab'", True),
        ("s > 'b'", False),
        ("endswith(s, 'b')", True),
        ("endswith(s, 'c')", False),
        ("s LIKE 'a%'", True),
        ("s LIKE 'b%'", False),
        ("s RLIKE 'nothing'", True),  # a pattern is not tried
        ("z RLIKE 'nothing'", False),  # but its name must be there
        ("lower(s) = 'zz'", True),
        ("lower(x) = 'zz'", False),  # x is never a text
        ("x + 1 > 100", True),
        ("s + 1 > 100", False),
        ("flag", True),
        ("NOT flag", False),
        ("o.deep = 1", True),
        ("x.deep = 1", False),
        ("o.deep IS NULL", True),
        ("r = 'eu'", True),  # an attribute
        ("r = 'hidden'", True),  # the second event has it in its payload alone
        ("data.r = 'eu'", False),
        ("w = TIMESTAMP '2026-01-01T01:00:00+01:00'", True),
        ("w > TIMESTAMP '2026-01-01T00:00:00Z'", False),
        ("array_contains(x, 1)", True),
        ("array_contains(z, 1)", False),
        ("x > 9007199254740993", False),  # beyond 2^53 only the neighbourhood is known, and that is far off
        ("x > 3 OR s = 'ab'", True),
        ("x > 3 OR s = 'q'", False),
        ("(x > 3) IS NOT TRUE", True),
        ("type = 'a' AND type = 'b'", False),
        ("TRUE", True),
        ("FALSE", False),
    ],
)
def test_what_a_block_can_hold(text: str, possible: bool) -> None:
    known = known_of(
        Event(
            "machine.value",
            "line/7",
            data={"x": 1, "s": "ab", "flag": True, "r": "hidden", "w": "2026-01-01T00:00:00Z"},
            attributes={"r": "eu"},
        ),
        Event("machine.value", "line/7", data={"x": 3.0, "y": 1, "o": {"deep": 2}, "r": "hidden"}),
    )
    assert may_match(Filter(text), known) is possible


def test_an_attribute_that_is_always_there_hides_the_payload() -> None:
    known = known_of(Event("t", "s", attributes={"x": 1}, data={"x": 5}), Event("t", "s", attributes={"x": 2}))
    assert not may_match(Filter("x = 5"), known)
    assert may_match(Filter("data.x = 5"), known)
    assert not may_match(Filter("x IS NULL"), known)


def test_nan_and_whole_numbers_beyond_doubles() -> None:
    known = known_of(Event("t", "s", attributes={"x": float("nan")}), value(x=2**53 + 1))
    assert may_match(Filter("x > 1e999"), known)  # NaN is greater than everything
    assert may_match(Filter("x = 9007199254740993"), known)
    assert may_match(Filter("x > 9007199254740991"), known)
    assert not may_match(Filter("x < 0"), known)
    assert not may_match(Filter("x > 1e999"), known_of(value(x=1)))


def test_of_many_names_the_rest_is_unknown() -> None:
    known = known_of(value(**{f"n{number}": number for number in range(60)}, x=1), value(x=2))
    assert not known.all_fields
    assert len(known.fields) == 32
    assert "x" in known.fields  # the most frequent
    assert not may_match(Filter("x = 3"), known)
    assert may_match(Filter("n59 = 3"), known)
    assert may_match(Filter("nowhere = 3"), known)
    assert not may_match(Filter("attributes.nowhere = 3"), known)


def test_long_texts_are_cut_and_still_right() -> None:
    long = "m" * 300
    known = known_of(value(s=long), value(s="a"))
    for text in (long, "m" * 70, "b"):
        assert may_match(Filter(f"s = '{text}'"), known)
    assert not may_match(Filter("s > 'n'"), known)
    assert not may_match(Filter("s = ''"), known)
    top = chr(0x10FFFF)
    assert may_match(Filter(f"s = '{top * 70}'"), known_of(value(s=top * 65), value(s=top * 70)))


def test_selective_filters_skip_most_blocks() -> None:
    """Types come and go over time, machines are numbered, values drift: the usual case for block statistics."""
    draw = random.Random(3)
    blocks = []
    for number in range(50):
        kinds = ["machine.value", f"job.{number // 10}"]
        events = [
            Event(
                draw.choice(kinds), f"line/{number % 5}", data={"value": number + draw.random(), "shift": number // 8}
            )
            for _ in range(64)
        ]
        blocks.append((events, known_of(*events)))
    for text, most in (("type = 'job.2'", 10), ("value > 45", 5), ("shift = 3", 8), ("source = 'line/4'", 10)):
        wanted = Filter(text)
        read = [may_match(wanted, known) for _, known in blocks]
        needed = [any(wanted.matches(event) for event in events) for events, _ in blocks]
        assert read == needed
        assert sum(read) <= most


def test_damage_is_noticed() -> None:
    data = statistics.dump(known_of(value(x=1)))
    for bad in (b"", data[:-1], data[:3], bytes([data[0] ^ 1]) + data[1:], data[:9] + b"\xff" + data[10:]):
        with pytest.raises(JournalDamagedError, match="anew"):
            statistics.load(bad)


def test_another_version_is_not_read() -> None:
    import zlib

    import msgspec

    body = msgspec.msgpack.encode((99, ["something else"]))
    with pytest.raises(JournalDamagedError, match="version is 99"):
        statistics.load(zlib.crc32(body).to_bytes(4, "little") + body)
