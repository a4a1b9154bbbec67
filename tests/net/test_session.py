"""Sessions against strangers who send any frames at all: never a defect, never a hang, and the node goes on."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import event, soon, testing
from tests.net.test_protocol import VALUES, frame_of
from tocsin.net import frames
from tocsin.net.access import Gate
from tocsin.net.protocol import JSON, MSGPACK, Codec, Limits
from tocsin.net.session import Session
from tocsin.net.verbs import VERBS

SMALL = st.integers(0, 4)
NAMES = st.sampled_from(["a", "b", "", 7, "a\n"])


class Script:
    """A socket that gives what it was told to, and keeps what it gets."""

    def __init__(self, messages: list[bytes]) -> None:
        self.messages, self.sent, self.code = messages, [], 0  # type: ignore[var-annotated]

    is_writable = True

    def listen(self, take: Any, drained: Any) -> None:
        async def tell() -> None:
            for message in self.messages:
                await asyncio.sleep(0)
                take(message)
            await asyncio.sleep(0)
            take(None)

        self.telling = asyncio.ensure_future(tell())

    def pause(self) -> None:
        """What was told before is read later."""

    resume = pause

    def write(self, messages: Any) -> None:
        self.sent += messages

    async def close(self, code: int, reason: str) -> None:
        self.code = code


def sensible(codec: Codec) -> st.SearchStrategy[Any]:
    """Frames that mean something now and then."""
    event_part = st.builds(lambda id: codec.event(event(str(id))), SMALL)
    verbs = st.sampled_from([*VERBS, "fly"])
    arguments = st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(
                ("consumer", "id", "name", "filter", "subscription"), st.sampled_from(["ops", "1", "TRUE"])
            ),
            "text": st.sampled_from(["SEQ([TRUE], [TRUE])", "nonsense"]),
            "older_than": VALUES,
            "source": st.none() | st.just("plant"),
        },
    ).map(codec.value)
    watched = st.one_of(st.none(), VALUES, st.fixed_dictionaries({"filter": st.sampled_from(["TRUE", "n >", 7])})).map(
        codec.value
    )
    return st.one_of(
        st.builds(frames.Publish, SMALL, st.lists(event_part, max_size=3)),
        st.builds(
            frames.Subscribe,
            n=SMALL,
            sub=SMALL,
            filter=st.sampled_from(["TRUE", "n >", 7]),
            consumer=st.sampled_from([None, "ops", "a/b", 7]),
            past=st.sampled_from([None, "3", "retained", "nonsense"]),
            options=st.fixed_dictionaries({}, optional={"group": VALUES, "order": st.just("journal"), "x": VALUES}),
            credit=SMALL,
            ahead=st.booleans(),
        ),
        st.builds(
            frames.Settle, sub=SMALL, n=SMALL, ack=st.lists(SMALL, max_size=2), extend=st.lists(SMALL, max_size=2)
        ),
        st.builds(frames.Settle, sub=SMALL, nak=st.lists(st.tuples(SMALL, st.floats()), max_size=2)),
        st.builds(frames.Taken, SMALL, st.lists(SMALL, max_size=3)),
        st.builds(frames.Return, SMALL, st.lists(SMALL, max_size=3)),
        st.builds(frames.Reclaim, SMALL, SMALL, st.lists(st.tuples(SMALL, SMALL), max_size=3)),
        st.builds(frames.Credit, SMALL, SMALL),
        st.builds(frames.Close, SMALL, SMALL),
        st.builds(frames.Call, SMALL, verbs, arguments),
        st.builds(
            frames.Watch, SMALL, SMALL, st.sampled_from(["receipts", "resources", "demand", "x"]), watched, SMALL
        ),
        st.builds(frames.Serve, SMALL, SMALL, NAMES),
        st.builds(frames.Answer, SMALL, SMALL.map(str), VALUES.map(codec.value)),
        st.builds(frames.Fail, SMALL, SMALL.map(str), st.text(max_size=4)),
        st.builds(frames.Withdraw, SMALL, SMALL, st.just(False) | st.booleans()),
        st.builds(
            frames.Request,
            SMALL,
            NAMES,
            VALUES.map(codec.value),
            st.sampled_from([0.01, 0, -1, "x", 1e300]),
            st.sampled_from(["one", "first", "all", 7]),
        ),
        st.builds(frames.Drop, SMALL),
        st.builds(frames.Join, SMALL, SMALL, NAMES, SMALL, SMALL, SMALL),
        st.builds(frames.Cast, SMALL, SMALL, VALUES.map(codec.value), st.none() | st.text(max_size=2)),
        st.builds(frames.Leave, SMALL, SMALL),
        st.builds(frames.Ping, SMALL),
    )


@pytest.mark.parametrize("codec", [JSON, MSGPACK], ids=["json", "msgpack"])
@settings(max_examples=40)
@given(data=st.data())
def test_any_frames_in_any_order(codec: Codec, data: st.DataObject) -> None:
    any_frame = st.one_of([frame_of(kind, codec) for kind in get_args(frames.ClientFrame)])
    said = data.draw(st.lists(sensible(codec), max_size=25)) + data.draw(st.lists(any_frame, max_size=3))
    messages = [codec.encode(each) for each in [frames.Hello(1, "stranger"), *said]]
    defects: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = defects.append  # type: ignore[method-assign]

    async def meet() -> None:
        async with testing.node() as bus:

            async def arrive(session: Session) -> None:
                return None

            socket = Script(messages)
            gate = Gate(bus._node, bus.as_user)
            session = Session(
                bus._node, lambda token, name: gate.admit(token, name, "", "anyone"), arrive, socket, codec
            )
            await soon(session.run(Limits()))
            assert socket.code in (1000, 4400)
            assert [type(codec.from_server(each)) for each in socket.sent][-1] is frames.Bye
            assert (await soon(bus.publish(event("after")))).offset > 0
            assert all(not each.open for each in await bus.consumers())

    log = logging.getLogger("tocsin")
    log.addHandler(handler)
    try:
        asyncio.run(meet())
    finally:
        log.removeHandler(handler)
    assert not defects, defects[0].getMessage() + str(defects[0].exc_info)
