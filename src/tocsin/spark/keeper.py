"""Keepers: processes beside Spark's Python workers, in which engines live from batch to batch.

    task of partition n ─ Work ─▶ keeper n ─ Answer ─▶ task, which stores what it must

Spark gives a partition's task to any of its Python processes. An engine inside one of them would mostly be out of date,
and would be in all of them after a while. So a task hands its batch to a keeper over a Unix socket: to the one of its
partition, whoever does the task. Keepers are forked by the first task that needs one (everything is imported there),
one for each core at most. They end with the process that Spark's workers are children of, or when nobody has asked for
a while.

Promised: a keeper is never needed. One that is gone, was killed or knows something else is given the stored state, and
where no keeper can be started the work is done in the task itself. Nobody else can reach one: the sockets lie in a
directory of this user's only.

Concurrency: a keeper does one thing at a time; tasks wait for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import logging
import os
import select
import signal
import socket
import stat
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

import msgspec

from tocsin.spark.engines import Answer, Engines, Stored, Work

__all__ = ["NAME", "do"]

NAME = "tocsin-keeper"
"""What the system calls such a process."""
_IDLE = 600.0  # seconds without a question after which a keeper ends
_TICK = 2.0
_STARTING = 10.0  # seconds in which a keeper must answer its door …
_AGAIN = 300.0  # … else none is started for so long
_COLLECT = 2000  # answers after which memory is looked through for what is in use no more
_LONGEST = 900.0  # seconds that a keeper may take for one batch, and those before it
_LONGEST_NAME = 92  # characters of a directory of sockets; their own names, and what systems take, are 108 together
_HEAD = 8
_ON = "TOCSIN_KEEPERS"
"""An environment variable: `off` has tasks do everything themselves."""

_log = logging.getLogger(__name__)
_here = Engines()
_doors: dict[int, socket.socket] = {}


class _Reply(msgspec.Struct, array_like=True):
    answer: Answer | None = None
    """None: the stored state is needed."""
    error: str | None = None


_encode = msgspec.msgpack.Encoder().encode
_read_work = msgspec.msgpack.Decoder(Work).decode
_read_reply = msgspec.msgpack.Decoder(_Reply).decode


def do(work: Work, partition: int, fetch: Callable[[], Stored]) -> Answer:
    """Have a batch done.

    Args:
        work: the batch.
        partition: of the task.
        fetch: gets the stored state, if it is needed.
    """
    failures = 0
    while failures < 2:
        try:
            reply = _asked(work, partition)
        except (OSError, EOFError):  # it is gone: another one may begin
            failures += 1
            continue
        if reply is None:
            break
        if reply.answer is not None:
            return reply.answer
        work = msgspec.structs.replace(work, stored=fetch())  # what goes wrong there is nothing of a keeper's
    found = _here.run(work)
    if found is None:
        found = _here.run(msgspec.structs.replace(work, stored=fetch()))
    assert found is not None
    return found


def _asked(work: Work, partition: int) -> _Reply | None:
    """Ask the keeper of a partition; None: there is none."""
    number = partition % (os.cpu_count() or 1)
    door = _door(number)
    if door is None:
        return None
    try:
        _send(door, _encode(work))
        reply = _read_reply(_receive(door))
    except BaseException:  # what it would say next is the answer to something else
        _doors.pop(number).close()
        raise
    if reply.error is not None:
        raise RuntimeError(f"an engine has failed:\n{reply.error}")
    return reply


# -- frames


def _send(door: socket.socket, content: bytes) -> None:
    door.sendall(len(content).to_bytes(_HEAD, "little"))
    door.sendall(content)


def _receive(door: socket.socket) -> bytearray:
    return _exactly(door, int.from_bytes(_exactly(door, _HEAD), "little"))


def _exactly(door: socket.socket, count: int) -> bytearray:
    content = bytearray(count)
    view, done = memoryview(content), 0
    while done < count:
        got = door.recv_into(view[done:])
        if not got:
            raise EOFError("a keeper, or who asked it, is gone")
        done += got
    return content


# -- finding and starting


def _door(number: int) -> socket.socket | None:
    if number not in _doors:
        if os.environ.get(_ON) == "off" or not hasattr(socket, "AF_UNIX") or not hasattr(os, "fork"):
            return None
        parent = os.getppid()
        place = _directory(parent)
        if place is None or _is_too_long(str(place)):
            return None
        path = str(place / f"{number}.sock")
        failed = place / f"{number}.failed"
        with _locked(place / f"{number}.lock"):
            door = _knock(path)
            if door is None and not _is_fresh(failed):
                _start(path, parent)
                until = time.monotonic() + _STARTING
                while door is None and time.monotonic() < until:
                    time.sleep(0.005)
                    door = _knock(path)
                if door is None:  # every task would wait so long
                    failed.touch()
                    _log.warning("no keeper begins at %s: tasks do without one, and take longer", path)
        if door is None:
            return None
        door.settimeout(_LONGEST)
        _doors[number] = door
    return _doors[number]


@lru_cache(maxsize=1)
def _is_too_long(place: str) -> bool:
    """Is a directory's name too long for a socket in it? Systems have a limit. Who has such a one is told once."""
    if len(place) <= _LONGEST_NAME:
        return False
    _log.warning(
        "no keeper can listen in %s, whose name is too long: tasks do without one, and take longer; "
        "let TMPDIR name a shorter place before Spark is started",
        place,
    )
    return True


