"""`FilterSet`: filters that change while queries run, as a directory of versions.

    filters = FilterSet("plant.filters")
    filters.change(put={"ops": "value > 9"}, remove=["old"])      # → 8
    events = spark.readStream.format("tocsin").option("url", …).option("filters", "plant.filters").load()
    ts.match(events, filters)                                     # follows; no restart

The source writes the version that is newest when a batch begins into the batch's offset, which Spark keeps in the
checkpoint, and into the column `filters`. So a batch that is repeated after a crash meets the same filters, whatever
changed since. Every version stays loadable until somebody says that none before it is needed (`prune_before`); see
`versions` for the files. How a set is divided into shards is part of its version too, so that a split or a merge can
come between two batches, never into one.

Concurrency: any number of processes may read, change and prune a set. A change is in force, all of it, when `change`
returns. Who reads a version that is kept while others are pruned does not notice.
Executors on other machines need the directory at the same path.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tocsin.errors import BadFilter, BadFiltersError, FilterSetError, MatcherError
from tocsin.filters.filter import Filter
from tocsin.filters.index import Matcher
from tocsin.filters.index.registry import Key
from tocsin.spark.checking import checked, good_ones, kind_of
from tocsin.spark.shards import ENOUGH, WHOLE, Layout, Shard
from tocsin.spark.versions import Change, Files, Row

__all__ = ["FilterSet"]

_log = logging.getLogger(__name__)

PARSING = 100
"""Reading a filter's text takes so many times as long as loading it compiled (0.4 ms and 4 µs)."""
SHARE = 20
"""A base is made when the changes since the last one outgrow this part of it: a new reader then parses for seconds."""
SMALL = 1 << 18
"""Bytes of changes (some two thousand filters) up to which nobody minds parsing them."""
KEPT = 2 * ENOUGH
"""Filters in the matchers that a process keeps, of all sets and shards; the one in use always."""


T = TypeVar("T")
Filters = Mapping[Key, str | Filter] | Mapping[str, str | Filter] | Mapping[int, str | Filter]


