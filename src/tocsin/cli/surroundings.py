"""What a node needs of its machine: a port, a disk, a clock, file descriptors. Looked at for `tocsin doctor`.

Each finding has a name, a state (`ok`, `note`: it works and could be better, `broken`), what was seen, and how to mend
it. Nothing is changed; for the disk a small file is written and removed.
"""

from __future__ import annotations

import errno
import http.client
import json
import resource
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tocsin.journal.durably import flush_seconds

__all__ = ["examine"]

Finding = dict[str, Any]
_GIB = 1 << 30
_ENOUGH_DISK, _LEAST_DISK = 2 * _GIB, _GIB // 10
_PATIENCE = 2.0  # seconds for whoever listens to answer
_SLOW_SYNC = 0.02  # seconds
_JUMP = 0.05  # seconds between two clocks in as many tenths
_BORN = datetime(2026, 1, 1, tzinfo=UTC)  # no clock that is right says less
_ENOUGH_FILES = 1024
_OTHER_HOST = "choose an address of this machine: --host"


def examine(host: str, port: int, data: Path) -> Iterator[Finding]:
    """Look at everything, one after the other."""
    yield _port(host, port)
    yield from _disk(data)
    yield from _clock()
    yield _files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _finding(name: str, state: str, told: str, help: str | None = None) -> Finding:
    return {"name": name, "state": state, "told": told, "help": help}


def _port(host: str, port: int) -> Finding:
    """Is it free, or who listens?"""
    name = f"port {port}"
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE):
            pass
    except ConnectionRefusedError:
        return _free(name, host, port)
    except OSError as error:
        return _finding(name, "broken", f"{host} cannot be reached: {error}", _OTHER_HOST)
    health = _health(host, port)
    if health is None:
        help = "end what listens there, or choose another: tocsin up --port 8421"
        return _finding(name, "note", "something listens there that is no Tocsin node", help)
    status, told = health.get("status"), f"a Tocsin node listens at ws://{host}:{port}"
    head = health.get("head")
    told += f", {head:,} events" if isinstance(head, int) else ""
    if status == "ok":
        return _finding(name, "ok", f"{told}; it is well")
    return _finding(name, "note", f"{told}; it says {status!r}", "wait until it has ended, then start it again")


def _free(name: str, host: str, port: int) -> Finding:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError as error:
            known = {errno.EACCES: "use a port from 1024 up: --port", errno.EADDRNOTAVAIL: _OTHER_HOST}
            help = known.get(error.errno or 0, "choose another: --port")
            return _finding(name, "broken", f"it cannot be listened on: {error.strerror}", help)
    return _finding(name, "ok", "free; no node listens (tocsin up starts one)")


def _health(host: str, port: int) -> dict[str, Any] | None:
    """What a node says of itself, with TLS or without; None: it is none."""
    plain = http.client.HTTPConnection(host, port, timeout=_PATIENCE)
    # Nothing is told to whoever answers, so that its certificate does not matter.
    secure = http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=ssl._create_unverified_context())
    return _health_by(plain) or _health_by(secure)


def _health_by(connection: http.client.HTTPConnection) -> dict[str, Any] | None:
    try:
        connection.request("GET", "/health")
        answer = json.loads(connection.getresponse().read(10_000))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return answer if isinstance(answer, dict) and "status" in answer and "head" in answer else None


def _disk(data: Path) -> Iterator[Finding]:
    """Space for the data, and how long it takes until something is on the disk."""
    where = data
    while not where.exists() and where != where.parent:
        where = where.parent
    told = str(data) if where == data else f"{data} (not there yet; {where.resolve()})"
    free = shutil.disk_usage(where).free
    state = "ok" if free >= _ENOUGH_DISK else "note" if free >= _LEAST_DISK else "broken"
    help = None if state == "ok" else "free some space, or keep the data elsewhere: --data"
    yield _finding("data", state, f"{told}, {free / _GIB:.1f} GiB free", help)
    try:
        took = flush_seconds(where, 10)
    except OSError as error:
        help = "let this user write there, or keep the data elsewhere: --data"
        yield _finding("disk", "broken", f"{where} cannot be written to: {error.strerror}", help)
        return
    told = f"a commit takes {took * 1000:.2f} ms (median of ten)"
    if took < _SLOW_SYNC:
        yield _finding("disk", "ok", told)
    else:
        help = "publish in batches (publish_many), or keep the data on a faster disk: --data"
        yield _finding("disk", "note", f"{told}, and each publish waits for one", help)


def _clock(now: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> Iterator[Finding]:
    """Does it tell a time that can be right, go evenly, and follow others?"""
    wall, mono = now(), steady()
    time.sleep(0.1)
    drift = (now() - wall) - (steady() - mono)
    moment = datetime.fromtimestamp(wall, UTC)
    told = f"{moment:%Y-%m-%d %H:%M:%S} UTC, local time {moment.astimezone():%H:%M %Z}"
    help = "set the clock, and let it follow others: timedatectl set-ntp true"
    if moment < _BORN:
        yield _finding("clock", "broken", f"{told}: that is in the past", help)
        return
    if abs(drift) > _JUMP:
        yield _finding("clock", "note", f"{told}; it jumped by {drift:.2f} s while it was looked at", help)
    else:
        yield _finding("clock", "ok", told)
    follows = _follows()
    if follows is not None:
        told = "follows a time server" if follows else "follows no time server"
        yield _finding("time server", "ok" if follows else "note", f"the clock {told}", None if follows else help)


def _follows() -> bool | None:
    """Is the clock kept right by others? None: that cannot be told here."""
    if shutil.which("timedatectl") is None:
        return None
    command = ["timedatectl", "show", "--property", "NTPSynchronized", "--value"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return {"yes": True, "no": False}.get(done.stdout.strip()) if done.returncode == 0 else None


def _files(limit: int) -> Finding:
    """A connection is a file descriptor."""
    if limit == resource.RLIM_INFINITY or limit >= _ENOUGH_FILES:
        shown = "no limit" if limit == resource.RLIM_INFINITY else f"{limit:,}"
        return _finding("open files", "ok", f"{shown}: as many connections, less a few")
    help = "ulimit -n 65536, or LimitNOFILE=65536 in the unit of systemd"
    return _finding("open files", "note", f"{limit:,}: no more connections than that, less a few", help)
