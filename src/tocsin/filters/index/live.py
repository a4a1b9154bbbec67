"""The changing side of a matcher: add, remove, rebuild. The asking side is `matcher`.

Concurrency: every change holds `lock`. A rebuild copies what it needs under the lock, builds without it, and takes it
again to put the new view in place and carry over what changed meanwhile; if it finds that another rebuild was quicker
it gives up. Only when codes or labels must get new numbers is the lock held throughout.
"""

from __future__ import annotations

import threading

import numpy as np

from tocsin.filters.filter import Filter
from tocsin.filters.index.build import Segment, build
from tocsin.filters.index.header import WATCH
from tocsin.filters.index.labels import CrowdedError
from tocsin.filters.index.layout import FLAG_SHIFT, MULTIPLE, SHARED, Array
from tocsin.filters.index.registry import Key, Registry, check_key, digest
from tocsin.filters.index.space import WITHIN_CUTS, CodedConjunction, Space
from tocsin.filters.index.tables import Tables, join_tables, renumber, spread, take_apart, take_records
from tocsin.filters.index.view import Observed, View
from tocsin.filters.normal import NormalForm

__all__ = ["LiveIndex"]

FIRST_BUILD = 256
"""Conjunctions in the delta before the first build; below that, chains are as good."""
DELTA_SHARE = 4
"""Rebuild when the delta outgrows this part of the segment: each filter is then built about four times per doubling."""
GARBAGE = 4096
"""Codes below which nobody looks for unused ones."""


