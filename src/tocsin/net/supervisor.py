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
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from tocsin.clock import SECOND, as_datetime, as_micros
from tocsin.errors import TocsinError
from tocsin.model import time_text
from tocsin.net.pipelinelog import LOG, bound, last_line, log_file
from tocsin.node import channel
from tocsin.node.beside import Detected, detected
from tocsin.node.channel import HEADER, Archived, Settings
from tocsin.node.divided import Divided
from tocsin.node.pipeline import Node

__all__ = ["Batch", "Pipeline", "Status", "Supervisor", "Trouble", "supervised", "unlooked"]

COMMAND: Final = (sys.executable, "-m", "tocsin.spark.pipeline")
_FIRST, _LONGEST = 1.0, 60.0  # seconds between an end and the next start
_STEADY: Final = 60.0  # seconds after which an end counts as the first one
_GRACE: Final = 10.0  # seconds to end in; what is cut off is done again by the next
_TIDY: Final = 60.0  # seconds between two looks at how much it has logged
_SHOWN: Final = 10  # names in a warning
_KEPT: Final = 120  # batches of which is told how long they took
_AT_ONCE: Final = 256  # detections that are made events in one turn of the loop
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
    advertise: str | None = None
    """Where they reach the node, as `https://host:8420`; None: by this machine's name."""
    ca: str | None = None
    """Certificates that they trust instead of the system's."""


class Trouble(msgspec.Struct, frozen=True):
    """What went wrong last."""

    message: str
    help: str | None
    at: str


class Batch(msgspec.Struct, frozen=True):
    """A batch that it has done."""

    at: str
    seconds: float
    """What it took."""
    events: int
    """How much further it has looked with it."""


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
    subscriptions: int
    """How many it must match."""
    offset: int | None
    """So far it has looked; None: not known yet."""
    head: int
    lag: int | None
    """Events it has yet to look at; None: not known, or nothing is to be looked for."""
    lag_seconds: float | None
    """How long ago the oldest of these arrived."""
    detected: int
    batches: int
    """Since it came up."""
    batch_seconds: float | None
    """What the last one took."""
    state_rows: int | None
    state_bytes: int | None
    archived: Archived | None
    matching: Divided | None
    """The filters of the subscriptions, as they were told last: their version and shards; None: there were none."""
    trouble: Trouble | None
    next_start: float | None
    """Seconds until it is started again."""
    history: list[Batch]
    """The last batches since it came up, the oldest first."""


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
        self._history: deque[Batch] = deque(maxlen=_KEPT)
        self._told: dict[str, Any] = {}
        self._next = 0.0
        self._said: str | None = None
        self._is_known = False  # whether Spark can run here
        self._subject = ""  # what the trouble is with
        self._stopping = False
        node.beside.expect()

    def status(self) -> Status:
        """How it is now."""
        node, progress = self._node, self._node.beside.progress
        wanted = node.watcher.placements.schedule
        lag = max(0, node.head - progress.offset) if progress is not None and wanted else None
        return Status(
            state=self.state,
            master=self._settings.master,
            pid=self._process.pid if self._process is not None else None,
            spark=self._spark,
            restarts=self.restarts,
            definitions=len(node.watcher.placements.on_spark),
            subscriptions=node.lanes.on_spark,
            offset=progress.offset if progress is not None else None,
            head=node.head,
            lag=lag,
            lag_seconds=self._late(lag),
            detected=sum(node.beside.counts.values()),
            batches=self._batches,
            batch_seconds=self._told.get("batch_seconds"),
            state_rows=self._told.get("state_rows"),
            state_bytes=self._told.get("state_bytes"),
            archived=self._told.get("archived"),
            matching=self._told.get("matching"),
            trouble=self.trouble,
            next_start=round(max(0.0, self._next - time.monotonic()), 1) if self.state == "waiting" else None,
            history=list(self._history),
        )

    def _late(self, lag: int | None) -> float | None:
        """How many seconds the oldest event has waited that was not looked at."""
        if not lag:
            return None if lag is None else 0.0
        node = self._node
        oldest = node.window.get(node.head - lag + 1)
        if oldest is None or oldest.arrived is None:  # it was trimmed, and nobody will look at it
            return 0.0
        return round(max(0, node.now() - as_micros(oldest.arrived)) / SECOND, 3)

    # -- starting and ending

    async def run(self) -> None:
        """Keep one running until `stop`, or until it is known that none can run."""
        failures = 0
        while not self._over():
            self.state, begun = "starting", time.monotonic()
            try:
                await self._once()
            except Exception as error:  # no process could be made, or a defect of ours: the node must go on
                self._note("pipeline", f"the Spark pipeline could not be started: {error}", None)
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
        self._history.clear()
        with mine, its, log_file(Path(self._settings.directory)) as log:
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
                failed = await self.answer(reader, writer)
            finally:
                writer.close()
                self._node.beside.progress = None
                code = await _ended(process)
                self._process = None
        if not self._over():
            if failed is None:
                said = last_line(Path(self._settings.directory, LOG), began)
                what = f"signal {-code}" if code < 0 else f"code {code}"
                message = f"the Spark pipeline has ended with {what}{said}"
                failed = channel.Failed(message, f"see {LOG} in {self._settings.directory}")
            # Once Spark is up, only a batch that is done shows that it is over.
            subject = "detection" if self._was_up() and code >= 0 else "pipeline"
            self._note(subject, failed.message, failed.help)

    def _was_up(self) -> bool:
        return self._spark is not None

    async def stop(self) -> None:
        """End it, and return when it has ended."""
        self._stopping = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def _note(self, subject: str, message: str, help: str | None) -> None:
        """Keep what went wrong, and say it, but not again and again."""
        self.trouble, self._subject = Trouble(message, help, time_text(as_datetime(self._node.now()))), subject
        if message != self._said:
            self._said = message
            _log.error("%s", message if help is None else f"{message} ({help})")

    def _mended(self, *subjects: str) -> None:
        """This works: what went wrong with it last is over."""
        if self._subject in subjects:
            self.trouble, self._said, self._subject = None, None, ""

    # -- answering

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> channel.Failed | None:
        """Answer until it hangs up; returns what it said in the end."""
        failed, tidied = None, time.monotonic()
        while True:
            if time.monotonic() > tidied + _TIDY:
                tidied = time.monotonic()
                await asyncio.to_thread(bound, Path(self._settings.directory))
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
                return await self._store(message)
            case channel.Wants():
                lanes = self._node.lanes  # asked ten times a second, and there may be many
                if lanes.version == message.version:
                    return None
                return channel.Subscriptions(lanes.version, lanes.elsewhere())
            case channel.Matched():
                self._node.lanes.matched(message.version, message.first, message.last, message.found)
                self._mended("matching")
            case channel.Recall():
                return beside.counted
            case channel.Counted():
                try:
                    await beside.store_statistics(message.counted, message.data)
                except TocsinError:  # a full disk, say: publishers hear of it, and statistics are told later
                    return False
                self._mended("statistics")
                return True
            case channel.Report():
                self._reported(message)
            case channel.Fit():
                self._is_known = True
                beside.attach()
            case channel.Unfit():
                self.state, self._is_known = "unfit", True
                why = f"Spark cannot run here, so that composite events are looked for on the node: {message.message}"
                beside.refuse(why)
                if left := unlooked(self._node):
                    _log.warning("%s", left)
                self._note("pipeline", why, message.help)
            case channel.Up():
                self.state, self._spark = "up", message.spark
                self._mended("pipeline")
        return None

    async def _store(self, found: channel.Found) -> channel.Outcome:
        """Store what a batch has found. What prevents it is the node's trouble: Spark waits, and is not to blame."""
        events: list[Detected] = []
        for start in range(0, len(found.events), _AT_ONCE):
            events += [detected(*msgspec.structs.astuple(each)) for each in found.events[start : start + _AT_ONCE]]
            await asyncio.sleep(0)  # there may be very many, and others wait
        try:
            place = (found.version, found.writer, found.position, found.upto, found.instant)
            is_stored = await self._node.beside.store(*place, events, found.traceparent, found.piece, found.is_last)
        except TocsinError as error:
            message = f"what Spark has detected could not be stored, and is told again: {error.message}"
            self._note("storing", message, error.help)
            return "later"
        self._mended("storing")
        return "stored" if is_stored else "stale"

    def _reported(self, report: channel.Report) -> None:
        if report.progress is not None:
            if report.batch_seconds is not None:
                self._batches += 1
                before = self._node.beside.progress
                more = report.progress.offset - before.offset if before is not None else 0
                now = time_text(as_datetime(self._node.now()))
                self._history.append(Batch(now, report.batch_seconds, max(0, more)))
            self._node.beside.report(report.progress)
        for name in ("batch_seconds", "state_rows", "state_bytes", "archived", "matching"):
            if (value := getattr(report, name)) is not None:
                self._told[name] = value
        if report.batch_seconds is not None:
            self._mended("detection")
        if report.archived is not None:
            self._mended("archive")
        if report.trouble is not None:
            self._note(*report.trouble)


