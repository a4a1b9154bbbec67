"""Events in columns, key by key: for engines in which no key has to do with another.

    rows ─ by key ─▶ for each key all its events, in order ─▶ pairs ─ in the order of events again ─▶ derived events

Many definitions BY the same fields look at the same stream: then what one key holds open in all their operations is
small, and what all keys hold is far larger than a processor's cache. In the order of events every look is at another
key. Here a key's cells are looked up once and are at hand for all its events, and notes of what grows too old are made
once for what is left (`agenda`).

That makes no difference where every operation keeps openers that are events by themselves (`Operation.leaves`), leads
to nothing but definitions, and has room for all openers that come: who is given up for want of room depends on all
keys. State is the same whichever way was taken, the order of cells included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from tocsin.composite.deriving import Deriver, PairKey, Told
from tocsin.composite.engine import Engine
from tocsin.composite.graph import TimeNode
from tocsin.composite.keys import Key
from tocsin.composite.occurrence import Part
from tocsin.composite.operations import Cell, Operation
from tocsin.composite.rows import CLOCK_ROW, Rows

__all__ = ["feed_by_key", "shared_key"]

_OPENS, _REPLACES, _CLEARS, _TAKES_FIRST, _TAKES_ALL, _USES = range(6)
_CLOSING = {"chronicle": _TAKES_FIRST, "continuous": _TAKES_ALL, "recent": _USES}


class _Step(NamedTuple):
    """What an event does to an operation."""

    slot: int
    """Which operation."""
    act: int
    within: int
    """0: nothing grows too old."""
    name: str | None
    """What the event is called there."""


class _Arrived(NamedTuple):
    """Rows as an engine takes them."""

    by_key: dict[Key, list[int]]
    """Their numbers."""
    times: list[int]
    """When each happens: never before what has happened."""
    time: int
    advanced: int
    fed: int
    skipped: int
    repeated: int
    keyless: int


def shared_key(engine: Engine) -> tuple[str, ...]:
    """The fields that all leaves of an engine go BY, if it can be fed key by key; none: it cannot."""
    leaves = [leaf for several in engine.leaves for leaf in several]
    fields = {leaf.by for leaf in leaves}
    if len(fields) != 1 or any(leaf.outputs or leaf.needs for leaf in leaves):
        return ()
    if any(isinstance(node, TimeNode) for node in engine.graph.nodes):
        return ()
    if not all(each.leaves and not each.node.links for each in engine.operations.values()):
        return ()
    return fields.pop()


def feed_by_key(
    engine: Engine, by: tuple[str, ...], rows: Rows, derivers: Sequence[Deriver | None]
) -> list[Told] | None:
    """Take events as `feed_rows` does; returns what was detected, in order. None: that cannot be, and nothing is done.

    Args:
        engine: takes them.
        by: what `shared_key` says of it: it must be some.
        rows: the events.
        derivers: by number of the definition; None: nothing is told of it.
    """
    slots = {number: slot for slot, number in enumerate(engine.operations)}
    operations = list(engine.operations.values())
    numbers = [[engine.numbers[text] for text in match if text in engine.numbers] for match in rows.matches]
    if not all(engine.is_simple_for(each) for each in numbers):
        return None
    ways = [_way(engine, each, slots) for each in numbers]
    if not _is_room(operations, ways, rows.seen):
        return None
    arrived = _arrived(engine, rows, rows.keys[by], [len(each) for each in numbers])
    outputs = [
        [(number, deriver) for number in each.node.outputs if (deriver := derivers[number]) is not None]
        for each in operations
    ]
    found: list[tuple[int, Told]] = []
    fresh: list[list[tuple[int, Key, Cell]]] = [[] for _ in operations]
    expired = [0] * len(operations)
    times, seen, count = arrived.times, rows.seen, len(derivers)
    offsets, ids, sources, levels = rows.offsets, rows.ids, rows.sources, rows.levels
    gets = [each.cells.get for each in operations]
    for key, mine in arrived.by_key.items():
        cells: dict[int, Cell] = {}
        held: dict[int, int] = {}
        since: dict[int, int] = {}
        told = PairKey(by, key)
        for at in mine:
            time, part = times[at], None
            for slot, act, within, name in ways[seen[at]]:
                cell = cells.get(slot)
                if cell is None:
                    cell = cells[slot] = gets[slot](key) or []
                    held[slot] = len(cell)
                if within:
                    while cell and time - cell[0].time > within:
                        del cell[0]
                        expired[slot] += 1
                if not cell:
                    if act > _REPLACES:
                        continue
                    since[slot] = at
                elif act == _REPLACES:
                    cell.clear()
                elif act == _CLEARS:
                    cell.clear()
                    continue
                if part is None or part.name != name:
                    part = Part(name, offsets[at], ids[at], sources[at], time, None, levels[at] if levels else 0)
                if act <= _REPLACES:
                    cell.append(part)
                    continue
                used = cell[:1] if act == _TAKES_FIRST else cell[:]
                for number, deriver in outputs[slot]:
                    place = at * count + number
                    if len(used) == 1:
                        found.append((place, deriver.pair(told, used[0], part)))
                    else:  # of several that are told by one id, the first is
                        several: dict[str, Told] = {}
                        for one in used:
                            each = deriver.pair(told, one, part)
                            several.setdefault(each[0], each)
                        found += [(place, each) for each in several.values()]
                if act != _USES:
                    del cell[: len(used)]
        _file(engine, operations, key, cells, held, since, fresh)
    for operation, several, gone in zip(operations, fresh, expired, strict=True):
        operation.count_expired(gone)
        for _, key, cell in sorted(several, key=itemgetter(0)):
            operation.cells[key] = cell
    _settle(engine, arrived)
    found.sort(key=itemgetter(0))
    return [each for _, each in found]


def _way(engine: Engine, numbers: Sequence[int], slots: dict[int, int]) -> tuple[_Step, ...]:
    """What events of some filters do."""
    steps = []
    for leaf in [leaf for number in numbers for leaf in engine.leaves[number]]:
        for operation, take, opens in leaf.targets:
            context = operation.node.rules.context
            if opens:
                act = _REPLACES if context == "recent" else _OPENS
            else:
                act = _CLOSING[context] if take == operation.work.takes[-1] else _CLEARS
            steps.append(_Step(slots[operation.number], act, operation.within, leaf.name))
    return tuple(steps)


def _is_room(operations: Sequence[Operation], ways: Sequence[tuple[_Step, ...]], seen: Sequence[int]) -> bool:
    """Will no operation have more open than it may, whatever comes in which order?"""
    more = [0] * len(operations)
    for match, count in Counter(seen).items():
        for step in ways[match] if match != CLOCK_ROW else ():
            more[step.slot] += count if step.act <= _REPLACES else 0
    return all(operation.has_room(count) for operation, count in zip(operations, more, strict=True))


def _arrived(engine: Engine, rows: Rows, keys: Sequence[Key | None], sizes: Sequence[int]) -> _Arrived:
    """Rows by key, and what time it was at each, as `Engine.pass_to` and `Engine.advance` have it."""
    state = engine.state
    now, advanced, fed = state.time, state.advanced, state.fed
    skipped = repeated = keyless = 0
    behind: int | None = None
    times, by_key = list(rows.times), dict[Key, list[int]]()
    for at, (offset, time, seen, key) in enumerate(zip(rows.offsets, rows.times, rows.seen, keys, strict=True)):
        if offset <= fed:
            repeated += 1
            continue
        fed = offset
        if seen != CLOCK_ROW and not sizes[seen]:  # nobody sees it: it matters if nothing comes after it
            behind = time
            continue
        behind = None
        if time < now:
            time = now
        if time <= advanced:
            time = advanced + 1
        now = times[at] = time
        if seen == CLOCK_ROW:
            skipped += 1
            advanced = time
        elif key is None:
            keyless += sizes[seen]
        else:
            mine = by_key.get(key)
            if mine is None:
                by_key[key] = [at]
            else:
                mine.append(at)
    if behind is not None:
        now = max(behind, now, advanced + 1)
    return _Arrived(by_key, times, now, advanced, fed, skipped, repeated, keyless)


def _file(
    engine: Engine,
    operations: Sequence[Operation],
    key: Key,
    cells: dict[int, Cell],
    held: dict[int, int],
    since: dict[int, int],
    fresh: list[list[tuple[int, Key, Cell]]],
) -> None:
    """Take note of what is left of a key; cells that were empty meanwhile are filed later, in the order of events."""
    for slot, cell in cells.items():
        before = held[slot]
        if not before and not cell:
            continue
        operation = operations[slot]
        operation.open += len(cell) - before
        if before and (slot in since or not cell):
            del operation.cells[key]
        if cell:
            if slot in since:
                fresh[slot].append((since[slot], key, cell))
            if operation.within and key not in operation.expiries:
                engine.agenda.expect(operation, key, cell[0].time)


def _settle(engine: Engine, arrived: _Arrived) -> None:
    """How late it is, and what became of the rows."""
    state, counts = engine.state, engine.state.counts
    if arrived.time > state.time:
        engine.pass_to(arrived.time, lambda _: None)  # nothing waits for time to pass
    engine.agenda.expire()
    state.advanced, state.fed = arrived.advanced, arrived.fed
    counts.events += len(arrived.times) - arrived.repeated
    counts.repeated += arrived.repeated
    counts.skipped += arrived.skipped
    counts.keyless += arrived.keyless
