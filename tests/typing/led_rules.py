"""How a program with rules and agents looks to a type checker. mypy reads this file; nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

import tocsin
from tocsin import led
from tocsin.rules import Rule, Rules, rule, webhook


@led.event("stock.set_price", when="begin")
def set_price(price: float, currency: str = "EUR") -> str:
    return f"{price} {currency}"


assert_type(set_price(9.0), str)


@led.event("fetched")
async def fetch(url: str) -> bytes:
    return url.encode()


async def fetches() -> None:
    assert_type(await fetch("x"), bytes)


@led.rule(on="stock.set_price", when=lambda happened: happened["price"] > 9, coupling="deferred")
def too_high(happened: led.Occurrence) -> None:
    assert_type(happened.name, str)
    assert_type(happened.event, tocsin.Event)
    assert_type(happened.parts, tuple[led.Part, ...])
    value: Any = happened["price"]
    print(value)


assert_type(too_high, Rule)
assert_type(led.agent("other"), led.Agent)
assert_type(led.commit(), int)
assert_type(led.remote("price", application="P", host="h"), str)
assert_type(led.agent().snapshot(), bytes)


async def on_a_bus(bus: tocsin.Bus) -> None:
    rules = Rules(bus, max_deliver=3)
    rules.add(rule(on="door.open", name="call")(webhook("https://guard/alarm", timeout=5)))
    assert_type(rules.load("rules.toml"), list[Rule])
    async with rules as same:
        assert_type(same, Rules)
        assert_type(await rules.commit(), int)
    await led.join(bus, application="P")
    await led.leave(keep=True)
