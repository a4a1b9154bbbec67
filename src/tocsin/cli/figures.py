"""Numbers about a journal's file for people, read beside whoever writes to it."""

from __future__ import annotations

import os
from typing import Any

from tocsin.clock import as_datetime
from tocsin.journal.blocks import ARROW, LOST
from tocsin.journal.reader import Reader, head_of, meta_of
from tocsin.model import time_text

__all__ = ["figures", "lines"]


def figures(reader: Reader) -> dict[str, Any]:
    """What a journal holds and what it takes on the disk. All of it is of one moment, except the sizes of files."""
    with reader.connection() as db:
        db.execute("BEGIN")
        first, head = meta_of(db, "first", 1), head_of(db)
        blocks, segments, lost = db.execute(
            "SELECT count(*), total(format = ?), total((last - first + 1) * (format = ?)) FROM blocks", (ARROW, LOST)
        ).fetchone()
        oldest = db.execute("SELECT arrived_first FROM blocks ORDER BY first LIMIT 1").fetchone()
        newest = db.execute("SELECT arrived_last FROM blocks ORDER BY first DESC LIMIT 1").fetchone()
        (consumers,) = db.execute("SELECT count(*) FROM state WHERE substr(name, 1, 9) = 'consumer/'").fetchone()
        (notes,) = db.execute("SELECT count(*) FROM notes").fetchone()
        (writers,) = db.execute("SELECT count(DISTINCT name) FROM writers").fetchone()
        (free,) = db.execute("PRAGMA freelist_count").fetchone()
        (page,) = db.execute("PRAGMA page_size").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        created, closed = meta_of(db, "created", 0), bool(meta_of(db, "clean", 1))
    return {
        "path": reader.path,
        "first": first,
        "head": head,
        "events": head - first + 1 - int(lost),
        "lost": int(lost),
        "oldest": time_text(as_datetime(oldest[0])) if oldest else None,
        "newest": time_text(as_datetime(newest[0])) if newest else None,
        "blocks": blocks,
        "segments": int(segments),
        "bytes": sum(os.path.getsize(path) for path in (reader.path, f"{reader.path}-wal") if os.path.exists(path)),
        "free_bytes": free * page,
        "consumers": consumers,
        "writers": writers,
        "notes": notes,
        "created": time_text(as_datetime(created)) if created else None,
        "closed": closed,
        "version": version,
    }


def lines(found: dict[str, Any]) -> list[str]:
    """The same for people."""
    closed = "yes" if found["closed"] else "no: it is in use, or was not closed when it last was"
    rows = {
        "journal": found["path"],
        "offsets": f"{found['first']:,} to {found['head']:,}" if found["head"] >= found["first"] else "none",
        "events": f"{found['events']:,}" + (f" ({found['lost']:,} lost to damage)" if found["lost"] else ""),
        "arrived": f"{found['oldest']} to {found['newest']}" if found["oldest"] else "never",
        "blocks": f"{found['blocks']:,}, of which {found['segments']:,} are merged",
        "bytes": f"{found['bytes']:,}, of which {found['free_bytes']:,} are free",
        "consumers": f"{found['consumers']:,}",
        "writers": f"{found['writers']:,} with positions",
        "notes": f"{found['notes']:,} in the audit trail",
        "created": found["created"] or "unknown",
        "closed": closed,
        "version": f"{found['version']} of its tables",
    }
    return [f"{name:<10} {value}" for name, value in rows.items()]
