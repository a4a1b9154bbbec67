"""Which offsets are read: where a read begins and ends, what a batch of a stream may take, which task reads what.

    options, journal ─ beginning, ending ─▶ first … last ─ shares ─▶ a share for each task
    offset of the stream so far ─ advance ─▶ offset of its next batch

Pure: the journal is asked for its ends and for times, nothing is read from it.

Promised: what was asked for by number or time and is no longer kept is never passed over in silence. It is a
`TrimmedError`, or with `allowGaps` a number that the caller reports.
Not promised: shares of equal size. A block is never divided: whoever reads a part of it decodes it whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tocsin.clock import as_datetime
from tocsin.errors import JournalError, TrimmedError
from tocsin.model import time_text
from tocsin.spark.options import ReadOptions
from tocsin.spark.origin import Origin

__all__ = [
    "Beginning",
    "Range",
    "advance",
    "beginning",
    "check_range",
    "ending",
    "pieces",
    "position",
    "share_size",
    "shares",
]


_MEND = (
    "use allowGaps=true to go on and have the gap reported, lake=… to read it from the archive, or "
    "startingOffset=earliest to begin with what there is (a stream needs a new checkpoint for that)"
)

_TASKS, _LEAST_EACH, _MOST_EACH = 8, 50_000, 250_000


class Range(NamedTuple):
    """Offsets from `first` to `last`, both included."""

    first: int
    last: int


class Beginning(NamedTuple):
    """Where a read begins."""

    first: int
    skipped: int = 0
    """Offsets before it that were asked for and are no longer kept."""
    unsure: bool = False
    """More may be missing: a time was asked for from which on nothing is sure to be kept."""


def beginning(origin: Origin, options: ReadOptions) -> Beginning:
    """Where a read begins that has read nothing yet.

    Raises:
        TrimmedError: that is no longer kept, and gaps are not allowed.
        JournalError: it lies beyond the head.
    """
    first, head = origin.first, origin.head
    if options.start is not None:
        if options.start > head + 1:
            raise JournalError(
                f"startingOffset {options.start} lies beyond the end of the journal, whose newest offset is {head}",
                path=options.url,
                help=f"give {head + 1} or less, or check the url: the journal may have been replaced",
            )
        return Beginning(*_kept(options.start, first, options))
    if options.since is not None:
        found = origin.offset_at(options.since)
        # Below the first offset there may have been events of that time or later: nobody can tell any more.
        unsure = found <= first and first > 1
        if unsure and not options.allow_gaps:
            when = time_text(as_datetime(options.since))
            raise TrimmedError(
                f"events that arrived from {when} on may no longer be kept; offset {first} is the first that is",
                first=first,
                path=options.url,
                help=_MEND,
            )
        return Beginning(found, unsure=unsure)
    return Beginning(head + 1 if options.latest else first)


def ending(origin: Origin, options: ReadOptions) -> int:
    """The last offset of a read that ends."""
    head = origin.head
    if options.end is not None:
        return min(options.end, head)
    return head if options.until is None else min(origin.offset_at(options.until + 1) - 1, head)


def position(offset: object) -> int:
    """The last offset that a stream has read, out of what its checkpoint holds.

    Raises:
        JournalError: that is none of ours.
    """
    found = offset.get("offset") if isinstance(offset, Mapping) else None
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise JournalError(
            f"the checkpoint holds {offset!r}, which is no offset of a journal",
            help="give the query a checkpointLocation of its own",
        )
    return found


def advance(
    origin: Origin, start: Mapping[str, Any], options: ReadOptions, most: int | None, upto: int | None = None
) -> dict[str, Any]:
    """The offset up to which the next batch of a stream reads; `start` itself if there is nothing new.

    Args:
        origin: the journal.
        start: the offset up to which it has been read.
        options: whether gaps are allowed; then the offset says how many events were `skipped` so far.
        most: the most events in the batch; None: any number.
        upto: the last offset that may be read; None: the head.

    Raises:
        TrimmedError: what comes next is no longer kept, and gaps are not allowed.
        JournalError: the journal ends before `start`: it is another one.
    """
    done = position(start)
    first, head = origin.first, origin.head
    if done > head:
        raise _beyond(f"the query has read up to offset {done}, which", head)
    begin, skipped = _kept(done + 1, first, options)
    end = head if upto is None else min(upto, head)
    if most is not None:
        end = min(end, begin - 1 + most)
    if end <= done:
        return dict(start)
    if not options.allow_gaps:
        return {"offset": end}
    return {"offset": end, "skipped": start.get("skipped", 0) + min(skipped, end - done)}


def check_range(origin: Origin, wanted: Range, options: ReadOptions) -> Range:
    """What of a range is still there to be read, which is all of it unless gaps are allowed.

    Raises:
        TrimmedError: some of it is no longer kept, and gaps are not allowed.
        JournalError: the journal ends before it does.
    """
    first, head = origin.first, origin.head
    if wanted.last > head:
        raise _beyond(f"offset {wanted.last}", head)
    return Range(_kept(wanted.first, first, options)[0], wanted.last)


def share_size(wanted: Range, options: ReadOptions) -> int:
    """How many events a task should read.

    A task costs about 50 ms before it reads anything, and a million events take a second: a quarter of a million, but
    less where that would leave a handful of cores without work.
    """
    eighth = (wanted.last - wanted.first + 1) // _TASKS
    return options.events_per_partition or max(_LEAST_EACH, min(_MOST_EACH, eighth))


def shares(blocks: Iterable[Range], wanted: Range, events: int) -> list[tuple[Range, ...]]:
    """Divide blocks among tasks.

    Args:
        blocks: the offsets of those that must be read, ascending; what lies between them need not be.
        wanted: the offsets that are wanted.
        events: how many a task should read. It gets more only if one block has more.

    Returns:
        for each task the stretches it reads, ascending.
    """
    found: list[list[Range]] = []
    load = 0
    for block in blocks:
        first, last = max(block.first, wanted.first), min(block.last, wanted.last)
        size = last - first + 1
        if size <= 0:
            continue
        if not found or load + size > events:
            found.append([])
            load = 0
        share = found[-1]
        if share and share[-1].last + 1 == first:
            share[-1] = Range(share[-1].first, last)
        else:
            share.append(Range(first, last))
        load += size
    return [tuple(share) for share in found]


def pieces(wanted: Range, events: int) -> list[tuple[Range, ...]]:
    """Divide a range of which nothing is known among tasks, in equal parts of up to so many events."""
    size = wanted.last - wanted.first + 1
    count = -(-size // events)
    starts = [wanted.first + size * part // count for part in range(count + 1)]
    return [(Range(start, end - 1),) for start, end in zip(starts, starts[1:], strict=False)]


def _kept(asked: int, first: int, options: ReadOptions) -> tuple[int, int]:
    """Where to begin if `asked` is wanted, and how many offsets that passes over."""
    if asked >= first:
        return asked, 0
    if not options.allow_gaps:
        raise TrimmedError(
            f"offset {asked} is no longer kept; {first} is the first that is",
            first=first,
            path=options.url,
            help=_MEND,
        )
    return first, first - asked


def _beyond(what: str, head: int) -> JournalError:
    return JournalError(
        f"{what} lies beyond the end of the journal, whose newest offset is {head}",
        help="the journal was replaced or restored from an older copy, or the url names another one: check the url, or"
        " begin again with a new checkpoint",
    )
