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
import os
import select
import signal
import socket
import stat
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import msgspec

from tocsin.spark.engines import Answer, Engines, Stored, Work

__all__ = ["NAME", "do"]

NAME = "tocsin-keeper"
"""What the system calls such a process."""
_IDLE = 600.0  # seconds without a question after which a keeper ends
_TICK = 2.0
_STARTING = 10.0  # seconds in which a keeper must answer its door
_HEAD = 8
_ON = "TOCSIN_KEEPERS"
"""An environment variable: `off` has tasks do everything themselves."""

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
    for _ in range(2):
        with contextlib.suppress(OSError, EOFError):
            answer = _ask(work, partition, fetch)
            if answer is not None:
                return answer
            break
    found = _here.run(work)
    if found is None:
        found = _here.run(msgspec.structs.replace(work, stored=fetch()))
    assert found is not None
    return found


def _ask(work: Work, partition: int, fetch: Callable[[], Stored]) -> Answer | None:
    """Ask the keeper of a partition; None: there is none."""
    number = partition % (os.cpu_count() or 1)
    door = _door(number)
    if door is None:
        return None
    try:
        answer = _asked(door, work)
        return answer if answer is not None else _asked(door, msgspec.structs.replace(work, stored=fetch()))
    except BaseException:  # what it would say next is the answer to something else
        _doors.pop(number).close()
        raise


def _asked(door: socket.socket, work: Work) -> Answer | None:
    _send(door, _encode(work))
    reply = _read_reply(_receive(door))
    if reply.error is not None:
        raise RuntimeError(f"an engine has failed:\n{reply.error}")
    return reply.answer


# -- frames


def _send(door: socket.socket, content: bytes) -> None:
    door.sendall(len(content).to_bytes(_HEAD, "little"))
    door.sendall(content)


def _receive(door: socket.socket) -> bytes:
    return _exactly(door, int.from_bytes(_exactly(door, _HEAD), "little"))


def _exactly(door: socket.socket, count: int) -> bytes:
    content = bytearray(count)
    view, done = memoryview(content), 0
    while done < count:
        got = door.recv_into(view[done:])
        if not got:
            raise EOFError("a keeper, or who asked it, is gone")
        done += got
    return bytes(content)


# -- finding and starting


def _door(number: int) -> socket.socket | None:
    if number not in _doors:
        if os.environ.get(_ON) == "off" or not hasattr(socket, "AF_UNIX") or not hasattr(os, "fork"):
            return None
        parent = os.getppid()
        place = _directory(parent)
        path = str(place / f"{number}.sock") if place is not None else ""
        if place is None or len(path) > 100:  # systems have a limit
            return None
        with _locked(place / f"{number}.lock"):
            door = _knock(path)
            if door is None:
                _start(path, parent)
                until = time.monotonic() + _STARTING
                while door is None and time.monotonic() < until:
                    time.sleep(0.005)
                    door = _knock(path)
        if door is None:
            return None
        _doors[number] = door
    return _doors[number]


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
    engines = Engines()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # of one that was killed
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(64)
    guests: dict[int, socket.socket] = {}
    poller = select.poll()
    poller.register(listening, select.POLLIN)
    asked = time.monotonic()
    try:
        while _lives(parent) and time.monotonic() < asked + _IDLE:
            for number, _ in poller.poll(_TICK * 1000):
                if number == listening.fileno():
                    guest, _ = listening.accept()
                    guests[guest.fileno()] = guest
                    poller.register(guest, select.POLLIN)
                    continue
                try:
                    _send(guests[number], _encode(_answer(engines, _receive(guests[number]))))
                    asked = time.monotonic()
                except (OSError, EOFError):
                    poller.unregister(number)
                    guests.pop(number).close()
    finally:
        os.unlink(path)
        if not _lives(parent):  # nobody comes any more
            with contextlib.suppress(OSError):
                os.unlink(path.removesuffix(".sock") + ".lock")
                os.rmdir(os.path.dirname(path))


def _answer(engines: Engines, question: bytes) -> _Reply:
    try:
        return _Reply(engines.run(_read_work(question)))
    except Exception:  # the task fails with it, and is tried again
        return _Reply(error=traceback.format_exc())


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
