"""A node's journal as an origin: `GET /events`, a stretch at a time, by whoever reads it.

    blocks(first, last) ─ one answer, as the journal keeps it ─▶ block after block ─ lost? ─▶ go on behind the last one

The node leaves out what the filter, the token's rights and its clearance leave out, and sends the columns that are
wanted. So a block covers offsets of which it need not have events.

Promised: what `origin.Origin` promises. No event comes twice and none is missing when the connection breaks or the node
is restarted on the way.
Not promised: that a filter was applied: one that is too long for a url, or too costly for the token, is left to the
reader, who asks it of every event anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import msgspec
import pyarrow as pa

from tocsin.clock import as_datetime
from tocsin.errors import FilterLimitError, JournalError, NetworkError, TrimmedError
from tocsin.journal import rows
from tocsin.journal.contract import Block
from tocsin.journal.statistics import Statistics
from tocsin.model import Event, time_text
from tocsin.spark.asking import Address, Asker, Lost, Patience

__all__ = ["NodeOrigin", "Wanted"]

_LONGEST: Final = 32_000
"""Bytes of a filter in a url; a node reads heads of 64 KiB, and 32,768 characters of a value."""
_log = logging.getLogger(__name__)


class Wanted(msgspec.Struct, frozen=True):
    """What of a journal is asked for. What else comes does no harm."""

    filter: str | None = None
    system: bool = True
    columns: tuple[str, ...] | None = None
    """Names of `rows.SCHEMA`; None: all."""


class NodeOrigin:
    """A node, for reading. See `origin.Origin` for each method; for one thread."""

    def __init__(self, address: Address, wanted: Wanted = Wanted()) -> None:  # noqa: B008 - it cannot be changed
        """Read from an address. Nothing is asked yet."""
        self._asker, self._wanted = Asker(address), wanted
        self._known: tuple[int, int] | None = None

    @property
    def first(self) -> int:
        """See `origin.Origin.first`: as of the first question, or since something was found to be trimmed."""
        return self._ends()[0]

    @property
    def head(self) -> int:
        """See `origin.Origin.head`: as of the first question, or since something was found to be trimmed."""
        return self._ends()[1]

    def _ends(self) -> tuple[int, int]:
        if self._known is None:
            headers = self._asker.ask("GET", "/events", {"to": "0"}).headers
            self._known = _number(headers["tocsin-first"]), _number(headers["tocsin-head"])
        return self._known

    def offset_at(self, moment: int) -> int:
        """See `origin.Origin.offset_at`."""
        try:
            when = as_datetime(moment)
        except OverflowError:
            when = datetime.min.replace(tzinfo=UTC) if moment < 0 else datetime.max.replace(tzinfo=UTC)
        found = self._asker.ask("GET", "/events", {"from": time_text(when), "to": "0"})
        return _number(found.headers["tocsin-from"])

    def state(self, prefix: str = "") -> dict[str, bytes]:
        """See `origin.Origin.state`: that is nothing a node shows."""
        raise JournalError(
            "a node does not show what it keeps beside its events",
            path=self._asker.address.url,
            help="name the journal's file, as in file:plant.db",
        )

    def blocks(self, first: int = 1, last: int | None = None, *, backwards: bool = False) -> Iterator[Block]:
        """See `origin.Origin.blocks`. They come forwards only."""
        if backwards:
            raise JournalError("a node's address is read forwards only", help="name the journal's file")
        expected, upto = first, self.head if last is None else last
        patience = Patience(self._asker.address.patience)
        while expected <= upto:
            try:
                for block in self._answer(expected, upto):
                    yield block
                    expected = block.last + 1
                    patience.renew()
                return
            except Lost as lost:
                patience.wait(lost)
            except TrimmedError:
                self._known = None
                raise
            except FilterLimitError as error:
                if self._wanted.filter is None:
                    raise
                _log.warning("the node does not take the filter (%s): it is asked here", error.message)
                self._wanted = msgspec.structs.replace(self._wanted, filter=None)

    def _answer(self, first: int, last: int) -> Iterator[Block]:
        """One answer, in blocks that cover all of the range.

        Raises:
            Lost: it has broken off.
        """
        with self._asker.begun("GET", "/events", self._query(first, last)) as response:
            begin, end = _number(response.headers["tocsin-from"]), _number(response.headers["tocsin-to"])
            try:
                with pa.ipc.open_stream(pa.PythonFile(response, "r")) as stream:
                    schema = stream.schema
                    for batch in stream:
                        upto = batch.column("offset")[-1].as_py()
                        yield _Received(begin, upto, batch)
                        begin = upto + 1
                response.read()  # the end of the body: without it this was not all
            except pa.ArrowException as error:
                url = self._asker.address.url
                raise Lost(NetworkError(f"{url} sends what is no Arrow: {error}", help="is it a node?")) from None
        if begin <= end:
            yield _Received(begin, end, pa.RecordBatch.from_pylist([], schema=schema))

    def _query(self, first: int, last: int) -> dict[str, str]:
        wanted = self._wanted
        query = {"from": str(first), "to": str(last), "raw": "true", "system": str(wanted.system).lower()}
        if wanted.columns is not None:
            query["columns"] = ",".join(rows.wanted(wanted.columns))
        if wanted.filter is not None and len(quote(wanted.filter)) <= _LONGEST:
            query["filter"] = wanted.filter
        return query

    def close(self) -> None:
        """See `origin.Origin.close`."""
        self._asker.close()


class _Received:
    """Offsets that a node has answered for, and the events among them that are wanted. See `contract.Block`."""

    statistics: Statistics | None = None

    def __init__(self, first: int, last: int, batch: pa.RecordBatch) -> None:
        self.first, self.last, self._batch = first, last, batch

    @property
    def arrived(self) -> tuple[int, int]:
        found = self._batch.column("arrived").cast(pa.int64())
        return (found[0].as_py(), found[-1].as_py()) if len(found) else (0, 0)

    def events(self) -> list[Event]:
        return rows.from_arrow(self._batch)

    def batch(self, columns: Collection[str] | None = None) -> pa.RecordBatch:
        return self._batch.select(rows.wanted(columns))


def _number(text: str | None) -> int:
    if text is None or not text.isdigit():
        raise NetworkError("the answer says no offsets", field="url", help="is this the address of a node?")
    return int(text)
