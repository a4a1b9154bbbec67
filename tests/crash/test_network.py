"""Kill -9 of a real server and of real clients in traffic: nothing answered is lost, nothing settled is repeated."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests import processes
from tests.helpers import event, soon

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]


program = functools.partial(processes.program, "tests.crash.network_programs")


def first_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def test_killed_server_loses_nothing_answered_and_repeats_nothing_settled(tmp_path: Path) -> None:
    chance, port = random.Random(6), free_port()
    url = f"file:{tmp_path / 'plant.db'}"
    answered: dict[str, int] = {}
    settled: set[str] = set()
    repeated: list[str] = []
    progress = asyncio.Condition()

    async def publish(bus: Any, worker: int) -> None:
        for place in range(1_000_000):
            id = f"{worker}-{place}"
            published = await bus.publish(event(id, source="load"))
            assert answered.setdefault(id, published.offset) == published.offset
            async with progress:
                progress.notify_all()

    async def settle(sub: Any) -> None:
        async for batch in sub.batches(20):
            got = [delivery.event.id for delivery in batch]
            repeated.extend(id for id in got if id in settled)
            await batch.ack()
            settled.update(got)

    async def until(count: int) -> None:
        async with progress:
            await asyncio.wait_for(progress.wait_for(lambda: len(answered) >= count), 60)

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(program("server", url, port))
        address = await asyncio.to_thread(first_line, server)
        async with tocsin.connect(address, name="load", patience=60) as bus:
            sub = await bus.subscribe("TRUE", consumer="ops")
            tasks = [asyncio.create_task(publish(bus, worker)) for worker in range(5)]
            tasks.append(asyncio.create_task(settle(sub)))
            for _ in range(3):
                await until(len(answered) + chance.randrange(20, 200))
                server.send_signal(signal.SIGKILL)
                server = stack.enter_context(program("server", url, port))
                await asyncio.to_thread(first_line, server)
            await until(len(answered) + 20)
            for task in tasks[:-1]:
                task.cancel()
            await asyncio.gather(*tasks[:-1], return_exceptions=True)
            last = await bus.publish(event("last", source="load", priority=1))
            while "last" not in settled:
                assert not tasks[-1].done(), tasks[-1]
                await soon(bus.status("last"))
            tasks[-1].cancel()
            assert repeated == []
            assert answered.keys() <= settled
            assert len(set(answered.values())) == len(answered) and max(answered.values()) < last.offset
        server.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(server.wait, 30) == 0, "SIGTERM drains, and that is no failure"


async def test_killed_client_loses_nothing_and_nothing_settled_comes_again(tmp_path: Path) -> None:
    chance = random.Random(7)
    published: set[str] = set()
    got: set[str] = set()
    settled: set[str] = set()
    with program("server", f"file:{tmp_path / 'plant.db'}", 0) as server:
        address = await asyncio.to_thread(first_line, server)

        def live(number: int) -> None:
            with program("client", address, number) as client:
                assert client.stdout is not None
                end = chance.randrange(50, 400)
                for lines, line in enumerate(client.stdout, 1):
                    if not line.endswith("\n"):
                        break
                    what, id = line.split()
                    if what == "published":
                        published.add(id)
                    elif what == "settled":
                        settled.add(id)
                    else:
                        assert id not in settled, "it was settled"
                        got.add(id)
                    if lines == end:
                        client.send_signal(signal.SIGKILL)

        for number in range(3):
            await asyncio.to_thread(live, number)
        async with tocsin.connect(address, name="heir") as bus:
            sub = await bus.subscribe("TRUE", consumer="ops")
            left: set[str] = set()
            while (await bus.consumers())[0].lag:
                delivery = await soon(sub.next())
                assert delivery.event.id not in settled
                left.add(delivery.event.id)
                await delivery.ack()
        assert published <= got | left, "what was got may be settled, though the client did not live to say so"


async def test_members_of_a_group_killed_in_many_short_lives(tmp_path: Path) -> None:
    """Two members with priorities and a replay beside them; every life of either is short, and so are the server's."""
    chance, port = random.Random(8), free_port()
    url = f"file:{tmp_path / 'plant.db'}"
    published: set[str] = set()
    got: set[str] = set()
    settled: set[str] = set()
    faults: list[str] = []

    def live(address: str, number: int, stack: contextlib.ExitStack, server: Any) -> None:
        with program("member", address, number) as client:
            assert client.stdout is not None
            read: set[str] = set()
            end = chance.randrange(20, 250)
            for lines, line in enumerate(client.stdout, 1):
                if not line.endswith("\n"):
                    break
                what, id = line.split()
                if what == "published":
                    published.add(id)
                elif what == "settled":
                    settled.add(id)
                elif what == "got":
                    if id in settled:
                        faults.append(id)
                    got.add(id)
                else:  # of the past, settled before it is said
                    if id in read:
                        faults.append(id)
                    read.add(id)
                if lines == end:
                    client.send_signal(signal.SIGKILL)
                    if server is not None:  # the other member goes on with the next
                        server.send_signal(signal.SIGKILL)
                        server.wait()
                        stack.enter_context(program("server", url, port))

    for life in range(3):
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(program("server", url, port))
            address = await asyncio.to_thread(first_line, server)
            kills = server if life == 1 else None
            one = asyncio.to_thread(live, address, 2 * life, stack, kills)
            await asyncio.gather(one, asyncio.to_thread(live, address, 2 * life + 1, stack, None))
    assert faults == [], "settled, and came again"
    async with tocsin.connect(url) as bus:
        sub = await bus.subscribe("kind = 'work'", consumer="heir", group="crew")
        left: set[str] = set()
        while (await bus.consumers())[0].lag:
            delivery = await soon(sub.next())
            assert delivery.event.id not in settled
            left.add(delivery.event.id)
            await delivery.ack()
    assert published <= got | left
    assert len(published) > 20
