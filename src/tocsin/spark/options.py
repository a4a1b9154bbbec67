"""The options of `format("tocsin")`: texts from the user, checked and turned into values.

    reading     url, startingOffset, startingTime, endingOffset, endingTime, maxEventsPerTrigger, eventsPerPartition,
                system, filter, allowGaps, pushdown, lake, filters, token, ca, patience
    writing     url, writer, batch, staging, extraColumns, token, ca, patience

Names are read without regard to case, as Spark does. Paths become absolute here, on the driver: an executor has another
working directory.

Promised: what is wrong raises `OptionError` with the option's name and what to write instead; an option we do not know
is refused, with the name that was probably meant. Spark's own options are let through.
Not promised: that there is a journal at the url; see `origin.py`.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from tocsin.clock import as_micros
from tocsin.errors import EventError, FilterError, JournalError, OptionError
from tocsin.filters.filter import Filter
from tocsin.journal.opening import file_path
from tocsin.model import parse_time
from tocsin.spark.asking import PATIENCE, is_address

__all__ = ["ReadOptions", "WriteOptions", "read_options", "suggestion", "write_options"]

_READING = (
    *("url", "startingOffset", "startingTime", "endingOffset", "endingTime", "maxEventsPerTrigger"),
    *("eventsPerPartition", "system", "filter", "allowGaps", "pushdown", "lake", "filters", "token", "ca", "patience"),
)
_WRITING = ("url", "writer", "batch", "staging", "extraColumns", "token", "ca", "patience")
_SPARKS = frozenset({"path", "paths", "checkpointlocation", "queryname", "outputmode", "timezone", "mergeschema"})
"""What Spark or its users put among the options of any format; none is ours."""
_T = TypeVar("_T")
_YES, _NO = frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0"})


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a journal is to be read."""

    url: str
    start: int | None = None
    """The first offset that was asked for by number; None: see `since`, `latest`."""
    since: int | None = None
    """The journal time to start at, in microseconds."""
    latest: bool = False
    """Start with what comes next. If none of the three is given: with the oldest that is kept."""
    end: int | None = None
    """The last offset; None: the head."""
    until: int | None = None
    """The last journal time, in microseconds; None: any."""
    max_events: int | None = None
    """The most events in one batch of a stream."""
    events_per_partition: int | None = None
    """How many offsets one task reads; None: see `ranges.share_size`."""
    system: bool = False
    filter: str | None = None
    allow_gaps: bool = False
    pushdown: bool = False
    """Use the conditions of the query; see `source.py` for why this must be said."""
    lake: str | None = None
    filters: str | None = None
    token: str | None = None
    ca: str | None = None
    """For a node's address: a file of certificates to trust instead of the system's."""
    patience: float = PATIENCE
    """For a node's address: seconds it may be away."""


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a journal is to be written."""

    url: str
    writer: str | None = None
    """The name under which positions are remembered; a stream has one."""
    batch: int | None = None
    """The number of this write among the writer's, from 0 on; a stream has its own."""
    staging: str | None
    """The directory where rows wait for the commit; None: at the node."""
    extra_columns: bool = False
    """Columns that are none of ours become attributes; else they are refused."""
    token: str | None = None
    ca: str | None = None
    patience: float = PATIENCE


