"""A process that hosts a rule, for `test_kill.py`: `dying.py URL OUT [die]`. With `die`, it is killed in the action."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import tocsin
from tocsin.rules import Rules


async def main(url: str, out: Path, dies: bool) -> None:
    async with tocsin.connect(url, name="host") as bus:
        rules, done = Rules(bus), asyncio.Event()

        @rules.rule(on="door.open")
        async def note(event: tocsin.Event) -> None:
            with out.open("a") as file:
                file.write(f"{event.data['door']} {'dies' if dies else 'done'}\n")
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            if event.data["door"] == 2:
                done.set()

        async with rules:
            if dies:
                await bus.publish_many([tocsin.Event("door.open", "s", data={"door": door}) for door in (1, 2)])
            await asyncio.wait_for(done.wait(), 60)


asyncio.run(main(sys.argv[1], Path(sys.argv[2]), "die" in sys.argv))
