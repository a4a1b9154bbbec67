"""Currency rates: who comes late is told the newest rate of the currencies it wants, then every new one.

A ticker does not repeat itself for late comers, and keeps no cache of "last values": the journal remembers, for any
filter, also one that nobody had before. Run it: python examples/currency_rates.py
"""

import asyncio
import tempfile

import tocsin
from tocsin import Event

MORNING = [("EUR/USD", 1.081), ("EUR/CHF", 0.952), ("USD/JPY", 151.2), ("EUR/USD", 1.084), ("USD/JPY", 151.9)]
NOON = [("EUR/CHF", 0.949), ("EUR/USD", 1.090), ("USD/JPY", 152.3)]


def rate(pair: str, value: float) -> Event:
    """One rate, as the ticker publishes it."""
    base, quote = pair.split("/")
    return Event("rate", "ticker", subject=pair, data={"base": base, "quote": quote, "rate": value})


async def trader(bus, name: str, filter: str, joined: asyncio.Event, count: int) -> None:
    """Join late; print `count` rates, the newest known one first."""
    rates = await bus.subscribe(filter, consumer=name, past=tocsin.last(1), order="journal")
    joined.set()
    async for delivery in rates:
        when = "newest known" if delivery.replayed else "live"
        print(f"{name}, {when}: {delivery.event.subject} {delivery.event.data['rate']}")
        await delivery.ack()
        if (count := count - 1) == 0:
            return


async def main(directory: str) -> None:
    """A morning before anybody listens, then three traders, then noon."""
    async with tocsin.connect(f"file:{directory}/rates.db", name="ticker") as bus:
        for pair, value in MORNING:
            await bus.publish(rate(pair, value))
        print(f"{len(MORNING)} rates were published this morning, and nobody listened.")

        # `last(1)` counts what matches the trader's own filter, not the last event there was.
        wishes = {
            "ann (euro in dollars)": ("subject = 'EUR/USD'", 2),
            "bob (dollar in anything)": ("base = 'USD'", 2),
            "eve (rates below 1)": ("rate < 1", 2),
            "joe (pounds)": ("base = 'GBP' OR quote = 'GBP'", 1),  # there was none: joe waits for the first
        }
        async with asyncio.TaskGroup() as traders:
            for name, (filter, count) in wishes.items():
                joined = asyncio.Event()
                traders.create_task(trader(bus, name, filter, joined, count))
                await joined.wait()
            print("All have joined; the ticker goes on.")
            for pair, value in [*NOON, ("GBP/USD", 1.27)]:
                await bus.publish(rate(pair, value))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(directory))