def read_options(options: Mapping[str, str], *, streaming: bool | None = None) -> ReadOptions:
    """The options of a source.

    Args:
        options: as Spark hands them over.
        streaming: for a stream, which has no end and may start at the latest; None: not known yet, either may be.

    Raises:
        OptionError: one is missing, unknown or wrong.
    """
    given = _Given(options, _READING, "reading", {name: "writing" for name in _WRITING})
    start, latest = given.offset("startingOffset", earliest=True)
    since = given.moment("startingTime")
    if "startingOffset" in given and since is not None:
        raise _wrong("startingTime", "startingOffset and startingTime are both given", "give one of them")
    if latest and streaming is False:
        raise _wrong(
            "startingOffset", "startingOffset latest would read nothing in a batch", "leave it out, or use readStream"
        )
    if streaming:
        for name in ("endingOffset", "endingTime"):
            if name in given:
                raise _wrong(name, f"{name} has no meaning for a stream", "use spark.read, or .trigger(availableNow)")
    elif streaming is False and "maxEventsPerTrigger" in given:
        raise _wrong(
            "maxEventsPerTrigger", "maxEventsPerTrigger is for streams only", "leave it out, or use endingOffset"
        )
    end, _ = given.offset("endingOffset", earliest=False)
    until = given.moment("endingTime")
    if end is not None and until is not None:
        raise _wrong("endingTime", "endingOffset and endingTime are both given", "give one of them")
    return ReadOptions(
        url=given.url(),
        start=start,
        since=since,
        latest=latest,
        end=end,
        until=until,
        max_events=given.number("maxEventsPerTrigger"),
        events_per_partition=given.number("eventsPerPartition"),
        system=given.switch("system"),
        filter=given.filter("filter"),
        allow_gaps=given.switch("allowGaps"),
        pushdown=given.switch("pushdown"),
        lake=given.directory("lake"),
        filters=given.directory("filters"),
        token=given.text("token"),
        ca=given.directory("ca"),
        patience=given.seconds("patience"),
    )


def write_options(options: Mapping[str, str], *, streaming: bool = False) -> WriteOptions:
    """The options of a sink.

    Args:
        options: as Spark hands them over.
        streaming: for a stream, whose writer must have a name.

    Raises:
        OptionError: one is missing, unknown or wrong.
    """
    given = _Given(options, _WRITING, "writing", {name: "reading" for name in _READING})
    url = given.url()
    writer = given.text("writer")
    if streaming and writer is None:
        raise _wrong(
            "writer",
            "the option writer is missing",
            'name the writer, as in .option("writer", "enrich-1"); keep the name',
        )
    batch = given.count("batch")
    if batch is not None and streaming:
        raise _wrong("batch", "a stream numbers its batches itself", "leave the option batch out")
    if not streaming and (batch is None) != (writer is None):
        raise _wrong(
            "batch" if batch is None else "writer",
            f"the option {'writer' if batch is None else 'batch'} says nothing alone",
            "give writer and batch, and the write can be repeated; or neither",
        )
    extra = given.text("extraColumns")
    if extra not in (None, "attributes", "refuse"):
        raise _wrong("extraColumns", f"extraColumns is {extra!r}", "write attributes, or leave it out to refuse them")
    return WriteOptions(
        url=url,
        writer=writer,
        batch=batch,
        staging=_staging(given, url),
        extra_columns=extra == "attributes",
        token=given.text("token"),
        ca=given.directory("ca"),
        patience=given.seconds("patience"),
    )


def _staging(given: _Given, url: str) -> str | None:
    place = given.directory("staging")
    if not is_address(url):
        return place or f"{_path(url)}.staging"
    if place is not None:
        raise _wrong("staging", "rows wait at the node, and need no directory", "leave the option staging out")
    return None


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """Which of the known names was probably meant."""
    by_case = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.6)
    return by_case[close[0]] if close else None


