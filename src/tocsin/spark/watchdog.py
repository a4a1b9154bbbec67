"""Ends a JVM whose Python is gone: `python watchdog.py JVM DRIVER`, started by the driver beside its JVM.

A JVM of PySpark ends by itself when its stdin closes, mostly. Not if another process has inherited the other end, as
children of a driver that forks do, and not if a hook at its exit waits for a query or a task that does not end. So this
process, which does nothing else, waits until its parent is gone. Then it asks the JVM to end; of it and all that it has
started, whatever is left after a few seconds is killed.

It imports nothing of ours: it is run by its path, and takes ten megabytes.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import NamedTuple

__all__ = ["end", "guard", "watch"]

_TICK = 0.1
_GRACE = 5.0  # seconds: an orderly end takes one or two, and removes its temporary files


class _Process(NamedTuple):
    """One process, and no later one that was given the same number."""

    number: int
    started: str


def watch(jvm: int, driver: int) -> None:
    """Return when the JVM is gone; see to it once the driver is.

    Args:
        jvm: process id.
        driver: process id of our parent.
    """
    _wait(jvm, driver)
    if os.getppid() != driver:
        end(jvm)


def end(process: int) -> None:
    """Ask a process to end; of it and all that it has started, whatever is left after a few seconds is killed."""
    left = _family({process})
    _send({each for each in left if each.number == process}, signal.SIGTERM)
    until = time.monotonic() + _GRACE
    while left and time.monotonic() < until:
        time.sleep(_TICK)
        # Children of what has ended belong to nobody now: they are still on the list.
        left = (left | _family({each.number for each in left})) & _table().keys()
    _send(left, signal.SIGKILL)


def guard(process: int) -> None:
    """Start a watchdog for a process that this one has started."""
    # Not subprocess: it is not ours to wait for. In a session of its own, so that Ctrl-C does not reach it.
    nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    command = [sys.executable, "-I", "-S", __file__, str(process), str(os.getpid())]
    os.posix_spawn(sys.executable, command, os.environ, file_actions=nothing, setsid=True)


def _wait(jvm: int, driver: int) -> None:
    """Until one of the two is gone."""
    try:
        poller = select.poll()
        for process in (jvm, driver):
            poller.register(os.pidfd_open(process), select.POLLIN)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not on macOS, nor on an old or a sandboxed Linux
        while os.getppid() == driver and any(each.number == jvm for each in _table()):
            time.sleep(_TICK * 5)
    else:
        if os.getppid() == driver:  # else it went before we looked, and its number may be another's now
            poller.poll()


def _family(processes: set[int]) -> set[_Process]:
    """These processes, what they have started, what that has started, and so on."""
    parents = _table()
    found = set(processes)
    while more := {each.number for each, parent in parents.items() if parent in found} - found:
        found |= more
    return {each for each in parents if each.number in found}


def _table() -> dict[_Process, int]:
    """Every process that runs, and its parent's number."""
    if not os.path.exists("/proc/self/stat"):
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat=,lstart="], capture_output=True, text=True)
        rows = [line.split(None, 3) for line in listed.stdout.splitlines()]
        return {_Process(int(row[0]), row[3]): int(row[1]) for row in rows if "Z" not in row[2]}
    table = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", errors="replace") as file:
            # The name of the program, in parentheses, may hold anything.
            state, parent, *others = file.read().rpartition(")")[2].split()
            if state not in "ZX":
                table[_Process(int(name), others[17])] = int(parent)
    return table


def _send(processes: set[_Process], number: signal.Signals) -> None:
    for each in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each.number, number)


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]))
