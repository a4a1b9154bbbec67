"""Kill -9 of a real server and of real clients in traffic: nothing answered is lost, nothing settled is repeated."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.helpers import event, soon

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def program(*words: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.crash.network_programs", *map(str, words)]
    path = f"{ROOT}:{ROOT / 'src'}"
    with subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


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
        async for delivery in sub:
            if delivery.event.id in settled:
                repeated.append(delivery.event.id)
            await delivery.ack()
            settled.add(delivery.event.id)

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