class _Given:
    """The options one user gave, asked by name."""

    def __init__(
        self, options: Mapping[str, str], known: tuple[str, ...], purpose: str, others: Mapping[str, str]
    ) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        ours = {name.lower() for name in known}
        elsewhere = {name.lower(): (name, place) for name, place in others.items()}
        for name in sorted(self._values):
            if name in ours or name in _SPARKS or name.startswith("spark."):
                continue
            if name in elsewhere:
                proper, place = elsewhere[name]
                raise _wrong(proper, f"the option {proper} is for {place} only", "leave it out here")
            near = suggestion(name, known)
            mend = f"did you mean {near}?" if near else f"for {purpose} there are {', '.join(known)}"
            raise _wrong(near or name, f"there is no option {name}", mend)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        if value is not None and not value.strip():
            raise _wrong(name, f"the option {name} is empty", "give it a value, or leave it out")
        return value

    def url(self) -> str:
        """The journal's url, with an absolute path if it is a file's."""
        url = self.text("url")
        if url is None:
            path = self._values.get("path")
            given = f", and the path {path!r} does not count" if path else ""
            raise _wrong(
                "url", f"the option url is missing{given}", 'say which journal: .option("url", "file:plant.db")'
            )
        if is_address(url):
            return _address(url)
        if url.startswith(("ws:", "wss:")):
            raise _wrong("url", f"Spark speaks HTTP, not {url!r}", f"write http{url[2:]}")
        return f"file:{_path(url)}" if url.startswith("file:") else url

    def directory(self, name: str) -> str | None:
        place = self.text(name)
        return None if place is None else os.path.abspath(place)

    def number(self, name: str) -> int | None:
        """A whole number above 0."""
        return self._as(name, _positive, "write a whole number above 0")

    def count(self, name: str) -> int | None:
        """A whole number from 0 on."""
        return self._as(name, _not_negative, "write a whole number from 0 on")

    def seconds(self, name: str) -> float:
        """Seconds, from 0 on; those of `asking.PATIENCE` if nothing is said."""
        found = self._as(name, _duration, "write seconds, from 0 on")
        return PATIENCE if found is None else found

    def offset(self, name: str, *, earliest: bool) -> tuple[int | None, bool]:
        """An offset, and whether it is the latest one; `earliest` is a word for neither, where it makes sense."""
        words = ("earliest", "latest") if earliest else ("latest",)
        text = (self.text(name) or "").strip().lower()
        if not text or text in words:
            return None, text == "latest"
        return self._as(name, _positive, f"write {', '.join(words)} or an offset from 1 on"), False

    def moment(self, name: str) -> int | None:
        """An ISO time as microseconds."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return as_micros(parse_time(text.strip(), name))
        except EventError as error:
            raise _wrong(name, error.message, "write ISO text with an offset, such as 2026-01-31T12:00:00Z") from None

    def switch(self, name: str) -> bool:
        return self._as(name, _truth, "write true or false") or False

    def filter(self, name: str) -> str | None:
        """The text of a filter that can be read."""
        text = self.text(name)
        if text is not None:
            try:
                Filter(text)
            except FilterError as error:
                raise _wrong(name, f"the option {name} is no filter: {error}", "see docs/FILTERS.md") from None
        return text

    def _as(self, name: str, read: Callable[[str], _T], mend: str) -> _T | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return read(text.strip())
        except ValueError:
            raise _wrong(name, f"{name} is {text!r}", mend) from None


def _path(url: str) -> str:
    try:
        return os.path.abspath(file_path(url))
    except JournalError as error:
        raise _wrong("url", error.message, error.help or "write file:path") from None


def _address(url: str) -> str:
    """The address of a node, without anything behind the port."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # which raises if it is none
    except ValueError as error:
        raise _wrong("url", f"{url!r} is no address: {error}", "write http://host:8420") from None
    if not parts.hostname or parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None:
        raise _wrong("url", f"{url!r} is no address of a node", "write http://host:8420; a token is an option")
    return f"{parts.scheme}://{parts.netloc}"


def _duration(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds


def _positive(text: str) -> int:
    number = int(text)
    if not 0 < number < 1 << 63:
        raise ValueError(text)
    return number


def _not_negative(text: str) -> int:
    return _positive(str(int(text) + 1)) - 1


def _truth(text: str) -> bool:
    if text.lower() not in _YES | _NO:
        raise ValueError(text)
    return text.lower() in _YES


def _wrong(name: str, message: str, mend: str) -> OptionError:
    return OptionError(message, field=name, help=mend)
