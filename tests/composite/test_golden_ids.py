"""Derived events are the same to the last byte as those of the first engine: whoever stored one knows it again.

A digest stands for all that one definition derives from one small stream: ids, times, parts and keys, in order.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta

import msgspec
import pytest

from tocsin import Detector, Event
from tocsin.clock import as_datetime
from tocsin.composite.expression import CONTEXTS

NOON = as_datetime(1_800_000_000_000_000)
KINDS = "abacbbcaabdcabcacbbaccdab"
GOLDEN = {
    "[type = 'a'] AS only": (
        "8 f57b330db042",
        "8 4cbcc20fd05f",
        "8 ef63ddf1d2ba",
        "8 72f6f91df756",
        "8 97a868c9b5af",
    ),
    "OR([type = 'a'] AS x, [value > 3])": (
        "12 3bd683fd42a5",
        "12 ec32d939091c",
        "12 77c11b5516a5",
        "12 8c0157998142",
        "12 f8589cad5010",
    ),
    "AND([type = 'a'] AS x, [type = 'b']) BY machine": (
        "12 155ac700f0e0",
        "7 73c4b66defdf",
        "8 b171c0672ea0",
        "6 50f573bed0dd",
        "7 3bb697a5f9bc",
    ),
    "SEQ([type = 'a'] AS x, [type = 'b'] AS y) BY machine": (
        "6 ef432976219a",
        "6 1d14d557b6fd",
        "6 92f056a72a12",
        "5 6b9cee780b37",
        "6 ddf5e01c6f5e",
    ),
    "SEQ([type = 'a'] AS x, [type = 'b'] AS y, [type = 'c']) WITHIN 9 SECONDS": (
        "7 1ca043f4eb82",
        "6 87863eb15959",
        "6 c311650e7f38",
        "5 87047b9eaf31",
        "6 21512239c9f4",
    ),
    "SEQ([type = 'a'] AS x, [type = 'b'] AS y) BY machine, value WHERE x.value <= y.value": (
        "1 05dee5b7074f",
        "1 2e49f02d046e",
        "1 763aadef8cc6",
        "1 1662fce3825f",
        "1 7836457f0b3b",
    ),
    "NOT([type = 'a'], [type = 'b'], [type = 'c']) WITHIN 5 SECONDS BY machine": (
        "4 74cd22890f80",
        "2 e24b4af45efe",
        "2 19fba47b30c1",
        "2 88142f56f8f6",
        "2 a36a76946ec1",
    ),
    "A([type = 'a'], [type = 'b'], [type = 'c'])": (
        "4 292e18898001",
        "8 1c3f046ee8f2",
        "5 14c073a87916",
        "4 d0349c37ca28",
        "8 c247fc277f13",
    ),
    "A*([type = 'a'], [type = 'b'] AS y, [type = 'c']) WHERE y.value > 1": (
        "2 1694a03392a4",
        "5 0206fff0d4cb",
        "4 c32e7cbd48a5",
        "2 b15549008973",
        "5 c91e1b8fa71c",
    ),
    "P([type = 'a'], 2 SECONDS, [type = 'c'])": (
        "7 96391d2f1cf7",
        "13 87252d3343dc",
        "9 b63ec2d9d566",
        "8 e6505d4e90be",
        "13 d0421cc629f6",
    ),
    "P*([type = 'a'], 2 SECONDS, [type = 'c']) BY machine": (
        "4 75c93965cd3f",
        "5 0ba6a3dfaaf0",
        "6 e0a67e2bf18c",
        "4 59e9bfda1c90",
        "5 7bfaec504992",
    ),
    "PLUS([type = 'a'], 3 SECONDS) BY machine": (
        "7 b9e2d2949685",
        "8 4a603958c8e4",
        "8 d88b904ddc27",
        "7 6dca4309ddb3",
        "8 f39813018320",
    ),
    "ANY(2, [type = 'a'], [type = 'b'], [value = 3])": (
        "19 2fcbde17d051",
        "9 f1a750cb8968",
        "10 88a7f318b743",
        "9 3f2b2a4c1073",
        "9 82a141676c20",
    ),
}
"""For each context; then for chronicle in interval semantics."""


def stream() -> list[Event]:
    machines = ("m1", 7, True, 2.5)
    return [
        Event(
            kind,
            "/golden",
            id=f"{kind}{place}",
            data={"machine": machines[place % 4 if kind == "d" else place % 3], "value": place % 5},
            time=NOON + timedelta(seconds=place * 0.75),
        )
        for place, kind in enumerate(KINDS)
    ]


def detect(text: str, context: str, semantics: str) -> list[Event]:
    made = Detector()
    made.define("found", text, context, semantics)
    return made.feed_batch(stream()) + made.advance(NOON + timedelta(seconds=30))


def digest(found: list[Event]) -> str:
    told = [(each.type, each.source, each.id, each.time, each.data) for each in found]
    return f"{len(found)} {hashlib.blake2b(msgspec.json.encode(told), digest_size=6).hexdigest()}"


WAYS = [*((context, "detection") for context in CONTEXTS), ("chronicle", "interval")]


@pytest.mark.parametrize("text", GOLDEN)
def test_derived_events_are_the_same_to_the_last_byte(text: str) -> None:
    assert tuple(digest(detect(text, *way)) for way in WAYS) == GOLDEN[text]


def test_some_ids_in_full() -> None:
    for text, first in (
        ("SEQ([type = 'a'] AS x, [type = 'b'] AS y) BY machine", "bfbf7c94509947529a899906e8f8663c"),
        ("PLUS([type = 'a'], 3 SECONDS) BY machine", "9cbefb4c23ae678ae83855e9e9b6e714"),
    ):
        assert detect(text, "chronicle", "detection")[0].id == first


def test_a_derived_event_is_as_good_as_one_that_was_checked() -> None:
    [one, other, *_] = detect("SEQ([type = 'a'] AS x, [type = 'b'] AS y) BY machine", "chronicle", "detection")
    fields = {name: getattr(one, name) for name in Event.__struct_fields__}
    assert Event(**fields) == one
    assert one.attributes == {} and one.attributes is not other.attributes
