"""Which query a writer belongs to: kept in the journal's state, and stored with the writer's first batch.

A query numbers its batches from 0 on, and a journal answers a number that it has from what it holds. So a second query
under the name of the first would see its rows taken for repetitions, and lost. Whoever stores the batches of queries
asks here first, with nobody else storing any between the question and the batch.
"""

from __future__ import annotations

from typing import Final, Protocol

from tocsin.errors import WriterError

__all__ = ["WRITERS", "check_known", "claim", "too_late"]

WRITERS: Final = "sink/"
"""Where the journal's state says which query a writer belongs to; its name follows."""
_NO_QUERY: Final = b"batch"
"""The owner of a writer that is used in batch writes, outside of any streaming query."""


class _State(Protocol):
    """What of a journal is asked."""

    def state(self, prefix: str = "") -> dict[str, bytes]:
        """See `contract.Journal.state`."""


def claim(journal: _State, writer: str, query: str | None, *, streaming: bool) -> dict[str, bytes]:
    """See whether a query may write under a name; returns what must be stored with its batch.

    Args:
        journal: the journal.
        writer: the name.
        query: the id of the streaming query in which rows are written; None: in none.
        streaming: does the query itself write, and not a batch write inside it?

    Raises:
        WriterError: the name is another's, or the query had another one until now.
    """
    owners, owner = journal.state(WRITERS), (query or "").encode() or _NO_QUERY
    known = owners.get(WRITERS + writer)
    if known is not None and known != owner:
        raise _taken(writer, f"the query {known.decode()}" if known != _NO_QUERY else "batch writes")
    if known is None and streaming:
        for name, other in owners.items():
            if other == owner:
                raise WriterError(
                    f"this query has written as {name.removeprefix(WRITERS)!r} until now, not as {writer!r}",
                    help="keep the name, or begin with a new checkpoint: a batch might be stored under both",
                )
    return {WRITERS + writer: owner}


def check_known(journal: _State, writer: str) -> None:
    """See whether what was answered to a batch was stored by a query; to be asked when it is stored.

    Raises:
        WriterError: something else has used the name and the number.
    """
    if WRITERS + writer not in journal.state(WRITERS):
        raise _taken(writer, "something that is no Spark query")


def too_late(error: WriterError) -> WriterError:
    """The error for a batch before which later ones were stored."""
    return WriterError(
        f"the checkpoint is older than the journal: {error.message}",
        help="go on with the newest checkpoint, or begin with a new one and another writer",
    )


def _taken(writer: str, owner: str) -> WriterError:
    return WriterError(
        f"the writer {writer!r} belongs to {owner}; the batches of this query would be taken for repetitions",
        help="give this query a writer of its own, or go on with the checkpoint of the one that has the name",
    )