def _is_fresh(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime < _AGAIN
    except FileNotFoundError:
        return False


def _directory(parent: int) -> Path | None:
    """Where the sockets lie of keepers that belong to a process: a directory of this user's only."""
    place = Path(tempfile.gettempdir()) / f"tocsin-keepers-{os.getuid()}"
    for each in (place, place / str(parent)):
        with contextlib.suppress(FileExistsError):
            each.mkdir(mode=0o700)
        found = each.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            return None
    return place / str(parent)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Of several tasks one starts a keeper."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _knock(path: str) -> socket.socket | None:
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.connect(path)
    except OSError:
        door.close()
        return None
    return door


def _start(path: str, parent: int) -> None:
    """Fork a keeper, by way of a process that ends at once: Spark's workers should have no children."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        if not os.fork():
            _be_keeper(path, parent)
    finally:
        os._exit(0)


# -- being one


def _be_keeper(path: str, parent: int) -> NoReturn:
    try:
        os.setsid()
        for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
            signal.signal(name, signal.SIG_DFL)
        # What the worker has open is not ours. The numbers stay taken: objects that close them later find them so.
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(NAME)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in _open_files():
            if number != nothing:
                with contextlib.suppress(OSError):
                    os.dup2(nothing, number, inheritable=False)
        _serve(path, parent)
    finally:
        os._exit(0)


def _open_files() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return list(range(1024))


def _serve(path: str, parent: int) -> None:
    # What engines hold leads nowhere back to itself, and there may be millions of it: the collector would look through
    # all that is new after every batch, for nothing. What else there is waits.
    gc.disable()
    engines, answers = Engines(), 0
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # of one that was killed
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(64)
    guests: dict[int, socket.socket] = {}
    poller = select.poll()
    poller.register(listening, select.POLLIN)
    asked, born = time.monotonic(), _born(parent)
    try:
        while _lives(parent, born) and time.monotonic() < asked + _IDLE:
            for number, _ in poller.poll(_TICK * 1000):
                if number == listening.fileno():
                    guest, _ = listening.accept()
                    guests[guest.fileno()] = guest
                    poller.register(guest, select.POLLIN)
                    continue
                try:
                    _send(guests[number], _encode(_answer(engines, _receive(guests[number]))))
                    asked, answers = time.monotonic(), answers + 1
                    if answers % _COLLECT == 0:
                        gc.collect()
                except (OSError, EOFError):
                    poller.unregister(number)
                    guests.pop(number).close()
    finally:
        os.unlink(path)
        if not _lives(parent, born):  # nobody comes any more
            with contextlib.suppress(OSError):
                os.unlink(path.removesuffix(".sock") + ".lock")
                os.rmdir(os.path.dirname(path))


def _answer(engines: Engines, question: bytearray) -> _Reply:
    try:
        return _Reply(engines.run(_read_work(question)))
    except Exception:  # the task fails with it, and is tried again
        return _Reply(error=traceback.format_exc())


def _lives(process: int, born: str | None) -> bool:
    """Is a process there, and still the one that it was? Its number may have become another's."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is there
        pass
    return _born(process) == born


def _born(process: int) -> str | None:
    """When a process began, in the system's own measure; None: it does not say."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None