class LiveIndex:
    """Registry and current view, and how they change."""

    def __init__(self) -> None:
        """Start with no filters."""
        self.lock = threading.RLock()
        self.registry = Registry()
        self.view = View.empty()
        self.rebuilds = 0
        self._rebuilding: threading.Thread | None = None
        self._watched = (0, 0)
        self._usual_scan = -1.0
        self._crowded = self._learning = False

    # -- changing

    def add(self, key: Key, filter: Filter) -> bool:
        """Add or replace; False if nothing changed."""
        check_key(key)
        form = filter.form
        identity = digest(form)
        with self.lock:
            registry = self.registry
            present = registry.entry_of.get(key)
            if present is not None:
                if registry.has_identity(present, identity):
                    return False
                self.remove(key)
            entry = registry.find(identity)
            if entry is None:
                rows = self._encode(form)
                entry = registry.new_entry(identity)
                for row in rows:
                    registry.add_row(entry, -1 - self.view.add(row, entry, len(rows) > 1))
            elif registry.keys[entry] is not None:
                for place in registry.rows(entry):
                    self.view.mark_shared(place)  # before it is: a match must not meet an unmarked one
            registry.attach(key, entry)
        return True

    def _encode(self, form: NormalForm) -> list[CodedConjunction]:
        """Write a filter as numbers, for which there is then room in the view."""
        for _ in range(8):
            view = self.view
            view.make_room(form, len(self.registry.keys) + 1)
            try:
                return [view.space.encode(conjunction, form.terms) for conjunction in form.alternatives]
            except CrowdedError:
                self._crowded = True
                self.rebuild()
        raise AssertionError("labels are crowded right after they were spread out")

    def remove(self, key: Key) -> bool:
        """Remove; False if there is no such key."""
        with self.lock:
            registry = self.registry
            entry = registry.entry_of.get(key)
            if entry is None or key.__class__ is bool:
                return False
            if registry.detach(key, entry):
                for row in registry.rows(entry):
                    self.view.kill(row)
        return True

    @property
    def delta_is_large(self) -> bool:
        """Is it time to rebuild?"""
        segment = self.view.segment
        built = len(segment.tables.places) if segment is not None else 0
        return len(self.view.delta) > max(FIRST_BUILD, built // DELTA_SHARE)

    # -- building

    def rebuild_in_background(self) -> None:
        """Begin a rebuild unless one is running."""
        with self.lock:
            if self._rebuilding is None:
                self._rebuilding = threading.Thread(target=self._run, name="tocsin-rebuild", daemon=True)
                self._rebuilding.start()

    def _run(self) -> None:
        try:
            self.rebuild()
        finally:
            self._rebuilding = None

    def settle(self) -> None:
        """Wait for a running rebuild. Do not hold the lock."""
        with self.lock:  # or it might be seen before it is started
            running = self._rebuilding
        if running is not None and running is not threading.current_thread():
            running.join()

    def rebuild(self) -> None:
        """Build a segment of everything alive, with what is known of events by now, and put it in place."""
        with self.lock:
            view, mark, removed = self.view, len(self.view.delta), self.registry.removed_mark
            view.observed.follow(view.space)
            parts = [view.segment.tables] if view.segment is not None else []
            tables = join_tables([*parts, view.delta.tables()])
            tables, _ = take_records(tables, np.flatnonzero(tables.flags))
            space, observed, tables = self._renumbered(view, tables)
            known, orders, seen = observed.code_dimension.used.copy(), len(space.ordered), observed.likelihoods()
            if space is not view.space:
                self._install(View(space, observed, build(tables, known, orders, seen)), view, mark, removed)
                return
        segment = build(tables, known, orders, seen)
        with self.lock:
            if self.view is view:
                self._install(View(space, observed, segment), view, mark, removed)

    def start_from(self, registry: Registry, space: Space, observed: Observed, tables: Tables) -> None:
        """Begin with stored contents."""
        with self.lock:
            observed.follow(space)
            segment = build(tables, observed.code_dimension.used, len(space.ordered), observed.likelihoods())
            self.registry = registry
            self._install(View(space, observed, segment), self.view, 0, registry.removed_mark)

    def _renumbered(self, view: View, tables: Tables) -> tuple[Space, Observed, Tables]:
        """Give new numbers to codes and labels: once more than half of all codes are unused, or labels are crowded."""
        space, observed = view.space, view.observed
        if not self._crowded and len(space.code_values) < GARBAGE:
            return space, observed, tables
        used: Array = np.zeros(len(space.code_values), bool)
        parts = take_apart(tables.stream, tables.places)
        listed = parts.set_operation != WITHIN_CUTS
        used[parts.codes] = True
        used[tables.stream[spread(parts.set_at[listed], parts.set_size[listed])]] = True
        if not self._crowded and 2 * int(used.sum()) > len(used):
            return space, observed, tables
        self._crowded = False
        fresh, moved = space.renumbered(used)
        return fresh, observed.renumbered(space, fresh, moved), renumber(tables, moved, space, fresh)

    def _install(self, fresh: View, old: View, mark: int, removed_mark: int) -> None:
        """Put a view in place: row numbers, filters added since `mark`, filters removed since `removed_mark`."""
        registry = self.registry
        tail = [old.delta.record(place) for place in old.delta.places.used[mark:].tolist()]
        gone = registry.removed_since(removed_mark)
        segment = fresh.segment
        assert segment is not None
        registry.after_build(segment.tables, removed_mark)
        # A filter may have got a second key while the segment was being built from a copy of the records.
        shared = segment.tables.places[registry.are_shared(segment.tables.entries)]
        segment.tables.stream[shared + 2] |= SHARED << FLAG_SHIFT
        fresh.make_room_for_all(len(registry.keys), len(tail))
        for row, entry, flags in tail:
            if flags:
                place = -1 - fresh.add(row, entry, bool(flags & MULTIPLE))
                registry.add_row(entry, place)
                if flags & SHARED:
                    fresh.mark_shared(place)
        for entry in gone:
            for place in registry.rows(entry):
                fresh.kill(place)
        live_texts = {
            text
            for rows in (segment.tables.residues, fresh.delta.residues)
            for texts in rows.values()
            for text in texts
        }
        if 2 * len(live_texts) < len(fresh.space.residues):
            fresh.space.residues = {text: fresh.space.residues[text] for text in live_texts}
        fresh.counters = old.totals()
        self.view = fresh
        self.rebuilds += 1
        self._watched, self._usual_scan = (fresh.counters["events"], fresh.counters["scanned"]), -1.0

    def watch(self, view: View) -> None:
        """Rebuild when events are not what the index was built for: seen first, or scans far longer than usual."""
        counters = view.totals()
        since, more = counters["events"] - self._watched[0], counters["scanned"] - self._watched[1]
        if since < WATCH or view.segment is None or view is not self.view:
            return
        self._watched = (counters["events"], counters["scanned"])
        scan = more / since
        if not view.segment.informed or self._learning:
            self._learning = False
            self.rebuild_in_background()
        elif self._usual_scan < 0:
            self._usual_scan = scan
        elif scan > 3 * self._usual_scan + 16:
            # Events are not what they were: forget them, look at new ones for a while, then build for those.
            view.observed.forget()
            self._learning = True


def segment_bytes(segment: Segment | None) -> int:
    """Memory a segment holds."""
    if segment is None:
        return 0
    return sum(array.nbytes for array in segment.arrays.values()) + segment.tables.places.nbytes