@asynccontextmanager
async def supervised(node: Node, pipeline: Pipeline, url: str) -> AsyncIterator[Supervisor]:
    """A pipeline beside a node while the context is open; `url` is where clients reach the node."""
    settings = Settings(
        journal=pipeline.journal,
        url=pipeline.advertise or _reached(url),
        token=pipeline.token,
        master=pipeline.master,
        directory=pipeline.directory,
        lake=pipeline.lake,
        ca=pipeline.ca,
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


def _reached(url: str) -> str:
    """Where others reach a node that listens at a url: an address that means any of this machine's is none to go to."""
    for anywhere in ("//0.0.0.0:", "//[::]:"):
        url = url.replace(anywhere, f"//{socket.getfqdn()}:", 1)
    return url.replace("ws", "http", 1)


def unlooked(node: Node) -> str:
    """What to say of definitions and consumers that run on Spark where there is none; empty: there are none such."""
    names = node.watcher.placements.on_spark
    waiting = sorted(
        member
        for mailbox in node.mailboxes.values()
        if mailbox.options.placement == "spark"
        for member in mailbox.members
    )
    said = []
    if names:
        said.append(
            f"{len(names)} definitions run on Spark, and are not looked for ({_listed(names)}); what comes is kept, "
            "and looked at later. To have one looked for here: tocsin define NAME … --replace --placement node"
        )
    if waiting:
        said.append(
            f"{len(waiting)} consumers are matched on Spark, and get nothing new ({_listed(waiting)}); what comes is "
            "kept, and delivered later. To have one matched here, subscribe under another name: a consumer's placement "
            "is fixed"
        )
    return ". ".join(said)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


async def _ended(process: Process) -> int:
    """Wait until a process that has hung up is gone, and see to it."""
    try:
        async with asyncio.timeout(_GRACE):
            return await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        return await process.wait()
