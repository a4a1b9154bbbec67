"""The supervisor of a node's Spark pipeline: starts it, answers it, starts it again when it has ended, ends it.

    start ─▶ Begin, Fit ─▶ Up ─▶ Found, Report … ─▶ it ends ─▶ wait (1 s, 2 s, … a minute) ─▶ start

The pipeline is a process of its own (`python -m tocsin.spark.pipeline`). The node neither waits for it nor suffers from
it: while it is down, definitions placed there are looked for later. A pipeline that has worked for a while is started
again at once; one that fails again and again, less and less often. If Spark cannot run here at all, that is said once,
and definitions are looked for on the node.

What the process says goes to `pipeline.log` in its directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tocsin.clock import SECOND, as_datetime
from tocsin.errors import TocsinError
from tocsin.model import time_text
from tocsin.node import channel
from tocsin.node.beside import derived
from tocsin.node.channel import HEADER, Archived, Settings
from tocsin.node.pipeline import Node

__all__ = ["LOG", "Pipeline", "Status", "Supervisor", "Trouble", "supervised"]

LOG: Final = "pipeline.log"
COMMAND: Final = (sys.executable, "-m", "tocsin.spark.pipeline")
_FIRST, _LONGEST = 1.0, 60.0  # seconds between an end and the next start
_STEADY: Final = 60.0  # seconds after which an end counts as the first one
_GRACE: Final = 10.0  # seconds to end in; what is cut off is done again by the next
_LARGEST_LOG: Final = 8 << 20
_log = logging.getLogger("tocsin.pipeline")


class Pipeline(msgspec.Struct, frozen=True):
    """Which pipeline is wanted beside a node."""

    journal: str
    """The path of the journal's file."""
    directory: str
    """Where the pipeline keeps its own."""
    master: str
    lake: str | None = None
    """Where the journal is archived; None: it is not."""
    token: str | None = None
    """What lets executors on other machines in."""


