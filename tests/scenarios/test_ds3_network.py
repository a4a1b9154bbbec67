"""Acceptance scenarios of DS3 that need a network; and all the others once more, over a real socket.

The network is a proxy that can be cut, stalled and mended (`tests.proxy`); nodes and senders that die are processes of
their own. 41 and 42 are benchmarks (`benchmarks/bench_ds3.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import random
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import websockets

import tocsin
from tests import processes
from tests.helpers import event, soon, testing
from tests.proxy import Proxy, proxy
from tests.scenarios import test_ds3
from tocsin.net import serve
from tocsin.net.protocol import Limits
from tocsin.peers.groups import Message, View

ROOT = Path(__file__).resolve().parents[2]

OVER_THE_NETWORK = [
    scenario
    for name, scenario in vars(test_ds3).items()
    if name.startswith("test_") and list(inspect.signature(scenario).parameters) == ["bus"]
]


@pytest.mark.parametrize("scenario", OVER_THE_NETWORK, ids=lambda scenario: scenario.__name__)
async def test_scenario(scenario: Any) -> None:
    async with testing.node("ws:") as bus:
        await soon(scenario(bus))


QUICK = Limits(beat=0.1, silence=0.6)
"""Who is silent is gone soon."""


@contextlib.asynccontextmanager
async def plant(limits: Limits = QUICK) -> AsyncIterator[tuple[str, Proxy]]:
    """A node: its address, and a way to it that can be cut."""
    async with tocsin.connect("memory:") as node, serve(node, limits=limits) as server, proxy(server.url) as network:
        yield server.url, network


@pytest.mark.parametrize("how", ["cut", "stall"])
async def test_14_a_publisher_is_partitioned_away(how: str) -> None:
    """Its resource is depleted, and found when it is back; subscriptions go on, and no application does anything."""
    async with (
        plant() as (url, network),
        tocsin.connect(url, name="S") as s,
        tocsin.connect(network.url, name="P", patience=20) as p,
    ):
        values, orders = await s.subscribe("value > 1"), await p.subscribe("type = 'order'")
        changes = s.resources()
        await p.advertise("type = 'NewValue'")
        await p.publish(test_ds3.value(2, "before"))
        assert (await soon(values.next())).event.id == "before"
        assert (await soon(changes.next())).kind == "found"
        network.cut() if how == "cut" else network.stall()
        assert ((gone := await soon(changes.next())).kind, gone.by) == ("depleted", "P")
        publishing = asyncio.ensure_future(p.publish(test_ds3.value(3, "meanwhile")))
        await s.publish(event("o1", type="order"))
        network.mend() if how == "cut" else network.flow()
        assert (await soon(changes.next())).kind == "found"
        await soon(publishing)
        assert (await soon(values.next())).event.id == "meanwhile"
        assert (await soon(orders.next())).event.id == "o1"
        assert changes.poll() is None and values.poll() is None


async def test_20_one_sender_over_a_link_that_breaks() -> None:
    """Links of the sender and of one receiver break at random: each receiver gets 1 to n, no gap and no duplicate."""
    chance, count = random.Random(20), 150
    async with (
        plant() as (url, network),
        proxy(url) as other_network,
        tocsin.connect(network.url, name="P", patience=20) as sender,
        tocsin.connect(other_network.url, name="R1", patience=20) as broken,
        tocsin.connect(url, name="R2") as whole,
        whole.join("g") as member,
        sender.join("g") as sending,
    ):
        subs = [await bus.subscribe("n > 0", consumer=bus.name, order="journal") for bus in (broken, whole)]

        async def receive(sub: Any) -> list[int]:
            got: list[int] = []
            while len(got) < count:
                delivery = await sub.next()
                await delivery.ack()
                got.append(delivery.event.data["n"])
            return got

        async def hear() -> list[int]:
            got: list[int] = []
            while len(got) < count:
                if isinstance(item := await member.next(), Message):
                    got.append(item.data)
            return got

        async def send() -> None:
            for n in range(1, count + 1):
                await asyncio.gather(sender.publish(event(str(n), data={"n": n})), sending.cast(n))

        tasks = [asyncio.ensure_future(each) for each in (send(), *map(receive, subs), hear())]
        breaks = 0
        while not tasks[0].done():
            for each in (network, other_network):
                if each.passed > each.count * chance.randrange(6_000, 16_000):  # so much after each new connection
                    each.snap()
                    breaks += 1
            await asyncio.sleep(0.005)
        _, *got = await asyncio.wait_for(asyncio.gather(*tasks), 40)
        assert breaks > 3
        assert got == [list(range(1, count + 1))] * 3
        assert [each.poll() for each in subs] == [None, None]


program = functools.partial(processes.program, "tests.scenarios.ds3_programs")


async def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return (await asyncio.to_thread(child.stdout.readline)).strip()


async def test_21_the_sender_dies_in_the_middle() -> None:
    """What it has cast is heard by all who are left or by none, and before the view without it."""
    async with (
        plant() as (url, _),
        tocsin.connect(url, name="A") as a,
        tocsin.connect(url, name="B") as b,
        a.join("g") as first,
        b.join("g") as second,
    ):
        with program("caster", url) as caster:
            assert await line(caster) == "joined"
            while not isinstance(item := await soon(first.next()), Message) or item.data["n"] < 20:
                pass
            caster.send_signal(signal.SIGKILL)
        heard: list[list[Any]] = []
        for group in (first, second):
            items: list[Any] = []
            while not items or not isinstance(items[-1], View) or "caster" not in items[-1].left:
                items.append(await soon(group.next()))
            heard.append([each for each in items if isinstance(each, Message)])
            assert items[-1].members == ("A", "B")
        assert heard[1][-len(heard[0]) :] == heard[0], "the same, before the same view"
        assert [each.data["n"] for each in heard[1]] == list(range(len(heard[1]))), "whatever it was at is whole"
        await first.cast("on we go")
        assert [(await soon(group.next())).data for group in (first, second)] == ["on we go"] * 2


async def test_25_publishing_while_the_transport_is_stalled() -> None:
    """The call returns within a bound, with an error of ours; repeating it later stores it once."""
    async with plant() as (url, network), tocsin.connect(network.url, name="P", patience=0.3) as p:
        sub = await p.subscribe("TRUE")
        await p.publish(event("before"))
        assert (await soon(sub.next())).event.id == "before"
        network.stall()
        begun = time.monotonic()
        with pytest.raises(tocsin.ConnectionLostError):
            await p.publish(event("stalled"))
        with pytest.raises(tocsin.RequestTimeout):
            await p.request("r", timeout=0.2)
        assert time.monotonic() - begun < 5
        network.flow()
        again = p.publish(event("stalled"))
        while True:
            try:
                published = await soon(again)
                break
            except tocsin.ConnectionLostError:
                again = p.publish(event("stalled"))
        assert (await soon(sub.next())).event.id == "stalled"
        assert await p.publish(event("stalled")) == published


async def test_26_the_node_dies_during_sends(tmp_path: Path) -> None:
    """It is started again; the client rejoins, and what was not sent goes in its original order."""
    count, url = 300, f"file:{tmp_path / 'plant.db'}"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(program("node", url, port))
        address = await line(node)
        async with tocsin.connect(address, name="P", patience=60) as p, p.join("g") as group:
            await p.advertise("n > 0")
            sent = [asyncio.ensure_future(p.publish(event(str(n), data={"n": n}))) for n in range(1, count + 1)]
            await soon(sent[20])
            node.send_signal(signal.SIGKILL)
            later = [
                asyncio.ensure_future(p.publish(event(str(n), data={"n": n}))) for n in range(count + 1, count + 9)
            ]
            node = stack.enter_context(program("node", url, port))
            await line(node)
            offsets = [each.offset for each in await asyncio.wait_for(asyncio.gather(*sent, *later), 80)]
            assert offsets == sorted(offsets) and len(set(offsets)) == count + 8
            views = [await soon(group.next()) for _ in range(3)]
            assert [each.members for each in views] == [("P",), (), ("P",)], "who was there, the crash, and back again"
            assert (await soon(p.resources().next())).resource == "n > 0"
            sub = await p.subscribe("n > 0", past=tocsin.retained(), order="journal", auto_ack=True)
            assert [(await soon(sub.next())).event.data["n"] for _ in range(count + 8)] == list(range(1, count + 9))


async def test_34_malformed_documents_and_frames() -> None:
    """They are refused, or match nothing; everything lives on, and what comes later is processed."""
    async with plant() as (url, _), tocsin.connect(url, name="S") as s:
        sub = await s.subscribe("xpath_boolean(data, '/Rektron/SQC/Measurement/NewValue')")
        for garbage in (
            '{"op": "publish", "n": 1, "events": "<Rektron>"}',
            "<Rektron><SQC>",
            '{"op": "fly"}',
            b"\xff\x00",
        ):
            async with websockets.connect(url + "/bus", compression=None) as stranger:
                await stranger.send('{"op": "hello", "version": 1, "name": "stranger"}')
                assert json.loads(await soon(stranger.recv()))["op"] == "welcome"
                await stranger.send(garbage)
                refused = json.loads(await soon(stranger.recv()))
                assert refused["error"]["error"] == "ProtocolError"
                with pytest.raises(websockets.ConnectionClosed):
                    while True:
                        await soon(stranger.recv())
                assert stranger.close_code == 4400
        for bad in (
            "<Rektron><SQC>",
            "",
            "<a></b>",
            "&",
            "<!DOCTYPE x [<!ENTITY y SYSTEM 'file:///etc/passwd'>]><x>&y;</x>",
        ):
            await s.publish(tocsin.Event("document", "P", data=bad, datacontenttype="application/xml"))
        await s.publish(test_ds3.document("NewValue"))
        assert (await soon(sub.next())).event.id == "NewValue"
        assert sub.poll() is None
