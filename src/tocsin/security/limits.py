"""Limits: what one token may cost, and the meter that counts it.

Rates are kept by buckets that run full in one second. What is sent in one piece is taken if anything is left, and paid
off afterwards: so a large batch is not refused for ever, and the rate holds in the long run all the same.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tocsin.clock import SECOND
from tocsin.errors import OverloadError, TokenError

__all__ = ["Allowance", "Bucket", "Meter"]

_MOST: Final = 10**12


class Allowance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a token may cost, all its connections together. None: as much as the node allows anybody."""

    events: float | None = None
    """Events published in a second."""
    bytes: float | None = None
    """Their bytes in a second."""
    calls: float | None = None
    """Other verbs in a second; settling is free."""
    connections: int = 100
    """Sessions, streams and requests at a time."""
    subscriptions: int = 1_000
    """Subscriptions open at a time."""
    event_size: int | None = None
    """Bytes in an event's payload."""
    predicates: int = 1_000
    """Tests in the normal form of a filter: `(a OR b) AND (c OR d)` has eight."""

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not 0 < value <= _MOST:
                raise TokenError(f"{name} is {value!r}", field=name, help="give a number above 0, or leave it out")


class Bucket:
    """How much may still be spent, of what comes in at a rate."""

    def __init__(self, rate: float, now: int) -> None:
        """Begin full; the rate is a second's, the time in microseconds."""
        self._rate, self._left, self._at = rate, rate, now

    def wait(self, now: int) -> float:
        """Seconds until something may be spent."""
        self._left = min(self._rate, self._left + self._rate * max(0, now - self._at) / SECOND)
        self._at = now
        return 0.0 if self._left > 0 else -self._left / self._rate + 1e-6

    def take(self, amount: float) -> None:
        """Spend it, though it may be more than there is."""
        self._left -= amount


class Meter:
    """Counts what a token spends."""

    def __init__(self, allowance: Allowance, now: int) -> None:
        """Begin with nothing spent."""
        self.allowance = allowance
        rates = {"events": allowance.events, "bytes": allowance.bytes, "calls": allowance.calls}
        self._buckets = {what: Bucket(rate, now) for what, rate in rates.items() if rate is not None}

    def spend(self, now: int, **amounts: float) -> None:
        """Count these amounts (`events`, `bytes`, `calls`): all of them or, where one is used up, none.

        Raises:
            OverloadError: one is used up.
        """
        if not self._buckets:
            return
        touched = [(what, self._buckets[what], amount) for what, amount in amounts.items() if what in self._buckets]
        for what, bucket, _ in touched:
            if (seconds := bucket.wait(now)) > 0:
                rate = getattr(self.allowance, what)
                raise OverloadError(
                    f"your token may spend {rate:g} {what} a second", field=what, help=f"wait {seconds:.3f} s"
                )
        for _, bucket, amount in touched:
            bucket.take(amount)
