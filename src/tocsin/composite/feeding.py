"""Events in columns (`rows`) on their way into an engine: the same steps as for single ones, with nothing to find out.

    row ─ the filters it matches ─▶ leaves, which know the columns of their keys ─▶ `Engine.event`
                                └▶ where all of them lead to operations only: at once, without asking anybody

Most that comes are openers and closers of an operation over filters, and a closer mostly finds nothing open. For these
there is a quick way, chosen once for each combination of filters: it keeps openers by itself (`Operation.enter`), and
makes an occurrence when something occurs. State is the same, whichever way was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tocsin.composite.engine import Detection, Engine, EngineLeaf, Inbox, Make, Reader, Tell, ordered, pass_on
from tocsin.composite.keys import Key
from tocsin.composite.occurrence import Occurrence, Part, alone
from tocsin.composite.operations import Cell, Operation
from tocsin.composite.rows import CLOCK_ROW, Rows
from tocsin.composite.windows import Take

__all__ = ["feed_rows"]


class _Target(NamedTuple):
    operation: Operation
    get: Callable[[Key], Cell | None]
    """Finds a cell of it."""
    take: Take
    opens: bool
    is_plain: bool
    """See `Operation.enter`."""
    leaves: bool
    """It closes, and what occurs follows from what is open: see `Operation.leave`."""
    within: int
    """If something in a cell may be too old: see `SLACK`. 0: nothing is."""


class _Way(NamedTuple):
    """What events of some filters reach."""

    groups: list[tuple[EngineLeaf, ...]]
    is_simple: bool
    keys: list[Key | None] | None
    """For the quick way: of all leaves; None: they have the empty key."""
    quick: list[tuple[str | None, list[dict[str, Any] | None] | None, tuple[_Target, ...]]] | None
    """For each leaf its name, where its values are and what it leads to; None: there is no quick way."""


def feed_rows(engine: Engine, rows: Rows, tell: Tell) -> None:
    """Take events in order, as `Engine.feed` does, and let time pass up to the last."""
    state, counts, agenda = engine.state, engine.state.counts, engine.agenda
    if rows.times:
        engine.begin(max(rows.times[0], state.time))
    ways = [_way(engine, rows, match) for match in rows.matches]
    make, ids, sources, levels = _maker(rows), rows.ids, rows.sources, rows.levels
    nothing: Inbox = {}
    fed, at, skipped, is_behind, time = state.fed, -1, 0, False, 0
    try:
        for at, (offset, time, seen) in enumerate(zip(rows.offsets, rows.times, rows.seen, strict=True)):
            if offset <= fed:
                skipped += 1
                continue
            fed = offset
            if seen == CLOCK_ROW:
                counts.skipped += 1
                engine.advance(engine.pass_to(time, tell), tell)
                is_behind = False
                continue
            groups, is_simple, keys, quick = ways[seen]
            is_behind = not groups
            if is_behind:
                continue
            key = () if keys is None else keys[at]
            is_quick = quick is not None and key is not None
            wake = agenda.must if is_quick else agenda.wake
            if time > wake or time <= state.advanced or time < state.time:
                time = engine.pass_to(time, tell)
            else:
                state.time = time
            if quick is None or key is None:
                if detections := engine.event(groups, is_simple, at, make, time, offset):
                    tell(detections)
                continue
            found: list[Detection] | None = None
            inbox: Inbox = nothing
            for name, values, targets in quick:
                part = None
                for operation, get, take, opens, is_plain, leaves, within in targets:
                    cell = get(key)
                    if within and cell is not None and time - cell[0].time > within:
                        operation.expire_oldest(key, time)
                        cell = get(key)
                    if cell is None and not opens:
                        continue
                    if part is None:
                        value = None if values is None else values[at]
                        level = 0 if levels is None else levels[at]
                        part = Part(name, offset, ids[at], sources[at], time, value, level)
                    if opens and is_plain:
                        if operation.enter(key, cell, part):
                            agenda.expect(operation, key, time)
                        continue
                    if leaves and cell is not None:
                        occurred = operation.leave(key, cell, part, offset)
                    else:
                        occurred = []
                        before = 0 if cell is None else operation.size(cell)
                        cell = [] if cell is None else cell
                        take(cell, alone(part), occurred)
                        operation.keep(key, cell, before)
                        if opens and operation.is_timed and cell:
                            agenda.watch(operation, key, cell, time)
                    if occurred:
                        if found is None:
                            found, inbox = [], {}
                        pass_on(operation.node, key, occurred, inbox, found)
            if found is not None:
                if inbox:
                    agenda.expire()
                    engine.rise(inbox, found)
                if found:
                    tell(ordered(found) if len(found) > 1 else found)
    finally:
        state.fed = fed
        counts.repeated += skipped
        counts.events += at + 1 - skipped
        if is_behind:
            engine.pass_to(time, tell)
        agenda.expire()


def _way(engine: Engine, rows: Rows, match: Iterable[str]) -> _Way:
    """The leaves of filters, each knowing where in the columns its key and values are."""
    numbers = [engine.numbers[text] for text in match if text in engine.numbers]
    leaves = [leaf for number in numbers for leaf in engine.leaves[number]]
    groups = []
    for number in numbers:
        group = []
        for leaf in engine.leaves[number]:
            key = rows.keys[leaf.by].__getitem__ if leaf.by else leaf.read_key
            values = rows.values[leaf.needs].__getitem__ if leaf.needs else None
            group.append(leaf._replace(read_key=key, read_values=values))
        groups.append(tuple(group))
    is_simple = engine.is_simple_for(numbers)
    if not leaves or not is_simple or len({leaf.by for leaf in leaves}) > 1 or any(leaf.outputs for leaf in leaves):
        return _Way(groups, is_simple, None, None)
    quick = []
    for leaf in leaves:
        targets = [
            _Target(
                each,
                each.cells.get,
                take,
                opens,
                each.is_plain,
                each.leaves and take == each.work.takes[-1],
                each.within if each.is_plain else 0,
            )
            for each, take, opens in leaf.targets
        ]
        quick.append((leaf.name, rows.values[leaf.needs] if leaf.needs else None, tuple(targets)))
    return _Way(groups, is_simple, rows.keys[leaves[0].by] if leaves[0].by else None, quick)


def _maker(rows: Rows) -> Make:
    """Makes occurrences of the numbers of rows."""
    ids, sources, levels = rows.ids, rows.sources, rows.levels

    def make(at: int, time: int, offset: int, name: str | None, read_values: Reader | None) -> Occurrence:
        values = None if read_values is None else read_values(at)
        level = 0 if levels is None else levels[at]
        return Occurrence(time, offset, time, offset, (Part(name, offset, ids[at], sources[at], time, values, level),))

    return make
