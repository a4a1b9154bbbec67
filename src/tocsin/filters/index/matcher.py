"""`Matcher`: which of many filters does an event match?

    add ─▶ normal form ─▶ numbers (space) ─▶ delta chains ─▶ (rebuilt in the background) ─▶ segment
    match ─▶ numbers (encoder) ─▶ kernel over segment and delta ─▶ residues in Python ─▶ keys

Promised: results equal asking every filter in turn, at any moment, whatever was added or removed; any filter is
accepted, and what cannot be indexed is still right and is counted in `stats()`. Matching and changing may go on in
different threads; a match sees every change that was finished before it began.

Not promised: the order of the keys in a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.errors import MatcherError
from tocsin.filters import normal
from tocsin.filters.evaluate import Test, compile_condition
from tocsin.filters.filter import Filter
from tocsin.filters.index import batch, engine, explain, pairs, wire
from tocsin.filters.index.header import SLOT, WATCH
from tocsin.filters.index.join import join
from tocsin.filters.index.layout import Array
from tocsin.filters.index.live import LiveIndex, segment_bytes
from tocsin.filters.index.registry import Key, Shared, not_an_event
from tocsin.filters.index.view import Scratch, View
from tocsin.filters.language import parse
from tocsin.filters.syntax import IsNull
from tocsin.model import Event

__all__ = ["Matcher"]

_EVENTS = SLOT["events"]


class Matcher:
    """An index over many filters, each known by a key (text or whole number).

    Args:
        filters: pairs of key and filter to begin with.
    """

    def __init__(self, filters: Iterable[tuple[Key, Filter | str]] = ()) -> None:
        """Make a matcher, with these filters in it."""
        engine.start()
        self._live = LiveIndex()
        self._key_column = pairs.KeyColumn(self._live)
        self._tests: dict[str, Test] = {}
        self._residue_tests = 0
        self.add_many(filters)

    def add(self, key: Key, filter: Filter | str) -> bool:
        """Add a filter under a key; one that is there under this key is replaced (a match meanwhile may see neither).

        Returns:
            False if the key had an identical filter already, so that nothing changed.

        Raises:
            FilterError: the filter's text is wrong; nothing changed.
            MatcherError: the key is neither text nor a whole number.
        """
        changed = self._live.add(key, filter if isinstance(filter, Filter) else Filter(filter))
        if self._live.delta_is_large:
            self._live.rebuild_in_background()
        return changed

    def add_many(self, filters: Iterable[tuple[Key, Filter | str]]) -> int:
        """Add many at once and build the index once; returns how many changed anything."""
        live = self._live
        changed = sum(
            live.add(key, filter if isinstance(filter, Filter) else Filter(filter)) for key, filter in filters
        )
        if live.delta_is_large:
            self.optimize()
        return changed

    def remove(self, key: Key) -> bool:
        """Remove the filter under a key; False if there is none."""
        return self._live.remove(key)

    def optimize(self) -> None:
        """Rebuild the index now, with what has been learnt about events; matching stays possible meanwhile."""
        self._live.settle()
        self._live.rebuild()

    def match(self, event: Event) -> list[Key]:
        """Return the keys of all filters that are true for the event."""
        live = self._live
        while True:
            view = live.view
            try:
                scratch = view.pool.pop()
            except IndexError:  # all are in use
                scratch = Scratch(view, live.registry)
            ask = scratch.ask
            try:
                result = ask(event) if ask is not None else self._ask_plain(view, scratch, event)
            except AttributeError:
                if isinstance(event, Event):
                    raise
                raise not_an_event(event) from None
            if result.__class__ is not list:
                if result is None:  # filters were added that the event may mention: encode it anew
                    view.collect(scratch)
                    continue
                result = self._finish(view, scratch, event, *result)
            view.pool.append(scratch)
            if view is live.view:  # else it was rebuilt meanwhile, and an entry's number may have got another owner
                return result

    def _ask_plain(self, view: View, scratch: Scratch, event: Event) -> tuple[list[int], list[int]] | None:
        """Match with NumPy."""
        if engine.kernels() is not None:  # they have come meanwhile
            view.generation += 1
        rows = batch.encode(view, scratch, [event])
        if scratch.generation != view.generation:
            return None
        (_, entries), residues = batch.plain_pairs(view, scratch, rows)
        return entries.tolist(), residues.get(0, [])

    def _finish(self, view: View, scratch: Scratch, event: Event, entries: list[int], residues: list[int]) -> list[Any]:
        """Name the entries, ask the residues, and look at the index now and then."""
        if not scratch.header.view[_EVENTS] & (WATCH - 1):
            view.collect(scratch)
            self._live.watch(view)
        if residues:
            entries = entries + self._true_residues(view, residues, entries, event)
        keys = self._live.registry.keys
        found: list[Any] = []
        for entry in entries:
            key = keys[entry]
            if key.__class__ is Shared:
                found += key
            elif key is not None:
                found.append(key)
        return found

    def match_batch(self, events: Any) -> list[list[Key]]:
        """Return one list of keys for each event of a list of events, or of an Arrow record batch or table.

        In Arrow, a row is the event one would make of it: a column named like an envelope field is that field (what is
        missing is as in `Event(…)`); `attributes` may be a struct or a map, `data` a struct or JSON text; of the other
        columns, lists and structs are fields of the payload, plain values are attributes, and types an event cannot
        hold (binary, dates, naive timestamps) are passed over.

        Raises:
            MatcherError: neither events nor Arrow, or a row that no event can be made of.
        """
        return batch.match_batch(self._live, events, self._true_residues)

    def match_pairs(self, data: Any) -> tuple[Array, pa.Array]:
        """Say which rows match which filters, in two columns of equal length: row numbers from 0, ascending, and keys.

        The same answer as `match_batch`, for whoever goes on in columns. Keys are an Arrow array of texts or of 64-bit
        whole numbers.

        Args:
            data: as for `match_batch`.

        Raises:
            MatcherError: as for `match_batch`; or keys are of both kinds, or longer than 64 bits.
        """
        return pairs.match_pairs(self._live, self._key_column, data, self._true_residues)

    def fields(self) -> set[tuple[str, ...]]:
        """The names that filters look at, each as a path: `("data", "a", "b")`. May hold some of removed filters."""
        space = self._live.view.space
        found = {field.path for value in list(space.terms.values()) for field in normal.fields(IsNull(value, False))}
        return found | {field.path for residue in list(space.residues.values()) for field in normal.fields(residue)}

    def explain(self, key: Key, event: Event) -> explain.Explanation:
        """Say test by test why the filter under `key` matches the event or not.

        Raises:
            MatcherError: there is no such key.
        """
        with self._live.lock:
            entry = self._live.registry.entry_of.get(key)
            if entry is None:
                raise MatcherError(f"no filter has the key {key!r}", help="it was never added, or was removed")
            alternatives = [explain.row_tests(self._live.view, row) for row in self._live.registry.rows(entry)]
        return explain.explain(key, alternatives, event)

    def stats(self) -> dict[str, Any]:
        """Count what is there and what matching cost.

        `scanned` entries were looked at, `tested` conjunctions tried in full, `residue_tests` conditions asked in
        Python (a batch looks at more entries, each more quickly); `unindexed` conjunctions are looked at for every
        event. `bytes` is the index itself, `key_bytes` what finds an entry by its key, `dictionary_bytes` the texts
        filters name and the dictionaries that find them.
        """
        live = self._live
        with live.lock:
            view, registry = live.view, live.registry
            segment = view.segment
            built = int(np.count_nonzero(segment.tables.flags)) if segment is not None else 0
            return {
                "filters": len(registry),
                "distinct": registry.entries,
                "conjunctions": built + int(np.count_nonzero(view.delta.tables().flags)),
                "in_delta": len(view.delta),
                "unindexed": (segment.unindexed if segment is not None else 0) + view.delta.unindexed,
                "with_residue": view.residue_rows,
                "dimensions": len(view.space.coded) + len(view.space.ordered),
                "codes": len(view.space.code_values),
                "buckets": len(segment.arrays["buckets"]) if segment is not None else 0,
                "groups": len(segment.arrays["group_first"]) if segment is not None else 0,
                "postings": len(segment.arrays["entry_low"]) if segment is not None else 0,
                **view.totals(),
                "residue_tests": self._residue_tests,
                "rebuilds": live.rebuilds,
                "bytes": segment_bytes(segment) + view.delta.size_in_bytes + registry.size_in_bytes,
                "key_bytes": registry.key_bytes,
                "dictionary_bytes": view.space.size_in_bytes,
                "engine": "numba" if engine.kernels() is not None else "numpy",
            }

    def to_bytes(self) -> bytes:
        """Store all filters compactly; what was learnt about events goes along."""
        self._live.settle()
        with self._live.lock:
            if len(self._live.view.delta) or self._live.view.segment is None:
                self._live.rebuild()
            return wire.dump(self._live.registry, self._live.view)

    @classmethod
    def from_bytes(cls, stored: bytes, *more: bytes) -> Matcher:
        """Undo `to_bytes`; several stored matchers, whose keys differ, become one.

        Raises:
            MatcherError: these bytes are not a matcher's, or of another version; or two have the same key.
        """
        for one in (stored, *more):
            if not isinstance(one, bytes | bytearray | memoryview):
                raise MatcherError(f"bytes are expected, not {type(one).__name__}", help="make them with to_bytes()")
        made = cls()
        parts = [wire.load(one) for one in (stored, *more)]
        made._live.start_from(*(join(parts) if more else parts[0]))
        return made

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._live.registry)

    def __contains__(self, key: object) -> bool:
        """Is there a filter under this key?"""
        return key.__class__ is not bool and key in self._live.registry.entry_of

    def _true_residues(self, view: View, rows: list[int], found: list[int], event: Event) -> list[int]:
        """Entries of those conjunctions whose residues are true too, without those found already."""
        seen = set(found)
        answers: dict[str, bool] = {}
        more = []
        for row in rows:
            entry, texts = view.owner_and_residues(row)
            if entry in seen:
                continue
            for text in texts:
                answer = answers.get(text)
                if answer is None:
                    self._residue_tests += 1
                    answer = answers[text] = self._residue_test(view, text)(event) is True
                if not answer:
                    break
            else:
                seen.add(entry)
                more.append(entry)
        return more

    def _residue_test(self, view: View, text: str) -> Test:
        test = self._tests.get(text)
        if test is None:
            if len(self._tests) > 2 * view.residue_rows + 1024:  # mostly tests of filters long removed
                self._tests.clear()
            condition = view.space.residues.get(text) or parse(text)
            test = self._tests[text] = compile_condition(condition)
        return test
