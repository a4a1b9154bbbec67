"""One row per event: what most people would write, with the same safety as ours. The baseline of `bench_journal`.

WAL, `synchronous=FULL`, a flush per commit, 1,000 events per commit by `executemany`; the columns of the envelope, the
payload as JSON text, and a unique index on (source, id), so that an event which comes again is not stored again and is
answered with its first offset. The log is as large before it is copied as in our file.

It is a fair contender, not a straw man: rows are made by one comprehension, JSON by the same encoder as ours.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence

from tocsin.clock import SystemClock, as_micros
from tocsin.cloudevents import encode_json
from tocsin.model import Event

__all__ = ["RowStore"]

_TABLE = """
CREATE TABLE events (
    offset INTEGER PRIMARY KEY, arrived INTEGER NOT NULL, time INTEGER, id TEXT NOT NULL, source TEXT NOT NULL,
    type TEXT NOT NULL, subject TEXT, priority INTEGER NOT NULL, ttl REAL, persistent INTEGER NOT NULL,
    ack TEXT NOT NULL, cancel TEXT NOT NULL, correlation_id TEXT, classification TEXT NOT NULL,
    datacontenttype TEXT, attributes TEXT, data TEXT
)
"""
_INSERT = f"INSERT INTO events VALUES ({', '.join('?' * 17)}) ON CONFLICT (source, id) DO NOTHING"


class RowStore:
    """A journal with a row for each event."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Make the file."""
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA wal_autocheckpoint = 4000")
        self._db.execute(_TABLE)
        self._db.execute("CREATE UNIQUE INDEX by_identity ON events (source, id)")
        self._clock = SystemClock()
        self._head = 0

    def append(self, events: Sequence[Event]) -> list[int]:
        """Store events in one commit; returns their offsets."""
        arrived, head, db = self._clock.now(), self._head, self._db
        rows = [
            (
                offset,
                arrived,
                as_micros(event.time) if event.time is not None else arrived,
                event.id,
                event.source,
                event.type,
                event.subject,
                event.priority,
                event.ttl,
                event.persistent,
                event.ack,
                event.cancel,
                event.correlation_id,
                event.classification,
                event.datacontenttype,
                encode_json(event.attributes, "attributes").decode() if event.attributes else None,
                encode_json(event.data, "data").decode() if event.data is not None else None,
            )
            for offset, event in enumerate(events, head + 1)
        ]
        db.execute("BEGIN IMMEDIATE")
        stored = db.executemany(_INSERT, rows).rowcount
        db.execute("COMMIT")
        if stored == len(rows):
            self._head = head + stored
            return [*range(head + 1, self._head + 1)]
        # Some came again: rare, so it may cost a question for each.
        self._head = db.execute("SELECT max(offset) FROM events").fetchone()[0]
        asked = "SELECT offset FROM events WHERE source = ? AND id = ?"
        return [db.execute(asked, (event.source, event.id)).fetchone()[0] for event in events]

    def close(self) -> None:
        """Close the file."""
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._db.close()
