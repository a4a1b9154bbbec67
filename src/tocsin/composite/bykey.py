"""Events in columns, key by key: for engines in which no key has to do with another.

    rows ─ by key ─▶ for each key all its events, in order ─▶ pairs of rows (`deriving.Paired`)

Many definitions BY the same fields look at the same stream: then what one key holds open in all their operations is
small, and what all keys hold is far larger than a processor's cache. In the order of events every look is at another
key. Here a key's cells are looked up once and are at hand for all its events. As long as rows are taken, an opener is
the number of its row: only what is left open in the end becomes a part, and only for that is it noted when it will be
too old (`agenda`).

That makes no difference where every operation keeps openers that are events by themselves (`Operation.leaves`), leads
to nothing but definitions, and has room for all openers that come: who is given up for want of room depends on all
keys. State is the same whichever way was taken, the order of cells included. Where there are few rows for each key, it
does not pay, and is not done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from tocsin.composite.deriving import Deriver, Paired, Pairs
from tocsin.composite.engine import Engine, EngineLeaf
from tocsin.composite.graph import TimeNode
from tocsin.composite.keys import Key
from tocsin.composite.occurrence import Part
from tocsin.composite.operations import Cell, Operation
from tocsin.composite.rows import CLOCK_ROW, Rows

__all__ = ["feed_by_key", "shared_key"]

Array = np.ndarray[Any, Any]

ENOUGH = 4
"""Rows to a key on average; with fewer it is quicker to go in the order of events."""
_OPENS, _REPLACES, _CLEARS, _TAKES_FIRST, _TAKES_ALL, _USES = range(6)
_CLOSING = {"chronicle": _TAKES_FIRST, "continuous": _TAKES_ALL, "recent": _USES}


class _Step(NamedTuple):
    """What an event does to an operation."""

    place: int
    """Which operation."""
    act: int
    within: int
    """0: nothing grows too old."""


class _Slot(NamedTuple):
    """An operation, and what becomes of it in these rows."""

    operation: Operation
    opener: str | None
    """What an opener is called."""
    outputs: list[Pairs]
    fresh: list[tuple[int, Key, Cell]]
    """Cells that have come to hold something, and the row that did it."""


class _Arrived(NamedTuple):
    """Rows as an engine takes them: those that somebody sees, key by key, each in order."""

    keys: list[Key]
    borders: list[int]
    """Where the rows of each key begin; the last is their number."""
    order: Array
    """Which row each is."""
    seen: list[int]
    times: list[int]
    """When each happens: never before what has happened."""
    time: int
    advanced: int
    fed: int
    repeated: int
    skipped: int
    keyless: int


def shared_key(engine: Engine) -> tuple[str, ...]:
    """The fields that all leaves of an engine go BY, if it can be fed key by key; none: it cannot."""
    leaves = _leaves(engine, range(len(engine.leaves)))
    fields = {leaf.by for leaf in leaves}
    if len(fields) != 1 or any(leaf.outputs or leaf.needs for leaf in leaves):
        return ()
    if any(isinstance(node, TimeNode) for node in engine.graph.nodes):
        return ()
    if not all(each.leaves and not each.node.links for each in engine.operations.values()):
        return ()
    return fields.pop()


def feed_by_key(engine: Engine, by: tuple[str, ...], rows: Rows, derivers: Sequence[Deriver | None]) -> Paired | None:
    """Take events as `feed_rows` does; returns what was detected. None: nothing is done: it would be wrong, or slow.

    Args:
        engine: takes them.
        by: what `shared_key` says of it: it must be some.
        rows: the events.
        derivers: by number of the definition; None: nothing is told of it.
    """
    matches = [[engine.numbers[text] for text in match if text in engine.numbers] for match in rows.matches]
    places = {number: slot for slot, number in enumerate(engine.operations)}
    ways = [_way(engine, numbers, places) for numbers in matches]
    if not all(map(engine.is_simple_for, matches)) or not _is_room(engine, ways, rows.seen):
        return None
    known: dict[Key | None, int] = {}
    key_numbers = np.array([known.setdefault(key, len(known)) for key in rows.keys[by]], np.int64)
    if len(key_numbers) < ENOUGH * len(known):
        return None
    arrived = _arrived(engine, rows, key_numbers, known, [len(numbers) for numbers in matches])
    slots, found = _slots(engine, derivers)
    steps = [[tuple(step) for step in way] for way in ways]  # these are taken apart in less time
    adds = [[(out.openers.append, out.closers.append, out.keys.append) for out in slot.outputs] for slot in slots]
    expired = [0] * len(slots)
    times, seen, borders = arrived.times, arrived.seen, arrived.borders
    before, count, gets = list[Part](), len(times), [slot.operation.cells.get for slot in slots]
    left = _Left(engine, rows, arrived)
    for number, key in enumerate(arrived.keys):
        cells: dict[int, Cell] = {}
        held: dict[int, int] = {}
        since: dict[int, int] = {}
        for at in range(borders[number], borders[number + 1]):
            for place, act, within in steps[seen[at]]:
                cell = cells.get(place)
                if cell is None:
                    cell = cells[place] = gets[place](key) or []
                    held[place] = len(cell)
                if within and cell:
                    border = times[at] - within
                    while cell and (times[cell[0]] if cell[0].__class__ is int else cell[0].time) < border:
                        del cell[0]
                        expired[place] += 1
                if act <= _REPLACES:
                    if not cell:
                        since[place] = at
                    elif act == _REPLACES:
                        cell.clear()
                    cell.append(at)
                elif act == _CLEARS:
                    cell.clear()
                elif cell:
                    if act == _TAKES_FIRST:
                        used = [cell.pop(0)]
                    else:
                        used = cell[:] if len(cell) == 1 else left.distinct(cell)
                        if act == _TAKES_ALL:
                            cell.clear()
                    for opener in used:
                        if opener.__class__ is not int:
                            before.append(opener)
                            opener = count + len(before) - 1
                        for add_opener, add_closer, add_key in adds[place]:
                            add_opener(opener)
                            add_closer(at)
                            add_key(number)
        for place, cell in cells.items():
            if cell or held[place]:
                left.file(slots[place], key, cell, held[place], since.get(place))
    for slot, gone in zip(slots, expired, strict=True):
        slot.operation.count_expired(gone)
        for _, key, cell in sorted(slot.fresh, key=itemgetter(0)):
            slot.operation.cells[key] = cell
    _settle(engine, arrived, len(rows.offsets))
    return Paired(rows, arrived.order, arrived.times, before, by, arrived.keys, found)


def _slots(engine: Engine, derivers: Sequence[Deriver | None]) -> tuple[list[_Slot], list[Pairs]]:
    """The operations, and what they detect for definitions of which something is told."""
    names: dict[int, list[str | None]] = {number: [None, None] for number in engine.operations}
    for leaf in _leaves(engine, range(len(engine.leaves))):
        for operation, take, opens in leaf.targets:
            if opens or take == operation.work.takes[-1]:
                names[operation.number][0 if opens else 1] = leaf.name
    slots, found = list[_Slot](), dict[int, Pairs]()
    for number, operation in engine.operations.items():
        first, last = names[number]
        outputs = []
        for definition in operation.node.outputs:
            if (deriver := derivers[definition]) is not None:
                found[definition] = Pairs(deriver, (first, last), [], [], [])
                outputs.append(found[definition])
        slots.append(_Slot(operation, first, outputs, []))
    return slots, [found[definition] for definition in sorted(found)]


def _leaves(engine: Engine, numbers: Iterable[int]) -> list[EngineLeaf]:
    return [leaf for number in numbers for leaf in engine.leaves[number]]


def _way(engine: Engine, numbers: Sequence[int], places: dict[int, int]) -> tuple[_Step, ...]:
    """What events of some filters do."""
    steps = []
    for leaf in _leaves(engine, numbers):
        for operation, take, opens in leaf.targets:
            context = operation.node.rules.context
            if opens:
                act = _REPLACES if context == "recent" else _OPENS
            else:
                act = _CLOSING[context] if take == operation.work.takes[-1] else _CLEARS
            steps.append(_Step(places[operation.number], act, operation.within))
    return tuple(steps)


def _is_room(engine: Engine, ways: Sequence[tuple[_Step, ...]], seen: Sequence[int]) -> bool:
    """Will no operation have more open than it may, whatever comes in which order?"""
    more = [0] * len(engine.operations)
    for match, count in Counter(seen).items():
        for step in ways[match] if match != CLOCK_ROW else ():
            more[step.place] += count if step.act <= _REPLACES else 0
    return all(operation.has_room(count) for operation, count in zip(engine.operations.values(), more, strict=True))


def _arrived(
    engine: Engine, rows: Rows, numbers: Array, known: dict[Key | None, int], sizes: Sequence[int]
) -> _Arrived:
    """Rows by key.

    Args:
        engine: takes them.
        rows: all there are.
        numbers: of their keys.
        known: what these stand for.
        sizes: how many filters of each match are there.
    """
    state = engine.state
    offsets, seen = np.array(rows.offsets, np.int64), np.array(rows.seen, np.int64)
    is_new = offsets > np.maximum.accumulate(np.concatenate([[state.fed], offsets[:-1]]))
    is_clock = seen == CLOCK_ROW
    filters = np.where(is_clock, 0, np.array([*sizes, 0])[seen])
    passes = np.flatnonzero(is_new & (is_clock | (filters > 0)))
    times = np.array(rows.times, np.int64)
    times[passes], advanced = _passed(times[passes], is_clock[passes], state.time, state.advanced)
    time = int(times[passes[-1]]) if len(passes) else state.time
    last = np.flatnonzero(is_new)[-1:]
    if len(last) and last[0] not in passes[-1:]:  # nobody sees it: so late it is all the same
        time = max(int(times[last[0]]), time, advanced + 1)
    nobody = known.get(None, -1)
    taken = passes[~is_clock[passes]]
    keyless = int(filters[taken[numbers[taken] == nobody]].sum())
    taken = taken[numbers[taken] != nobody]
    small = np.uint16 if len(known) < 1 << 16 else np.int64  # is sorted in less time
    order = taken[np.argsort(numbers[taken].astype(small), kind="stable")]
    present, counts = np.unique(numbers[order], return_counts=True)
    by_number = {number: key for key, number in known.items()}
    return _Arrived(
        [key for number in present.tolist() if (key := by_number[number]) is not None],
        [0, *np.cumsum(counts).tolist()],
        order,
        seen[order].tolist(),
        times[order].tolist(),
        time,
        advanced,
        int(offsets[is_new][-1]) if len(last) else state.fed,
        int((~is_new).sum()),
        int((is_new & is_clock).sum()),
        keyless,
    )


def _passed(times: Array, is_clock: Array, time: int, advanced: int) -> tuple[Array, int]:
    """What time it was at each row, as `Engine.pass_to` and `Engine.advance` have it; and what was let pass."""
    found, begin = times.copy(), 0
    for end in [*np.flatnonzero(is_clock).tolist(), len(times)]:
        least = max(time, advanced + 1)
        found[begin : end + 1] = np.maximum.accumulate(np.maximum(times[begin : end + 1], least))
        if end < len(times):
            time = advanced = int(found[end])
        begin = end + 1
    return found, advanced


class _Left:
    """What is left open of the rows, and who it is."""

    def __init__(self, engine: Engine, rows: Rows, arrived: _Arrived) -> None:
        """Begin with nothing."""
        self._agenda, self._rows, self._times = engine.agenda, rows, arrived.times
        self._time, self._order = arrived.time, list[int](arrived.order.tolist())

    def distinct(self, cell: Cell) -> Cell:
        """Openers of which no two are told by one id: they have another source, or another id."""
        known: dict[tuple[str, str], int | Part] = {}
        for each in cell:
            if each.__class__ is int:
                row = self._order[each]
                known.setdefault((self._rows.sources[row], self._rows.ids[row]), each)
            else:
                known.setdefault((each.source, each.id), each)
        return list(known.values())

    def file(self, slot: _Slot, key: Key, cell: Cell, before: int, since: int | None) -> None:
        """Take note of what is left in a cell that held so much before, and was empty up to a row, if at all."""
        operation, gone = slot.operation, 0
        if operation.within:  # most of what nobody has closed is too old by now
            border = self._time - operation.within
            while gone < len(cell):
                first = cell[gone]
                if (self._times[first] if first.__class__ is int else first.time) >= border:
                    break
                gone += 1
            del cell[:gone]
            operation.count_expired(gone)
        if not before and not cell:
            return
        operation.open += len(cell) - before
        if before and (since is not None or not cell):
            del operation.cells[key]
        if not cell:
            return
        for place in range(len(cell) - 1, -1, -1):  # those that came now stand behind the others
            at = cell[place]
            if at.__class__ is not int:
                break
            cell[place] = self._rows.part(self._order[at], slot.opener, self._times[at])
        if since is not None:  # else there is a note already
            slot.fresh.append((self._order[since], key, cell))
            if operation.within and key not in operation.expiries:
                self._agenda.expect(operation, key, cell[0].time)


def _settle(engine: Engine, arrived: _Arrived, rows: int) -> None:
    """How late it is, and what became of the rows."""
    state, counts = engine.state, engine.state.counts
    if arrived.time > state.time:
        engine.pass_to(arrived.time, lambda _: None)  # nothing waits for time to pass
    engine.agenda.expire()
    state.advanced, state.fed = arrived.advanced, arrived.fed
    counts.events += rows - arrived.repeated
    counts.repeated += arrived.repeated
    counts.skipped += arrived.skipped
    counts.keyless += arrived.keyless
