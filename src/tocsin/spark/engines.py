"""Engines inside tasks: packed chunks in, derived events out, with the same meaning as a node's detector.

    feed     chunks of one bucket ─▶ what they detect
    Engines  of a process: detectors that go on from batch to batch, each known by where it is

A detector in memory is a convenience. Where it is says a *token*, which is new after every batch and stored with it: a
detector whose token is not that of the stored state has seen something else (a batch that was then repeated, say), and
is made anew out of what is stored. So nothing depends on which process does a task, nor on what became of the last one.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from tocsin.composite.detector import Detector
from tocsin.composite.state import uncollected
from tocsin.model import Event
from tocsin.spark.begins import Begin, Turn, mark_of
from tocsin.spark.detected import progress, to_arrow
from tocsin.spark.detecting import Division
from tocsin.spark.packing import Chunk, chunk_events, stream

__all__ = ["Answer", "Engines", "Stored", "Work", "feed"]

KEPT = 256
"""Detectors that a process keeps, the last used ones."""
UNUSED = 600.0
"""Seconds after which one is given up that nobody has asked for."""
TOLD = 10_000
"""Detections that are handed to Spark together."""
AT_ONCE = Begin(0, 0)
"""A definition that sees whatever comes next."""


def feed(detector: Detector, chunks: Iterable[Chunk], upto: int | None = None) -> list[Event]:
    """Give a detector all chunks of one bucket that lie side by side in the journal; returns what is detected.

    Chunks come in any order, and may overlap: their events are taken in the order of offsets; with `upto`, up to that
    one.
    """
    with uncollected():  # many events and windows are made, and none leads back to itself
        return _fed(detector, chunks, upto)


def _fed(detector: Detector, chunks: Iterable[Chunk], upto: int | None) -> list[Event]:
    found: list[Event] = []
    for together in _apart(chunks):
        last, instant = max(chunk.last for chunk in together), max(chunk.time for chunk in together)
        if last <= detector.position or (upto is not None and together[0].first > upto):
            continue
        begin = min(chunk.begin for chunk in together)
        detector.begin(max(begin, detector.time))  # the first event, whoever sees it, says when absolute times begin
        events = [event for chunk in together for event in chunk_events(chunk)]
        if len(together) > 1:
            events.sort(key=lambda event: event.offset or 0)
        if upto is None or last <= upto:
            found += detector.feed_batch(events)
            found += detector.reach(last, instant)
        else:
            found += detector.feed_batch([event for event in events if (event.offset or 0) <= upto])
    if upto is not None:
        detector.skip(upto)
    return found


def _apart(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """Chunks in order, those that overlap together."""
    groups: list[list[Chunk]] = []
    end = -1
    for chunk in sorted(chunks, key=lambda chunk: (chunk.first, chunk.last)):
        if groups and chunk.first <= end:
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
        end = max(end, chunk.last)
    return groups


class Stored(msgspec.Struct, array_like=True):
    """The state of one bucket as it is stored: a snapshot, and the chunks since, batch by batch."""

    snapshot: bytes | None
    batches: list[list[Chunk]]


class Work(msgspec.Struct, array_like=True):
    """A batch for one bucket."""

    lineage: bytes
    """Which state this is: made up when it began."""
    before: bytes
    """The token of the state as it is stored."""
    after: bytes
    """Its token when this batch is done."""
    division: Division
    chunks: list[Chunk]
    save: bool
    """Is a snapshot wanted?"""
    stored: Stored | None = None
    """Is given when it was asked for."""


class Answer(msgspec.Struct, array_like=True):
    """What became of it."""

    detected: list[bytes]
    """Arrow's streams of the raw columns of `detected`."""
    snapshot: bytes | None
    """If it was wanted, or must be stored because the definitions have changed."""


class Engines:
    """The detectors of a process."""

    def __init__(self) -> None:
        """Begin without any."""
        self._kept: OrderedDict[bytes, tuple[bytes, bytes, Detector, float]] = OrderedDict()

    def run(self, work: Work) -> Answer | None:
        """Do a batch; None: the stored state is needed."""
        token, known, detector, _ = self._kept.pop(work.lineage, (b"", b"", None, 0))
        if detector is None or token != work.before:
            if work.stored is None:
                return None
            detector, known = _revived(work.stored)
        division, chunks, save = work.division, work.chunks, work.save
        mark = mark_of(division.definitions, division.begins or {})
        if Turn.is_done(known, mark):
            found = feed(detector, chunks)
        else:
            wanted = division.detector()
            begins = division.begins or {each.name: AT_ONCE for each in wanted.definitions()}
            turn = Turn(detector, known, mark, wanted, begins)
            found = []
            for since in turn.before(max(chunk.last for chunk in chunks)):
                found += feed(detector, chunks, since)
            found += feed(detector, chunks)
            known, save = turn.known(), True
        self._keep(work.lineage, work.after, known, detector)
        slices = (found[place : place + TOLD] for place in range(0, len(found), TOLD))
        told = [each for each in (to_arrow(piece, division.emits) for piece in slices) if each.num_rows]
        if division.begins is not None:
            told.append(progress(detector, max(chunk.time for chunk in chunks)))
        snapshot = _encode(_Saved(known, detector.snapshot())) if save else None
        return Answer([stream(each) for each in told], snapshot)

    def _keep(self, lineage: bytes, token: bytes, known: bytes, detector: Detector) -> None:
        """Keep a detector, and none whose query has ended, as far as one can tell."""
        now = time.monotonic()
        self._kept[lineage] = token, known, detector, now
        while len(self._kept) > KEPT or next(iter(self._kept.values()))[3] < now - UNUSED:
            self._kept.popitem(last=False)


class _Saved(msgspec.Struct, array_like=True):
    known: bytes
    """See `Turn.known`."""
    detector: bytes


def _revived(stored: Stored) -> tuple[Detector, bytes]:
    """The detector of a stored state, and what it knows. All batches since a snapshot had its definitions."""
    if stored.snapshot is None:
        return Detector(), b""
    saved = _read(stored.snapshot)
    detector = Detector.restore(saved.detector)
    for chunks in stored.batches:  # what they detect was told before
        feed(detector, chunks)
    return detector, saved.known


_encode = msgspec.msgpack.Encoder().encode
_read = msgspec.msgpack.Decoder(_Saved).decode
