"""Absolute times: what comes next, against looking at every minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.clock import as_datetime, as_micros
from tocsin.composite.schedule import parse_schedule
from tocsin.errors import DefinitionError

NOW = datetime(2026, 11, 16, 9, 30, 15, 500, tzinfo=UTC)  # a Monday


def following(text: str, moment: datetime = NOW) -> str | None:
    due = parse_schedule(text).after(as_micros(moment))
    return None if due is None else as_datetime(due).strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("08:00", "2026-11-17 08:00:00"),
        ("9:30:16", "2026-11-16 09:30:16"),
        ("09:30:15", "2026-11-17 09:30:15"),
        ("23:59", "2026-11-16 23:59:00"),
        ("08:00+01:00", "2026-11-17 07:00:00"),
        ("08:00 -05:30", "2026-11-16 13:30:00"),
        ("00:30+10:00", "2026-11-16 14:30:00"),
        ("2026-12-24T18:00:00Z", "2026-12-24 18:00:00"),
        ("2026-12-24T18:00:00+01:00", "2026-12-24 17:00:00"),
        ("2020-01-01T00:00:00Z", None),
        ("*/15 * * * *", "2026-11-16 09:45:00"),
        ("30 9 * * *", "2026-11-17 09:30:00"),
        ("0 8-18 * * MON-FRI", "2026-11-16 10:00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00:00"),
        ("0 12 13 * fri", "2026-11-20 12:00:00"),
        ("5,10 0 1 JAN *", "2027-01-01 00:05:00"),
        ("0 0 * * 7", "2026-11-22 00:00:00"),
        ("7/20 9 * * *", "2026-11-16 09:47:00"),
    ],
)
def test_what_comes_next(text: str, due: str | None) -> None:
    assert following(text) == due


def test_an_instant_itself_is_over() -> None:
    eight = datetime(2026, 11, 16, 8, tzinfo=UTC)
    assert following("08:00", eight) == "2026-11-17 08:00:00"
    assert following("08:00", eight - timedelta(microseconds=1)) == "2026-11-16 08:00:00"
    assert following("0 8 * * *", eight) == "2026-11-17 08:00:00"
    assert following("0 8 * * *", eight - timedelta(microseconds=1)) == "2026-11-16 08:00:00"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("25:00", "time of day"),
        ("08:00+99:00", "offset"),
        ("tomorrow", "absolute time"),
        ("", "absolute time"),
        ("2026-12-24T18:00:00", "absolute time"),
        ("61 * * * *", "minute"),
        ("* * * * MUN", "weekday"),
        ("*/0 * * * *", "step"),
        ("5-1 * * * *", "backward"),
        ("0 0 30 2 *", "never"),
    ],
)
def test_mistakes(text: str, words: str) -> None:
    with pytest.raises(DefinitionError, match=words) as error:
        parse_schedule(text)
    assert error.value.help


@st.composite
def cron(draw: st.DrawFn) -> tuple[str, list[set[int]]]:
    """A line, and what each field allows, made apart from the text."""
    texts, sets = [], []
    for low, high in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6)):
        chosen = draw(st.sets(st.integers(low, high), min_size=1, max_size=3))
        every = draw(st.booleans())
        texts.append("*" if every else ",".join(map(str, sorted(chosen))))
        sets.append(set(range(low, high + 1)) | ({29, 30, 31} if high == 28 else set()) if every else chosen)
    return " ".join(texts), sets


@given(cron(), st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1)))
def test_against_every_minute(line: tuple[str, list[set[int]]], moment: datetime) -> None:
    text, (minutes, hours, days, months, weekdays) = line
    fields = text.split()
    either = fields[2] != "*" and fields[4] != "*"
    due = parse_schedule(text).after(as_micros(moment.replace(tzinfo=UTC)))
    assert due is not None
    found = as_datetime(due)

    def allowed(at: datetime) -> bool:
        of_month, of_week = at.day in days, (at.weekday() + 1) % 7 in weekdays
        day = (of_month or of_week) if either else (of_month and of_week)
        return at.minute in minutes and at.hour in hours and at.month in months and day

    assert allowed(found) and found.second == found.microsecond == 0 and found > moment.replace(tzinfo=UTC)
    minute = found - timedelta(minutes=1)
    for _ in range(3_000):  # nothing was passed over, as far as two days back
        if minute <= moment.replace(tzinfo=UTC):
            break
        assert not allowed(minute)
        minute -= timedelta(minutes=1)
