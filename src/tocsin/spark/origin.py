"""Where events are read: one small interface for a journal's file, a file with its lake, and later a node's address.

    file:plant.db               a journal's file, read beside the node that writes it
    the same, with a lake       the two as one journal: what was trimmed comes from the lake
    http://host:8420            a node: not yet

Promised: `open_origin` either gives something that can be read, or says in one sentence why not and what to do.
Not promised: that a journal's file can be seen from another machine; on a cluster it must lie on a shared disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

from tocsin.errors import JournalError, LakeError
from tocsin.journal.contract import Block
from tocsin.journal.opening import file_path
from tocsin.journal.reader import open_reader

__all__ = ["Origin", "open_origin"]


class Origin(Protocol):
    """What is asked of the thing that is read; the meaning is that of `journal.contract.Journal`."""

    @property
    def head(self) -> int:
        """The newest offset; 0 while it is empty."""

    @property
    def first(self) -> int:
        """The oldest offset still kept; head + 1 if there is none."""

    def blocks(self, first: int = 1, last: int | None = None) -> Iterator[Block]:
        """The blocks that hold any offset from `first` to `last` (the head now), in order."""

    def offset_at(self, moment: int) -> int:
        """The first offset that arrived at or after a moment (microseconds); head + 1 if there is none."""

    def state(self, prefix: str = "") -> dict[str, bytes]:
        """All state whose names begin with `prefix`."""

    def close(self) -> None:
        """Let go of it."""


def open_origin(url: str, lake: str | None = None, token: str | None = None) -> Origin:
    """Open what a url names, for reading.

    Args:
        url: see the module.
        lake: the directory of the archive that continues the journal into the past.
        token: for a node's address.

    Raises:
        JournalError: the url names nothing that can be read.
        LakeError: there is no such lake, or it is another journal's.
    """
    scheme = url.partition(":")[0]
    if scheme in ("http", "https"):
        raise JournalError(
            f"{url} is the address of a node, which Spark cannot read from yet",
            help="read the journal's file, as in file:plant.db; many may read while the node writes",
        )
    if token is not None:
        raise JournalError("a file needs no token", path=url, help="leave the option token out")
    if scheme == "memory":
        raise JournalError(
            "a journal in memory cannot be seen by Spark's processes",
            help="keep it in a file: connect('file:plant.db')",
        )
    path = file_path(url)
    if os.path.isdir(path):
        raise JournalError(f"{path} is a directory, not a journal", path=path, help="name the file in it")
    if not os.path.exists(path):
        raise JournalError(
            f"there is no journal at {path}",
            path=path,
            help="check the url; a relative one is taken from the directory in which the session was started",
        )
    if lake is None:
        return open_reader(path)
    if not os.path.isdir(lake):
        raise LakeError(
            f"there is no lake at {lake}",
            path=lake,
            help="make it with tocsin.spark.archive, or leave the option lake out",
        )
    from tocsin.journal.archived import open_archived

    return open_archived(path, lake)
