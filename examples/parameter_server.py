"""Parameters of machines, asked for by name: two servers, one of which dies in the middle of an answer.

The servers are processes of their own; who asks does not know where they are, or how many. A request ends with an
answer or with an error that says what happened, never in silence. Run it: python examples/parameter_server.py
"""

import asyncio
import os
import signal
import sys

import tocsin
from tocsin.net import serve

LIMITS = {"m7": 9.1, "m8": 12.0}


async def server(url: str, name: str) -> None:
    """What each server process does: answer for `params` until it is killed."""

    async def answer(request: tocsin.Request) -> dict[str, object]:
        if request.data.get("deadly") and request.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)  # as if somebody had pulled the plug
        await asyncio.sleep(request.data.get("takes", 0))
        limit = LIMITS[request.data["machine"]]  # KeyError: told to who asked, and the server goes on
        return {"limit": limit, "from": name, "attempt": request.attempt}

    async with tocsin.connect(url, name=name) as bus, bus.serve("params", answer):
        print(f"{name} serves", flush=True)
        await asyncio.Event().wait()


async def start(url: str, name: str) -> asyncio.subprocess.Process:
    """Run this file as a server; return when it serves."""
    output = {
        "stdout": asyncio.subprocess.PIPE,
        "stderr": asyncio.subprocess.DEVNULL,
    }  # its log: tracebacks of failures
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, url, name, **output)
    print((await process.stdout.readline()).decode().strip())
    return process


async def ask(bus, **data) -> None:
    """Ask, and print the answer, or why there is none."""
    options = {key: data.pop(key) for key in ("policy", "timeout") if key in data}
    try:
        print("  answer:", await bus.request("params", data, **options))
    except tocsin.RequestError as error:  # NoServer, RequestTimeout, RequestFailed and ServerLost are its kinds
        print(f"  {type(error).__name__}: {error}")


async def main() -> None:
    """A node, two servers, and a desk that asks in every way there is."""
    async with (
        tocsin.connect("memory:") as node,
        serve(node, port=0) as listening,  # what `tocsin up` does, on any free port
        tocsin.connect(listening.url, name="desk") as bus,
    ):
        print("Nobody serves yet:")
        await ask(bus, machine="m7")

        servers = [await start(listening.url, name) for name in ("left", "right")]
        try:
            print("one, the default: the less busy server is asked; equals take turns:")
            await ask(bus, machine="m7")
            await ask(bus, machine="m7")
            print("first: both are asked, and the first answer counts:")
            await ask(bus, machine="m8", policy="first")
            print("all: both are asked, and both answers come:")
            await ask(bus, machine="m8", policy="all")
            print("A mistake is told to who asked:")
            await ask(bus, machine="m9")
            print("An answer that takes too long is not waited for:")
            await ask(bus, machine="m7", takes=60, timeout=0.2)
            print("A server dies while it is at work; the other one is asked:")
            await ask(bus, machine="m7", deadly=True)
            print("Then that one dies as well:")
            for each in servers:
                await stop(each)
            await ask(bus, machine="m7")
        finally:
            for each in servers:
                await stop(each)


async def stop(process: asyncio.subprocess.Process) -> None:
    """Kill a server, if it lives."""
    if process.returncode is None:
        process.kill()
    await process.wait()


if __name__ == "__main__":
    asyncio.run(server(*sys.argv[1:]) if sys.argv[1:] else main())
