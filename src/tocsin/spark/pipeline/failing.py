"""Why a query of the pipeline has ended, in a sentence and with what helps, out of what Spark says."""

from __future__ import annotations

import time

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tocsin.errors import JournalError, JournalFullError, TocsinError
from tocsin.node.channel import Line, Report
from tocsin.spark.pipeline.checkpoint import Checkpoint

__all__ = ["Failures", "explained", "started"]

_TRIES = 3  # failures in a minute after which the session itself may be what is wrong

_LOG = "pipeline.log has the rest"
_STATE = (
    "CANNOT_LOAD_STATE_STORE",
    "STATE_STORE_CHECKPOINT_ID_NOT_SUPPORTED",
    "FAILED_TO_READ_SNAPSHOT_FILE",
    "FAILED_READ_DELTA_FILE",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    "MALFORMED_LOG_FILE",
    "of the state is missing",
)
"""What stands in the text where state that was written cannot be read. The names are Spark's."""
_FULL = ("No space left on device", "Disk quota exceeded", "ENOSPC", "EDQUOT")
_HELPS = {
    "UnauthorizedError": "tocsin up --token T says what lets executors in; see docs/SPARK.md, Elsewhere",
    "lies beyond the end of the journal": "if the journal was restored from a copy, stop the node, remove {place} and "
    "start it again",
    "was pruned": "if the checkpoint was restored from a copy, stop the node, remove {place} and start it again",
}
"""What helps against errors of ours that reach a query, by a part of their text."""


class Failures:
    """Those of one query, which is tried again in the same session: that takes a second, another session ten."""

    def __init__(self, line: Line, subject: str, checkpoint: Checkpoint) -> None:
        """Begin without any."""
        self._line, self._subject, self._checkpoint = line, subject, checkpoint
        self._at: list[float] = []

    def note(self, text: str) -> None:
        """It has failed; the node is told.

        Raises:
            TocsinError: trying again is no use, or was none.
        """
        error, is_final = explained(text, self._checkpoint, self._subject)
        now = time.monotonic()
        self._at = [*(each for each in self._at if each > now - 60), now]
        if is_final or len(self._at) >= _TRIES:
            raise error
        self._line.ask(Report(trouble=(self._subject, f"{error.message}; it is tried again", error.help)))


def started(writing: DataStreamWriter, checkpoint: Checkpoint, subject: str) -> StreamingQuery:
    """Start a query.

    Raises:
        TocsinError: Spark refuses to; a checkpoint that cannot be read, say.
    """
    try:
        return writing.start()
    except (PySparkException, Py4JError) as error:
        raise explained(str(error), checkpoint, subject)[0] from error


def explained(text: str, checkpoint: Checkpoint, subject: str = "detection") -> tuple[TocsinError, bool]:
    """The error, and whether trying again is no use."""
    if any(each in text for each in _FULL):
        help = "make room; it is tried again, and goes on where it was"
        return JournalFullError(f"{subject} on Spark has halted: the disk is full", help=help), False
    if any(each in text for each in _STATE):
        return checkpoint.damaged("its state cannot be read"), True
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line.partition("tocsin.errors.")[2] for line in lines if "tocsin.errors." in line]
    told = ours[-1] if ours else next(iter(lines), "it says nothing")
    help = next((each for part, each in _HELPS.items() if part in told), _LOG)
    return JournalError(f"{subject} on Spark has failed: {told[:500]}", help=help.format(place=checkpoint.place)), False
