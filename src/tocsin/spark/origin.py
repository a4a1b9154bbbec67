"""Where events are read: one small interface for a journal's file and a node's address, each with a lake or without.

    file:plant.db               a journal's file, read beside the node that writes it
    http://host:8420            a node, wherever it is (`distant.py`)
    either, with a lake         the two as one journal: what was trimmed comes from the lake
    file:lake                   a lake alone, by its directory

Promised: `open_origin` either gives something that can be read, or says in one sentence why not and what to do.
Not promised: that a journal's file can be seen from another machine; on a cluster it must lie on a shared disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

from tocsin.errors import JournalError, LakeError
from tocsin.journal.archived import Joined, check_same, open_archived
from tocsin.journal.contract import Block
from tocsin.journal.lake import Lake
from tocsin.journal.opening import file_path
from tocsin.journal.reader import open_reader
from tocsin.spark.asking import PATIENCE, Address, is_address
from tocsin.spark.distant import NodeOrigin, Wanted

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


def open_origin(
    url: str,
    lake: str | None = None,
    token: str | None = None,
    *,
    ca: str | None = None,
    patience: float = PATIENCE,
    wanted: Wanted | None = None,
) -> Origin:
    """Open what a url names, for reading.

    Args:
        url: see the module.
        lake: the directory of the archive that continues the journal into the past.
        token: for a node's address.
        ca: for a node's address: certificates to trust instead of the system's.
        patience: for a node's address: seconds it may be away.
        wanted: for a node's address: what of it is enough. Then nothing is asked before it is read.

    Raises:
        JournalError: the url names nothing that can be read.
        LakeError: there is no such lake, or it is another journal's.
        NetworkError: there is no node, or it does not let us in.
    """
    if is_address(url):
        return _open_node(Address(url, token, ca, patience), lake, wanted)
    if token is not None:
        raise JournalError("a file needs no token", path=url, help="leave the option token out")
    if url.startswith("memory:"):
        raise JournalError(
            "a journal in memory cannot be seen by Spark's processes",
            help="keep it in a file: connect('file:plant.db')",
        )
    path = file_path(url)
    if os.path.isdir(path):
        alone = Lake(path)
        if not alone.last:
            raise JournalError(f"{path} is a directory, and no lake", path=path, help="name the journal in it")
        return alone
    if not os.path.exists(path):
        raise JournalError(
            f"there is no journal at {path}",
            path=path,
            help="check the url; a relative one is taken from the directory in which the session was started",
        )
    if lake is None:
        return open_reader(path)
    _check_lake(lake)
    return open_archived(path, lake)


def _open_node(address: Address, lake: str | None, wanted: Wanted | None) -> Origin:
    if lake is not None:
        _check_lake(lake)
    if wanted is None:
        node = NodeOrigin(address)
        try:
            _ = node.head  # which says what is wrong with an address
            if lake is not None:
                check_same(node, Lake(lake))
        except BaseException:
            node.close()
            raise
    else:
        node = NodeOrigin(address, wanted)
    return node if lake is None else Joined(node, Lake(lake))


def _check_lake(lake: str) -> None:
    if not os.path.isdir(lake):
        raise LakeError(
            f"there is no lake at {lake}",
            path=lake,
            help="make it with tocsin.spark.archive, or leave the option lake out",
        )
