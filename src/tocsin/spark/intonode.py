"""Batches through a running node: tasks send their rows to it, the driver has them stored, all or none (`/batches`).

    task, on an executor:  chunks of rows ─ PUT ─▶ parts at the node        any executor that can reach the node will do
    commit, on the driver: names of parts ─ POST ─▶ stored, and answered from what is stored if it is asked again

The driver opens the batch, and a task that comes too late, when it is stored or given up, is refused: nothing is left.
Parts wait in files at the node, so it may be killed and started again between the two. Whoever is killed, Spark repeats
the batch under its number until it knows that it is stored.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import closing, suppress
from types import TracebackType
from typing import Final

import msgspec

from tocsin.errors import NetworkError, OverloadError
from tocsin.spark.asking import Address, Asker
from tocsin.spark.staging import Piece

__all__ = ["NodeTarget"]

_MOST, _SIZE = 4_096, 1 << 20
"""Events and bytes of a part: the node reads one in some ten milliseconds, and has other things to do between two."""
_ROWS: Final = "application/octet-stream"
_JSON: Final = "application/json"


class NodeTarget:
    """A node. See `sink.Target` for each method."""

    most: int | None = _MOST
    size: int | None = _SIZE

    def __init__(self, address: Address, name: str, by: str) -> None:
        """Write to a node.

        Args:
            address: where it is.
            name: that of the batch, at the node: one at a time is staged under it.
            by: who publishes, if no token says it.

        Raises:
            TocsinError: there is no node, or it does not let us in.
        """
        self.address, self.name, self.by = address, name, by
        # Spark makes a second sink for the commit. This is repeated then, and does no harm.
        with closing(Asker(address, by)) as asker:
            asker.ask("PUT", f"/batches/{name}")

    def attempt(self, partition: int) -> _Parts:
        """Send the rows of one attempt of a task."""
        return _Parts(Asker(self.address, self.by), self.name, partition)

    def store(
        self,
        staged: Sequence[tuple[str, list[Piece]]],
        writer: str | None,
        position: int | None,
        query: str | None,
        *,
        streaming: bool,
        unique: bool,
    ) -> None:
        """Have what was staged stored, in one transaction; the node removes it then."""
        parts = [
            {"id": f"{name}-{number}", "events": piece.count, "size": piece.size, "checksum": piece.checksum}
            for name, pieces in staged
            for number, piece in enumerate(pieces)
        ]
        if not parts:
            self.clear()
            return
        wanted: dict[str, object] = {"parts": parts, "query": query, "streaming": streaming}
        if writer is not None and position is not None:
            wanted |= {"writer": writer, "batch": position - 1}
        with closing(Asker(self.address, self.by)) as asker:
            asker.ask("POST", f"/batches/{self.name}", body=msgspec.json.encode(wanted), kind=_JSON)

    def clear(self) -> None:
        """Have what was staged removed; what cannot be told is removed after a day."""
        hasty = msgspec.structs.replace(self.address, patience=0)
        with closing(Asker(hasty, self.by)) as asker, suppress(NetworkError, OverloadError):
            asker.ask("DELETE", f"/batches/{self.name}")


class _Parts:
    """What one attempt of a task has sent. Left with an error, it stays until the batch is stored or given up."""

    def __init__(self, asker: Asker, name: str, partition: int) -> None:
        self._asker, self._name = asker, name
        self.path = f"{partition}-{secrets.token_hex(8)}"
        """The names of its parts begin so: no other attempt has them."""
        self.pieces: list[Piece] = []

    def add(self, rows: bytearray, count: int) -> None:
        """Send a chunk of `packed.pack`."""
        body = b"".join((b"\xdd", count.to_bytes(4, "big"), rows))  # as a list of MessagePack
        place = f"/batches/{self._name}/{self.path}-{len(self.pieces)}"
        said = json.loads(self._asker.ask("PUT", place, body=body, kind=_ROWS).body)
        self.pieces.append(Piece(0, said["size"], said["events"], said["checksum"]))

    def __enter__(self) -> _Parts:
        """Use it in a `with` block."""
        return self

    def __exit__(self, *_: type[BaseException] | TracebackType | BaseException | None) -> None:
        """Let go of the connection."""
        self._asker.close()
