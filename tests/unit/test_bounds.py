"""Bounds: what they accept, what they say when they do not, and their text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import BoundError
from tocsin.journal import bounds
from tocsin.journal.bounds import Bound, coerce, last, parse, retained, since, within

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
FIVE = timedelta(minutes=5)


def test_bounds_say_what_they_hold() -> None:
    assert last(10).n == 10
    assert last(10).within is None
    assert last(10, within=FIVE).within == FIVE
    assert within(FIVE).t == FIVE
    assert since(0).x == 0
    assert since(NOON).x == NOON
    assert since("2026-01-31T13:00:00+01:00").x == NOON
    assert since(NOON.astimezone(timezone(timedelta(hours=5)))) == since(NOON)
    assert retained() == retained()
    assert hash(last(3)) == hash(last(3))


@pytest.mark.parametrize(
    ("past", "bound"),
    [(None, None), (3, last(3)), (FIVE, within(FIVE)), (last(2), last(2)), (since(1), since(1)), (retained(),) * 2],
)
def test_shorthands(past: object, bound: Bound | None) -> None:
    assert coerce(past) == bound


@pytest.mark.parametrize(
    ("make", "what", "mend"),
    [
        (lambda: last(0), "n is 0", "from 1"),
        (lambda: last(-3), "n is -3", "from 1"),
        (lambda: last(True), "n is True", "whole number"),
        (lambda: last(2.0), "n is 2.0", "whole number"),
        (lambda: last("10"), "n is '10'", "last(10)"),
        (lambda: last(2**63), "n is 9223372036854775808", "whole number"),
        (lambda: last(10, within=timedelta(0)), "the time is 0:00:00", "above 0"),
        (lambda: last(10, within=-FIVE), "the time is -1 day, 23:55:00", "above 0"),
        (lambda: last(10, within=300), "the time is 300", "timedelta(minutes=5)"),
        (lambda: within(timedelta(0)), "the time is 0:00:00", "above 0"),
        (lambda: within(5), "the time is 5", "timedelta"),
        (lambda: within(None), "the time is None", "timedelta"),
        (lambda: since(-1), "the offset is -1", "from 0"),
        (lambda: since(True), "the offset is True", "offset"),
        (lambda: since(datetime(2026, 1, 1)), "no timezone", "timezone"),
        (lambda: since("2026-01-01T00:00:00"), "no timezone", "timezone"),
        (lambda: since("yesterday"), "'yesterday'", "ISO"),
        (lambda: since(None), "since is None", "offset"),
        (lambda: since(1.5), "since is 1.5", "offset"),
        (lambda: coerce(True), "past is True", "10"),
        (lambda: coerce(0), "n is 0", "leave past out"),
        (lambda: coerce("10"), "past is '10'", "tocsin.last"),
        (lambda: coerce(1.5), "past is 1.5", "timedelta"),
        (lambda: coerce(timedelta(seconds=-1)), "the time is -1 day", "above 0"),
        (lambda: coerce(NOON), "past is of type datetime", "since"),
        (lambda: parse(10), "not text", "since:123"),
        (lambda: parse(""), "no duration", "10,5m"),
        (lambda: parse("0"), "n is 0", "from 1"),
        (lambda: parse("-1"), "'-1' is no duration", "5m"),
        (lambda: parse("5x"), "'5x' is no duration", "5m"),
        (lambda: parse("0s"), "the time is 0:00:00", "above 0"),
        (lambda: parse("10,"), "no duration", "5m"),
        (lambda: parse("10,0m"), "the time is 0:00:00", "above 0"),
        (lambda: parse("5m,10"), "'5m,10'", "10,5m"),
        (lambda: parse("10,5m,3"), "no duration", "5m"),
        (lambda: parse("since:"), "not a time", "ISO"),
        (lambda: parse("since:-4"), "not a time", "ISO"),
        (lambda: parse("since:2026-01-01"), "no timezone", "timezone"),
        (lambda: parse("999999999999999999d"), "too long", "2h"),
        (lambda: parse("٣"), "no duration", "since"),
        (lambda: parse("9" * 40), "no duration", "since"),
    ],
)
def test_what_means_nothing_is_refused(make, what: str, mend: str) -> None:
    with pytest.raises(BoundError) as caught:
        make()
    assert what in caught.value.message
    assert caught.value.help is not None
    assert mend in caught.value.help
    assert caught.value.field == "past"


@pytest.mark.parametrize(
    ("text", "bound", "canonical"),
    [
        ("10", last(10), "10"),
        (" 10 ", last(10), "10"),
        ("5m", within(FIVE), "5m"),
        ("300s", within(FIVE), "5m"),
        ("90s", within(timedelta(seconds=90)), "90s"),
        ("2h", within(timedelta(hours=2)), "2h"),
        ("1d", within(timedelta(days=1)), "1d"),
        ("24h", within(timedelta(days=1)), "1d"),
        ("250ms", within(timedelta(milliseconds=250)), "250ms"),
        ("1.5h", within(timedelta(minutes=90)), "90m"),
        ("0.000001s", within(timedelta(microseconds=1)), "0.000001s"),
        ("10,5m", last(10, FIVE), "10,5m"),
        ("10, 5m", last(10, FIVE), "10,5m"),
        ("since:123", since(123), "since:123"),
        ("since:0", since(0), "since:0"),
        ("since:2026-01-31T12:00:00Z", since(NOON), "since:2026-01-31T12:00:00Z"),
        ("since:2026-01-31T13:00:00+01:00", since(NOON), "since:2026-01-31T12:00:00Z"),
        ("since:2026-01-31T13:00:00 01:00", since(NOON), "since:2026-01-31T12:00:00Z"),
        ("retained", retained(), "retained"),
    ],
)
def test_text(text: str, bound: Bound, canonical: str) -> None:
    assert parse(text) == bound
    assert str(bound) == canonical


def some_bounds() -> st.SearchStrategy[Bound]:
    times = st.timedeltas(min_value=timedelta(microseconds=1))
    return st.one_of(
        st.builds(last, st.integers(1, 2**63 - 1), st.none() | times),
        st.builds(within, times),
        st.builds(since, st.integers(0, 2**63 - 1) | st.datetimes(timezones=st.just(UTC))),
        st.just(retained()),
    )


@given(some_bounds())
def test_text_reads_back(bound: Bound) -> None:
    assert parse(str(bound)) == bound


@given(some_bounds())
def test_bounds_travel_as_json(bound: Bound) -> None:
    assert msgspec.json.decode(msgspec.json.encode(bound), type=bounds.Bound) == bound


@given(st.text(max_size=20) | st.text("0123456789smhd.,:since", max_size=12))
def test_any_text_is_a_bound_or_a_bound_error(text: str) -> None:
    try:
        bound = parse(text)
    except BoundError:
        return
    assert parse(str(bound)) == bound
