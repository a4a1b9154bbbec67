"""What comes first on a connection: the answer to who has settled, or the next event."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.helpers import event, numbered, soon, testing
from tests.net.test_session import Script
from tocsin.net import frames
from tocsin.net.access import Gate
from tocsin.net.protocol import MSGPACK, Limits
from tocsin.net.session import Session

SUB, SETTLED, PUBLISHED = 1, 77, 78


class Client(Script):
    """A socket that says one thing after the other, and waits for what it is to wait for."""

    def __init__(self) -> None:
        super().__init__([])

    def listen(self, take: Any, drained: Any) -> None:
        self.say = lambda *said: [take(MSGPACK.encode(each)) for each in said]

    def heard(self, kind: type) -> list[Any]:
        return [frame for frame in map(MSGPACK.from_server, self.sent) if isinstance(frame, kind)]

    async def hear(self, kind: type, count: int = 1) -> list[Any]:
        async with asyncio.timeout(20):
            while len(self.heard(kind)) < count:  # noqa: ASYNC110 - a few turns of the loop, in memory
                await asyncio.sleep(0)
        return self.heard(kind)


@pytest.mark.parametrize(("window", "first"), [(1, "Done"), (10, "Deliver")], ids=["shut", "open"])
async def test_an_answer_goes_before_what_it_has_made_room_for_and_holds_up_nothing_else(
    window: int, first: str
) -> None:
    async with testing.node() as bus:

        async def arrive(session: Session) -> None:
            return None

        client, gate = Client(), Gate(bus._node, bus.as_user)
        session = Session(bus._node, lambda token, name: gate.admit(token, name, "", "anyone"), arrive, client, MSGPACK)
        serving = asyncio.ensure_future(session.run(Limits()))
        await asyncio.sleep(0)
        client.say(frames.Hello(1, "consumer"))
        await client.hear(frames.Welcome)
        options = {"max_in_flight": window}
        client.say(frames.Subscribe(1, SUB, "TRUE", "ops", options=options, credit=100, ahead=True))
        await client.hear(frames.Done)
        await bus.publish_many(numbered(1))
        [delivered] = await client.hear(frames.Deliver)
        before = len(client.sent)
        client.say(
            frames.Settle(SUB, SETTLED, ack=[delivered.items[0][0]]),
            frames.Publish(PUBLISHED, [MSGPACK.event(event("2"))]),
        )
        await client.hear(frames.Deliver, 2)
        await client.hear(frames.Done, 3)
        said = [MSGPACK.from_server(each) for each in client.sent[before:]]
        order = [type(each).__name__ for each in said if getattr(each, "re", SETTLED) == SETTLED]
        assert order[0] == first and sorted(order) == ["Deliver", "Done"]
        session.leave("the end")
        await soon(serving)