class Trouble(msgspec.Struct, frozen=True):
    """What went wrong last."""

    message: str
    help: str | None
    at: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How the pipeline is."""

    state: Literal["starting", "up", "waiting", "unfit", "ended"]
    """`waiting`: to be started again; `unfit`: Spark cannot run here."""
    master: str
    pid: int | None
    spark: str | None
    """Its version, once it is up."""
    restarts: int
    definitions: int
    """How many it must look for."""
    offset: int | None
    """So far it has looked; None: not known yet."""
    head: int
    lag: int | None
    """Events it has yet to look at."""
    lag_seconds: float | None
    """How long ago the last one arrived that it has looked at, if there are more."""
    detected: int
    batches: int
    """Since it came up."""
    batch_seconds: float | None
    """What the last one took."""
    state_rows: int | None
    state_bytes: int | None
    archived: Archived | None
    trouble: Trouble | None
    next_start: float | None
    """Seconds until it is started again."""


class Supervisor:
    """One pipeline."""

    def __init__(self, node: Node, settings: Settings, command: Sequence[str] = COMMAND) -> None:
        """Prepare it; `run` starts it."""
        self._node, self._settings, self._command = node, settings, command
        self.state: Literal["starting", "up", "waiting", "unfit", "ended"] = "starting"
        self.restarts = 0
        self.trouble: Trouble | None = None
        self._process: Process | None = None
        self._spark: str | None = None
        self._batches = 0
        self._told: dict[str, Any] = {}
        self._next = 0.0
        self._said: str | None = None
        self._is_known = False  # whether Spark can run here
        self._stopping = False
        node.beside.expect()

    def status(self) -> Status:
        """How it is now."""
        node, progress = self._node, self._node.beside.progress
        lag = max(0, node.head - progress.offset) if progress is not None else None
        late = (node.now() - progress.instant) / SECOND if progress is not None and lag else 0.0
        wanted = node.watcher.placements.on_spark
        return Status(
            state=self.state,
            master=self._settings.master,
            pid=self._process.pid if self._process is not None else None,
            spark=self._spark,
            restarts=self.restarts,
            definitions=sum(each.is_told for each in wanted),
            offset=progress.offset if progress is not None else None,
            head=node.head,
            lag=lag,
            lag_seconds=round(late, 3) if lag is not None else None,
            detected=sum(node.beside.counts.values()),
            batches=self._batches,
            batch_seconds=self._told.get("batch_seconds"),
            state_rows=self._told.get("state_rows"),
            state_bytes=self._told.get("state_bytes"),
            archived=self._told.get("archived"),
            trouble=self.trouble,
            next_start=round(max(0.0, self._next - time.monotonic()), 1) if self.state == "waiting" else None,
        )

    # -- starting and ending

    async def run(self) -> None:
        """Keep one running until `stop`, or until it is known that none can run."""
        failures = 0
        while not self._over():
            self.state, begun = "starting", time.monotonic()
            try:
                await self._once()
            except Exception as error:  # no process could be made, or a defect of ours: the node must go on
                self._note(f"the Spark pipeline could not be started: {error}", None)
            if self._over():
                break
            if not self._is_known:  # nobody should wait for what may never come
                self._node.beside.refuse("the Spark pipeline does not start; see `tocsin pipeline status`")
            failures = 0 if time.monotonic() - begun > _STEADY else failures + 1
            wait = min(_FIRST * 2.0 ** min(failures - 1, 10), _LONGEST) if failures else _FIRST
            self.state, self._next = "waiting", time.monotonic() + wait
            self.restarts += 1
            await asyncio.sleep(wait)
        if self.state != "unfit":
            self.state = "ended"

    def _over(self) -> bool:
        return self._stopping or self.state == "unfit"

    async def _once(self) -> None:
        """One process, from its start to its end."""
        mine, its = socket.socketpair()
        self._spark, self._batches, self._told = None, 0, {}
        with mine, its, _log_file(Path(self._settings.directory)) as log:
            began = log.tell()
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command,
                str(its.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(its.fileno(),),
                start_new_session=True,  # Ctrl-C is for the node, which then ends it
            )
            its.close()
            if self._stopping:
                process.terminate()
            mine.setblocking(False)
            reader, writer = await asyncio.open_connection(sock=mine)
            failed: channel.Failed | None = None
            try:
                failed = await self._answer(reader, writer)
            finally:
                writer.close()
                self._node.beside.progress = None
                code = await _ended(process)
                self._process = None
        if not self._over():
            if failed is None:
                said = _last_lines(Path(self._settings.directory, LOG), began)
                what = f"signal {-code}" if code < 0 else f"code {code}"
                message = f"the Spark pipeline has ended with {what}{said}"
                failed = channel.Failed(message, f"see {LOG} in {self._settings.directory}")
            self._note(failed.message, failed.help)

    async def stop(self) -> None:
        """End it, and return when it has ended."""
        self._stopping = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def _note(self, message: str, help: str | None) -> None:
        """Keep what went wrong, and say it, but not again and again."""
        self.trouble = Trouble(message, help, time_text(as_datetime(self._node.now())))
        if message != self._said:
            self._said = message
            _log.error("%s", message if help is None else f"{message} ({help})")

    # -- answering

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> channel.Failed | None:
        """Answer until it hangs up; returns what it said in the end."""
        failed = None
        while True:
            try:
                body = await reader.readexactly(HEADER.unpack(await reader.readexactly(HEADER.size))[0])
                message = channel.decode(body)
                if isinstance(message, channel.Failed):
                    failed = message
                writer.write(channel.pack(await self._reply(message)))
                await writer.drain()
            except (asyncio.IncompleteReadError, ConnectionError):
                return failed

    async def _reply(self, message: channel.Message) -> object:
        beside = self._node.beside
        match message:
            case channel.Begin():
                return self._settings
            case channel.Look():
                version, wanted = beside.definitions()
                return None if version == message.version else channel.Definitions(version, wanted)
            case channel.Found():
                events = [derived(*msgspec.structs.astuple(each)) for each in message.events]
                place = (message.version, message.writer, message.position, message.upto, message.instant)
                return await beside.store(*place, events)
            case channel.Counted():
                with contextlib.suppress(TocsinError):  # one may be missing; the next says how far it goes
                    await beside.store_statistics(message.writer, message.position, message.data)
            case channel.Report():
                self._reported(message)
            case channel.Fit():
                self._is_known = True
                beside.attach()
            case channel.Unfit():
                self.state, self._is_known = "unfit", True
                why = f"Spark cannot run here, so that composite events are looked for on the node: {message.message}"
                beside.refuse(why)
                self._note(why, message.help)
            case channel.Up():
                self.state, self._spark, self.trouble, self._said = "up", message.spark, None, None
        return None

    def _reported(self, report: channel.Report) -> None:
        if report.progress is not None:
            self._batches += report.batch_seconds is not None
            self._node.beside.report(report.progress)
        for name in ("batch_seconds", "state_rows", "state_bytes", "archived"):
            if (value := getattr(report, name)) is not None:
                self._told[name] = value
        if report.trouble is not None:
            self._note(*report.trouble)


@asynccontextmanager
async def supervised(node: Node, pipeline: Pipeline, url: str) -> AsyncIterator[Supervisor]:
    """A pipeline beside a node while the context is open; `url` is where clients reach the node."""
    settings = Settings(
        journal=pipeline.journal,
        url=url.replace("ws", "http", 1),
        token=pipeline.token,
        master=pipeline.master,
        directory=pipeline.directory,
        lake=pipeline.lake,
    )
    supervisor = Supervisor(node, settings)
    task = asyncio.get_running_loop().create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        await supervisor.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * _GRACE):
                if supervisor.state == "waiting":
                    task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _ended(process: Process) -> int:
    """Wait until a process that has hung up is gone, and see to it."""
    try:
        async with asyncio.timeout(_GRACE):
            return await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()


def _log_file(directory: Path) -> Any:
    """The file for what the process says; what was said long ago makes room."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / LOG
    with contextlib.suppress(OSError):
        if path.stat().st_size > _LARGEST_LOG:
            os.replace(path, path.with_suffix(".log.1"))
    return path.open("ab")


def _last_lines(path: Path, began: int) -> str:
    """The last line that the process has said, for people."""
    try:
        with path.open("rb") as file:
            file.seek(began)
            lines = [line.strip() for line in file.read()[-4096:].decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return f": {lines[-1][:300]}" if lines else ""
