"""Copying SQLite's log into the file, beside the commits.

SQLite copies its log by itself when it is long, in the middle of the commit that finds it so: 20 to 50 ms in which
nothing else is stored. Here another thread copies, on a connection of its own, while commits go on. Those leave a few
pages more in the log, and a log is begun anew only when all of it was copied: so the rest is copied between two commits
(`finish`), which is a part of what it would have been.

Not promised: that it keeps up. SQLite copies by itself when the log has grown to `Store`'s bound.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from urllib.parse import quote

from tocsin.errors import JournalError

__all__ = ["CHECKPOINT", "Checkpointer"]

CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"
_log = logging.getLogger(__name__)


class Checkpointer:
    """A thread that copies when it is told to."""

    def __init__(self, path: str, finish: Callable[[], object]) -> None:
        """Wait to be told.

        Args:
            path: the file.
            finish: copies what is left, between two commits.
        """
        self._path, self._finish = path, finish
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=f"tocsin log {path}", daemon=True)
        self._thread.start()

    def poke(self) -> None:
        """Say that the log is long."""
        self._wake.set()

    def close(self) -> None:
        """Finish what is at hand and end the thread. May be repeated."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _work(self) -> None:
        db: sqlite3.Connection | None = None
        try:
            while True:
                self._wake.wait()
                self._wake.clear()
                if self._closing:
                    return
                try:
                    if db is None:
                        db = sqlite3.connect(f"file:{quote(self._path)}?mode=rw", uri=True, check_same_thread=False)
                        db.execute("PRAGMA fullfsync = ON")  # as the writer has it
                    db.execute(CHECKPOINT).fetchall()
                    self._finish()
                except (sqlite3.Error, JournalError) as error:  # a full disk, say: it comes round again
                    _log.warning("the log of %s is not copied for now: %s", self._path, error)
        finally:
            if db is not None:
                db.close()
