"""What arrives is what may: random events, tokens and subscriptions, against an oracle that knows neither filters nor
scopes.

The oracle asks four questions of each event: does its type begin as a right says, is it within the clearance, is it
what was asked for, and was it published when the subscription wanted it? Nothing more may arrive, nothing less.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import tocsin
from tests.helpers import event, heard
from tests.security.keys import Guarded, guarded
from tocsin.errors import ForbiddenError
from tocsin.model import CLASSIFICATION

TYPES = ["machine.a", "machine.b", "machinery", "plant.a", "p"]
PREFIXES = ["*", "machine.", "machine", "plant.", "p", "x"]
ASKED: dict[str, Callable[[Any], bool]] = {
    "TRUE": lambda each: True,
    "value > 1": lambda each: each.data["value"] > 1,
    "type = 'machine.a' OR value = 0": lambda each: each.type == "machine.a" or each.data["value"] == 0,
    "classification <> 'unclassified'": lambda each: each.classification != "unclassified",
    "NOT type LIKE 'machine%'": lambda each: not each.type.startswith("machine"),
}
LEVEL = {name: level for level, name in enumerate(CLASSIFICATION)}

published = st.lists(
    st.tuples(st.sampled_from(TYPES), st.integers(0, 3), st.sampled_from(CLASSIFICATION)), min_size=1, max_size=12
)
tokens = st.lists(
    st.tuples(st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=2), st.sampled_from(CLASSIFICATION)),
    min_size=1,
    max_size=3,
)
subscriptions = st.lists(
    st.tuples(
        st.integers(0, 2),  # by whose token
        st.sampled_from(list(ASKED)),
        st.sampled_from([None, "one", "two"]),  # consumer
        st.sampled_from([None, None, "team"]),
        st.sampled_from([None, "retained", "last 2"]),
    ),
    min_size=1,
    max_size=6,
)
Token = tuple[list[str], str]


def may_see(token: Token, each: Any) -> bool:
    prefixes, clearance = token
    begins = any(prefix == "*" or each.type[: len(prefix)] == prefix for prefix in prefixes)
    return begins and LEVEL[each.classification] <= LEVEL[clearance]


def made(given: list[tuple[str, int, str]], first: int) -> list[Any]:
    return [
        event(str(number), type=type, data={"value": value}, classification=secrecy)
        for number, (type, value, secrecy) in enumerate(given, first)
    ]


@settings(max_examples=60)
@given(tokens, published, published, subscriptions)
def test_alone_exactly_what_may_be_seen(
    whose: list[Token], before: list[Any], after: list[Any], wanted: list[tuple[Any, ...]]
) -> None:
    """Everybody under a name of its own: live, and with any past."""

    async def play(node: Guarded) -> None:
        early, late = made(before, 1), made(after, 1000)
        await node.bus.publish_many(early)
        subs = []
        for number, (who, asked, _, _, past) in enumerate(wanted):
            prefixes, clearance = token = whose[who % len(whose)]
            caller = node.caller(f"t{number}", *(f"subscribe:{each}" for each in prefixes), clearance=clearance)
            bound = {"retained": tocsin.retained(), "last 2": tocsin.last(2), None: None}[past]
            subs.append((token, asked, past, await caller.bus.subscribe(asked, f"c{number}", bound, order="journal")))
        await node.bus.publish_many(late)
        for token, asked, past, sub in subs:
            fits = [each for each in early if may_see(token, each) and ASKED[asked](each)]
            kept = {"retained": fits, "last 2": fits[-2:], None: []}[past]
            due = kept + [each for each in late if may_see(token, each) and ASKED[asked](each)]
            assert await heard(node.bus, sub) == [each.id for each in due]

    _played(play)


@settings(max_examples=60)
@given(tokens, published, published, subscriptions)
def test_together_nothing_but_what_may_be_seen(
    whose: list[Token], before: list[Any], after: list[Any], wanted: list[tuple[Any, ...]]
) -> None:
    """Consumers and groups that several share, taken over and over again: whatever is allowed, nothing leaks."""

    async def play(node: Guarded) -> None:
        callers = [
            node.caller(f"t{number}", *(f"subscribe:{each}" for each in prefixes), clearance=clearance)
            for number, (prefixes, clearance) in enumerate(whose)
        ]
        everything = {each.id: each for each in (*made(before, 1), *made(after, 1000))}
        got: list[tuple[Token, str, str]] = []
        open_subs: list[tuple[Token, str, Any]] = []
        for number, (who, asked, consumer, group, past) in enumerate(wanted):
            place = who % len(whose)
            bound = {"retained": tocsin.retained(), "last 2": tocsin.last(2), None: None}[past]
            try:
                name = consumer if group is None else f"{consumer}-{group}"
                sub = await callers[place].bus.subscribe(asked, name, bound, group=group, replay=number % 2 == 1)
            except ForbiddenError:
                continue
            open_subs.append((whose[place], asked, sub))
            await node.bus.publish_many(made(before, 1) if number % 2 == 0 else made(after, 1000))
            for token, text, each in open_subs:
                got += [(token, text, id) for id in await heard(node.bus, each)]
            if number % 3 == 2:  # what waits for one that is gone goes to others that match
                await open_subs.pop(0)[2].close()
        assert open_subs or len(wanted) > 1, "the first to subscribe is refused nothing"
        for token, asked, id in got:
            assert may_see(token, everything[id]) and ASKED[asked](everything[id])

    _played(play)


def _played(play: Any) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with guarded(Path(directory), listens=False) as node:
                await play(node)

    asyncio.run(run())