class FilterSet:
    """A directory of immutable versions of a set of filters, each filter known by a key.

    All keys of a set are text, or all are whole numbers of 64 bits: what the first change has.

    Args:
        path: the directory; the first change makes it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Nothing is opened or made yet."""
        self.path = os.path.realpath(path)
        self._files = _files_of(self.path)
        self._texts: tuple[int, dict[Key, str]] = (0, {})
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[FilterSet], tuple[str]]:
        """Pickle as its path."""
        return FilterSet, (self.path,)

    @property
    def version(self) -> int:
        """The newest version.

        Raises:
            FilterSetError: there is no filter set here.
        """
        return self._known(None)

    @property
    def key_type(self) -> type[str] | type[int] | None:
        """Of which kind the keys are; None as long as there was none.

        Raises:
            FilterSetError: there is no filter set here.
        """
        return self._steadily(lambda: self._files.kind(self._known(None)))

    @property
    def oldest(self) -> int:
        """The first version that was not pruned.

        Raises:
            FilterSetError: there is no filter set here.
        """
        self._known(None)
        return self._files.oldest()

    def filters(self, version: int | None = None) -> dict[Key, str]:
        """All filters of a version (None: the newest), by key.

        Raises:
            FilterSetError: there is no such version.
        """
        return self._steadily(lambda: self._read(self._known(version)))

    def _read(self, wanted: int) -> dict[Key, str]:
        start = max((base for base in self._files.bases() if base <= wanted), default=0)
        found = self._files.base(start) if start else {}
        for between in range(start + 1, wanted + 1):
            _apply(self._files.change(between), found)
        return found

    def change(self, put: Filters | None = None, remove: Iterable[Key] = ()) -> int:
        """Add or replace some filters and remove others, all at once; returns the version that has them.

        What is there already, or is not there to be removed, is passed over; if nothing is left to change, no version
        is made. So a change may be repeated when its writer does not know whether it was done.

        Raises:
            BadFiltersError: some filters are bad; nothing changed.
            FilterSetError: a key is put and removed at once, or is of another kind than the others.
        """
        wanted: dict[Key, Any] = {
            key: each.text if isinstance(each, Filter) else each for key, each in (put or {}).items()
        }
        wrong = [checked(key, text) for key, text in wanted.items() if not isinstance(text, str)]
        if wrong:
            raise _refused([each for each in wrong if isinstance(each, BadFilter)], len(wanted))
        gone = list(dict.fromkeys(remove))
        both = next((key for key in gone if key in wanted), None)
        if both is not None:
            raise FilterSetError(
                f"the key {both!r} is put and removed at once", path=self.path, help="a put replaces; leave one out"
            )
        good: set[Key] = set()
        with self._lock:
            while (made := self._steadily(lambda: self._changed(wanted, gone, good))) is None:
                pass
        return made

    def _changed(self, wanted: dict[Key, str], gone: list[Key], good: set[Key]) -> int | None:
        """Try to change it; None: another writer was quicker. Those that were read are in `good` from then on."""
        head = self._files.newest()
        texts = self._current(head)
        rows = [Row(key, text, texts.get(key)) for key, text in wanted.items() if texts.get(key) != text]
        rows += [Row(key, None, texts[key]) for key in gone if key in texts]
        if head and not rows:
            return head
        matcher = self._grown(head, rows, good)
        kind = self._kind(head, rows)
        change = Change(rows, kind, self._files.layout(head) if head else Layout())
        if not self._files.write_change(head + 1, change):
            return None
        _apply(change, texts)
        self._texts = (head + 1, texts)
        if matcher is not None:
            for row in rows:
                if row.after is None:
                    matcher.remove(row.key)
            self._files.write_base(head + 1, texts, kind, matcher.to_bytes())
        return head + 1

    def layout(self, version: int | None = None) -> Layout:
        """How the filters of a version (None: the newest) are divided into shards.

        Raises:
            FilterSetError: there is no such version.
        """
        return self._steadily(lambda: self._files.layout(self._known(version)))

    def current(self) -> tuple[int, Layout]:
        """The newest version, and how its filters are divided.

        Raises:
            FilterSetError: there is no filter set here.
        """
        return self._steadily(self._newest)[:2]

    def lay_out(self, layout: Layout, *, instead: Layout) -> int | None:
        """Divide the filters in another way, from the next version on; returns that version.

        None, and nothing is done, if they are not divided as `instead` says: somebody else was quicker, and has other
        reasons.

        Raises:
            FilterSetError: there is no filter set here.
        """
        while True:
            head, present, kind = self._steadily(self._newest)
            if present != instead:
                return None
            if layout == instead:
                return head
            if self._files.write_change(head + 1, Change([], kind, layout)):
                return head + 1

    def _newest(self) -> tuple[int, Layout, type[str] | type[int] | None]:
        head = self._known(None)
        return head, self._files.layout(head), self._files.kind(head)

    def _current(self, head: int) -> dict[Key, str]:
        """The filters of the newest version; kept from one change to the next."""
        version, texts = self._texts
        if not 0 < version <= head or version + 1 < self._files.oldest():
            texts = self._read(head) if head else {}
        else:
            for between in range(version + 1, head + 1):
                _apply(self._files.change(between), texts)
        self._texts = (head, texts)
        return texts

    def _kind(self, head: int, rows: list[Row]) -> type[str] | type[int] | None:
        present = self._files.kind(head) if head else None
        kinds = {type(row.key) for row in rows} | ({present} if present is not None else set())
        if len(kinds) > 1 and kinds <= {str, int}:
            raise FilterSetError(
                "keys are of two kinds, text and whole numbers", path=self.path, help="a set has one kind of keys"
            )
        return present if present is not None else kind_of([row.key for row in rows if row.after is not None])

    def _grown(self, head: int, rows: list[Row], good: set[Key]) -> Matcher | None:
        """Check what is put. If a base is due, the index of the version before, with what is put in it."""
        weight = sum(len(row.after or "") for row in rows) + self._since_base(head)
        bases = self._files.bases()
        due = weight > SMALL and weight * SHARE > (self._files.index_size(bases[-1]) if bases else 0)
        matcher = self._loaded(head, WHOLE) if due else None
        bad: list[BadFilter] = []
        unread = [(row.key, row.after) for row in rows if row.after is not None and (due or row.key not in good)]
        found = good_ones(unread, bad)
        if matcher is not None:
            matcher.add_many(found)
        else:
            for _ in found:
                pass
        if bad:
            raise _refused(bad, len(unread))
        good.update(key for key, _ in unread)
        return matcher

    def _since_base(self, head: int) -> int:
        bases = self._files.bases()
        return self._files.size((bases[-1] if bases else 0) + 1, head)

    def prune(self, keep: int = 1) -> int:
        """Remove all but the newest bases, and what writers left that were killed; returns how many bases went.

        Every version stays loadable; those long before the first base that is kept take longer to load. The base of
        the oldest version stays if others were pruned before it: it is all there is of them.

        Raises:
            FilterSetError: there is no filter set here.
        """
        self._known(None)
        with self._files.pruning():
            first = self._files.oldest()
            old = [version for version in self._files.bases()[: -keep or None] if version > first or first == 1]
            for version in old:
                self._files.remove_base(version)
            self._files.sweep()
            return len(old)

    def prune_before(self, version: int) -> int:
        """Remove all versions before this one, for ever; returns how many went.

        Afterwards the set begins with this version: its filters are in a base, which is made if need be. To ask for an
        older one is an error. So no checkpoint of a query may name an older one: a batch of it could not be repeated.
        Whoever is killed meanwhile leaves the set as it was, or pruned; the next call removes what is left over. A
        version that was pruned already is passed over.

        Raises:
            FilterSetError: there is no such version.
        """
        self._known(None)
        with self._files.pruning():
            if type(version) is not int or version > self._files.oldest():
                self._make_base(self._known(version))
                self._files.mark_oldest(version)
            return self._files.remove_pruned()

    def _make_base(self, version: int) -> None:
        if version not in self._files.bases():
            index = self._loaded(version, WHOLE).to_bytes()
            self._files.write_base(version, self._read(version), self._files.kind(version), index)

    # -- matching

    def matcher(self, version: int | None = None, *, shard: Shard = WHOLE) -> Matcher:
        """A matcher with the filters of a version (None: the newest), or with one shard of them.

        One is kept for each set and shard in a process, and is brought to the version asked for by doing or undoing
        changes. So it is yours until somebody in this process asks for another version of the same shard.

        Raises:
            FilterSetError: there is no such version, or a file is damaged.
        """
        return self._steadily(lambda: self._brought(self._known(version), shard))

    def _brought(self, wanted: int, shard: Shard) -> Matcher:
        place = (self.path, shard)
        with _held_lock:
            held = _held.setdefault(place, _Held())
            _held.move_to_end(place)
        with held.lock:
            if held.matcher is not None and held.version == wanted:
                return held.matcher
            matcher, held.matcher = held.matcher, None  # half-way brought it is nobody's
            if held.version + 1 < self._files.oldest():
                matcher = None  # changes between are gone
            if matcher is not None and self._cost(held.version, wanted) <= self._best_base(wanted)[0]:
                self._bring(matcher, held.version, wanted, shard)
            else:
                matcher = self._loaded(wanted, shard)
            held.matcher, held.version = matcher, wanted
        _forget_oldest()
        return matcher

    def _loaded(self, wanted: int, shard: Shard) -> Matcher:
        """Make a matcher from the base from which it is quickest."""
        _, start = self._best_base(wanted)
        if not start:
            matcher = Matcher()
        else:
            matcher = self._base_matcher(start)
            if shard != WHOLE:
                for key in self._files.base(start):
                    if not shard.holds(key):
                        matcher.remove(key)
                matcher.optimize()
        self._bring(matcher, start, wanted, shard)
        return matcher

    def _base_matcher(self, version: int) -> Matcher:
        try:
            return Matcher.from_bytes(self._files.index(version))
        except MatcherError as error:  # of another release of Tocsin: the texts have it all, it only takes longer
            _log.warning("the index of version %d of %s cannot be used: %s", version, self.path, error.message)
            return Matcher(self._files.base(version).items())

    def _best_base(self, wanted: int) -> tuple[int, int]:
        """What it costs to load a version, in bytes of index, and from which base; 0 is the empty set."""
        bases = self._files.bases()
        near = [max((base for base in bases if base <= wanted), default=0)]
        near += [base for base in bases if base > wanted][:1]
        return min(
            (self._cost(start, wanted) + (self._files.index_size(start) if start else 0), start) for start in near
        )

    def _cost(self, start: int, wanted: int) -> int:
        return PARSING * self._files.size(min(start, wanted) + 1, max(start, wanted))

    def _bring(self, matcher: Matcher, start: int, wanted: int, shard: Shard) -> None:
        """Do the changes from one version to another, or undo them."""
        target: dict[Key, str | None] = {}
        if start <= wanted:
            for version in range(start + 1, wanted + 1):
                target.update((row.key, row.after) for row in self._files.change(version).rows)
        else:
            for version in range(start, wanted, -1):
                target.update((row.key, row.before) for row in self._files.change(version).rows)
        mine = {key: text for key, text in target.items() if shard.holds(key)}
        for key, text in mine.items():
            if text is None:
                matcher.remove(key)
        matcher.add_many((key, text) for key, text in mine.items() if text is not None)

    def _known(self, version: int | None) -> int:
        newest = self._files.newest()
        if not newest:
            raise FilterSetError(
                f"there is no filter set at {self.path}",
                path=self.path,
                help="make it with FilterSet(path).change(put={key: filter}); on a cluster all machines need the path",
            )
        if version is None:
            return newest
        oldest = self._files.oldest()
        help = f"it has {oldest} to {newest}"
        if type(version) is not int or not 1 <= version <= newest:
            raise FilterSetError(f"the filter set {self.path} has no version {version}", path=self.path, help=help)
        if version < oldest:
            raise FilterSetError(
                f"version {version} of the filter set {self.path} was pruned", path=self.path, help=help
            )
        return version

    def _steadily(self, read: Callable[[], T]) -> T:
        """Read something. If files that it needs are pruned meanwhile, read again: what is left holds the same.

        Raises:
            FilterSetError: what `read` raises while nothing is pruned.
        """
        seen: tuple[int, list[int]] | None = None
        while True:
            try:
                return read()
            except FilterSetError:
                now = self._files.oldest(), self._files.bases()
                if now == seen:
                    raise
                seen = now


class _Held:
    """A matcher of this process, and which version it has."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.matcher: Matcher | None = None
        self.version = 0


_held: OrderedDict[tuple[str, Shard], _Held] = OrderedDict()
"""The last used at the end. Shards of layouts that are no more are forgotten as others come."""
_held_lock = threading.Lock()
_known_files: dict[str, Files] = {}


def _forget_oldest() -> None:
    """Keep no more matchers than a process should hold."""
    with _held_lock:
        sizes = {place: len(held.matcher) for place, held in _held.items() if held.matcher is not None}
        for place in list(sizes)[:-1]:
            if sum(sizes.values()) <= KEPT:
                break
            del sizes[place], _held[place]


def _files_of(path: str) -> Files:
    """One for each path and process: it remembers the newest version."""
    return _known_files.setdefault(path, Files(path))


def _refused(bad: list[BadFilter], count: int) -> BadFiltersError:
    return BadFiltersError(bad, of=count, help="mend them or leave them out; nothing changed")


def _apply(change: Change, texts: dict[Key, str]) -> None:
    for key, after, _ in change.rows:
        if after is None:
            texts.pop(key, None)
        else:
            texts[key] = after
