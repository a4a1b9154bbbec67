"""One writer: a lock beside the journal's file that says who has it.

The lock is `flock` on `<path>.lock`, so the system lets go of it when its holder dies, however it dies; what the file
says is only for people. The file stays when the lock is released: removing it would let two processes lock two files
of the same name.

Not promised: anything on a network file system without `flock`, or between machines that share a disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import weakref
from datetime import UTC, datetime
from typing import Any

import msgspec

from tocsin.errors import JournalLockedError
from tocsin.model import time_text

__all__ = ["LockFile"]


class LockFile:
    """The right to write to the journal at `path`, held until `release`."""

    def __init__(self, path: str) -> None:
        """Take the lock.

        Raises:
            JournalLockedError: someone has it; in this process, too.
            OSError: the lock file cannot be made.
        """
        self.path = f"{path}.lock"
        self._file: int | None = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _told(os.pread(self._file, 4096, 0))
            self._close()
            raise JournalLockedError(
                f"{path} is open for writing by {holder}",
                path=path,
                holder=holder,
                help="stop it, or connect to it; readers need no lock",
            ) from None
        here = {"pid": os.getpid(), "host": socket.gethostname(), "started": time_text(datetime.now(UTC))}
        with contextlib.suppress(OSError):  # on a full disk the lock holds all the same, only nameless
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, msgspec.json.encode(here), 0)
        _held.add(self)

    def release(self) -> None:
        """Let others write. May be repeated."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, 0)
                fcntl.flock(self._file, fcntl.LOCK_UN)  # not only closed: a child forked this instant has it open too
            self._close()
            _held.discard(self)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


_held: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _let_go() -> None:
    # A forked child shares the lock; were it to outlive its parent, a dead process would seem to hold the journal.
    for lock in list(_held):
        lock._close()


os.register_at_fork(after_in_child=_let_go)


def _told(raw: bytes) -> str:
    """What a lock file says of its holder, in words."""
    try:
        holder: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, Any])
        return f"process {holder['pid']} on {holder['host']} since {holder['started']}"
    except (msgspec.MsgspecError, KeyError):
        return "an unknown process"
