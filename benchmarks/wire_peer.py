"""The peer of `bench_wire`: Redis Streams, every write flushed (`appendfsync always`), through redis-py.

The same programs as `wire_programs`, as one would write them for Redis: publishing by pipelines, consuming by a group,
or, in the crowd, every consumer reads the stream and keeps what it wants. The server listens on a free port, keeps its
files in a folder of the benchmark, and ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.processes import say, wait_for_go
from benchmarks.wire_programs import payloads, spent

STREAM, GROUP = "events", "ops"


def version() -> str | None:
    """Which Redis there is; None: none, or not its client."""
    try:
        import redis
    except ImportError:
        return None
    if shutil.which("redis-server") is None:
        return None
    said = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
    return f"{said.split('v=')[1].split()[0]}, redis-py {redis.__version__}"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[int, int]]:
    """A server while the context is open: its process and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", "always", "--loglevel", "warning"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait(port)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()


def _wait(port: int) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def publish(port: str, count: str, batch: str, seed: str) -> None:
    """Publish by pipelines."""
    client, events, size = _client(port), payloads(int(count), int(seed)), int(batch)
    started, cpu = wait_for_go(), spent()
    for start in range(0, len(events), size):
        pipe = client.pipeline(transaction=False)
        for event in events[start : start + size]:
            pipe.xadd(STREAM, event)
        pipe.execute()
    say(cpu=spent() - cpu, wall=time.perf_counter() - started, ended=time.perf_counter())


def consume(port: str, count: str, batch: str) -> None:
    """Take and acknowledge in batches, until all are acknowledged."""
    client, total, got = _client(port), int(count), 0
    client.xgroup_create(STREAM, GROUP, mkstream=True)
    started, cpu = wait_for_go(), spent()
    while got < total:
        for _, found in client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=int(batch), block=1000) or ():
            client.xack(STREAM, GROUP, *(id for id, _ in found))
            got += len(found)
    say(cpu=spent() - cpu, wall=time.perf_counter() - started, ended=time.perf_counter())


async def steady_publish(port: str, rate: str, seconds: str) -> None:
    """Publish one by one on a schedule; each event says when the call was made."""
    client, answered = _async_client(port), list[float]()
    events = payloads(int(rate) * int(seconds), 1)
    await client.xadd(STREAM, {**events[0], "at": 0.0})

    async def one(data: dict[str, Any]) -> None:
        at = time.perf_counter()
        await client.xadd(STREAM, {**data, "at": at})
        answered.append(time.perf_counter() - at)

    started, cpu, tasks = wait_for_go() + 0.05, spent(), []
    for number, data in enumerate(events):
        if (wait := started + number / int(rate) - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(one(data)))
    await asyncio.gather(*tasks)
    say(cpu=spent() - cpu, answered=answered)
    await client.aclose()


async def steady_consume(port: str, count: str) -> None:
    """Take and acknowledge one by one; tell how long each has been on its way."""
    client, settler = _async_client(port), _async_client(port)
    latencies: list[float] = []
    settling: set[asyncio.Task[Any]] = set()
    await client.xgroup_create(STREAM, GROUP, mkstream=True)
    wait_for_go()
    cpu = spent()
    while len(latencies) < int(count):
        for _, found in await client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=500, block=1000) or ():
            for id, event in found:
                if at := float(event[b"at"]):
                    latencies.append(time.perf_counter() - at)
                task = asyncio.create_task(settler.xack(STREAM, GROUP, id))
                settling.add(task)
                task.add_done_callback(settling.discard)
    await asyncio.gather(*settling)
    say(cpu=spent() - cpu, latencies=latencies)
    await client.aclose()
    await settler.aclose()


def crowd(port: str, consumers: str, count: str) -> None:
    """Many consumers that read everything and keep what they want, one after the other; `count` are published."""
    many, total, got = int(consumers), int(count), 0
    clients, last, read = [_client(port) for _ in range(many)], [b"0"] * many, [0] * many
    wait_for_go()
    cpu = spent()
    while min(read) < total:
        for number, client in enumerate(clients):
            if read[number] >= total:
                continue
            low, high = number * 1000 / many, (number + 1) * 1000 / many
            for _, found in client.xread({STREAM: last[number]}, count=500, block=1000) or ():
                last[number] = found[-1][0]
                read[number] += len(found)
                got += sum(low <= float(event[b"value"]) < high for _, event in found)
    say(cpu=spent() - cpu, got=got)


def _client(port: str) -> Any:
    import redis

    return redis.Redis(port=int(port))


def _async_client(port: str) -> Any:
    """Every command under way has a connection of its own; beyond 50 they wait for one."""
    from redis import asyncio as redis

    return redis.Redis(connection_pool=redis.BlockingConnectionPool(port=int(port), max_connections=50, timeout=60))


if __name__ == "__main__":
    program = globals()[sys.argv[1]](*sys.argv[2:])
    if program is not None:
        asyncio.run(program)
    sys.stdout.flush()
    os._exit(0)
