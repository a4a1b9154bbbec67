"""How a user's program looks to a type checker. mypy reads this file (`make lint`); nothing runs it."""

from __future__ import annotations

from typing import assert_type

import tocsin

event = tocsin.Event(type="machine.value", source="line/7", data={"machine": "m7", "value": 9.012}, priority=8, ttl=60)
assert_type(event.priority, int)
assert_type(event.id, str)
assert_type(event.subject, str | None)

wanted = tocsin.Filter("type = 'machine.value' AND value > 9")
other = tocsin.Filter("value > 5")
assert_type(wanted.matches(event), bool)
assert_type(wanted.covers(other), bool)
assert_type(wanted.overlaps(other), bool)
assert_type(wanted.sql(), str)
assert_type(str(wanted), str)

matcher = tocsin.Matcher()
matcher.add("ops", wanted)
matcher.add(7, other)
assert_type(matcher.match(event), list[str | int])
assert_type(matcher.match_batch([event, event]), list[list[str | int]])
assert_type(matcher.to_bytes(), bytes)
assert_type(tocsin.Matcher.from_bytes(matcher.to_bytes()), tocsin.Matcher)
assert_type(len(matcher), int)
matcher.remove("ops")


def place_of(text: str) -> int | None:
    try:
        tocsin.Filter(text)
    except tocsin.FilterError as error:
        assert_type(error.position, int | None)
        return error.position
    return None
