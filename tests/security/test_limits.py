"""Buckets and meters, with a clock passed in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.clock import SECOND
from tocsin.errors import OverloadError, TokenError
from tocsin.security.limits import Allowance, Bucket, Meter


@given(
    st.floats(1, 1000),
    st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(1, 50)), min_size=1, max_size=60),
)
def test_a_rate_holds_in_the_long_run(rate: float, tries: list[tuple[int, int]]) -> None:
    bucket, now, spent, last = Bucket(rate, 0), 0, 0, 0
    for pause, amount in tries:
        now += pause
        if bucket.wait(now) == 0:
            bucket.take(amount)
            spent, last = spent + amount, amount
    # A full bucket at first, what ran in since, and the last piece, which may be on credit.
    assert spent <= rate + rate * now / SECOND + last + 1e-6


@given(st.floats(1, 1000), st.integers(1, 5000))
def test_who_waits_as_told_may_go_on(rate: float, amount: int) -> None:
    bucket = Bucket(rate, 0)
    bucket.take(amount)
    seconds = bucket.wait(0)
    assert (seconds > 0) == (amount >= rate)
    assert bucket.wait(round(seconds * SECOND) + 2) == 0


def test_a_meter_spends_all_or_nothing() -> None:
    meter = Meter(Allowance(events=10, bytes=100), 0)
    meter.spend(0, events=1, bytes=500)
    with pytest.raises(OverloadError, match="100 bytes") as raised:
        meter.spend(0, events=9, bytes=1)
    assert raised.value.field == "bytes" and "wait 4" in (raised.value.help or "")
    meter.spend(0, events=9)  # none of them was counted
    with pytest.raises(OverloadError, match="10 events"):
        meter.spend(0, events=1)
    meter.spend(0, calls=1_000_000)  # not limited
    meter.spend(5 * SECOND, events=1, bytes=1)


@pytest.mark.parametrize("name", Allowance.__struct_fields__)
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_limit_is_a_number_above_nothing(name: str, value: float) -> None:
    with pytest.raises(TokenError):
        Allowance(**{name: value})  # type: ignore[arg-type]
