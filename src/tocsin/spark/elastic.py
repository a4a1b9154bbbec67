"""Elastic matchers: shards of a live filter set that split and merge by the load their tasks measured.

    tasks ─▶ load of each shard in a batch (`serving`) ─▶ windows of the last batches (`balancing`)
          ─▶ `rebalanced`, here: a new layout ─▶ a version of the filter set ─▶ the next batch has other tasks

The rules are the thesis's (`seeds/cloud.md`, 2H and 2I), each matcher judged by itself:

    split   if every load of its window is above `split`: one slow batch is no reason
    merge   two halves, if their largest loads together are below `merge`: one busy batch is a reason not to
    else    nothing; split goes before merge; only full windows count; a shard that was changed begins a new window

Beyond the thesis: a load is the seconds a shard kept its task busy in a batch, so that it grows with the stream as well
as with the filters. A shard of more than a million filters is split whatever its load, and no merge makes one of more
than half a million. A shard that is not much lighter than the one it came from is not split again: what it spends is
spent for each event, and more shards would only spend it more often.

Promised: `rebalanced` is a function of its arguments, and what it returns holds every key once. Loads that are stale or
wrong cost time, never a match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from tocsin.errors import MatcherError
from tocsin.node.divided import Divided, Relaid, ShardStatus
from tocsin.spark.filterset import FilterSet
from tocsin.spark.shards import ENOUGH, MOST, Layout, Shard

__all__ = ["Elastic", "Load", "Status", "rebalanced", "status"]

HELPED = 0.75
"""A half that takes more than this part of what the whole took for an event shows that splitting does not help."""
NOTES = "elastic.json"
"""The file, in the set's directory, in which the driver leaves what it measured and did."""


class Elastic(msgspec.Struct, frozen=True, kw_only=True):
    """When shards split and merge: give it to `ts.match(…, shards=Elastic())`.

    Raises:
        MatcherError: limits that mean nothing, or that would split what was just merged.
    """

    split: float = 1.0
    """Split a shard that was busy for longer than so many seconds in each of the last batches."""
    merge: float = 0.1
    """Merge two halves that were busy for less than so many seconds together; at most half of `split`."""
    window: int = 5
    """How many batches are looked back."""
    most: int | None = None
    """How many shards load may make; None: as many as Spark runs tasks at once."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if not self.split > 0:
            raise MatcherError(f"split is {self.split!r}", field="split", help="give seconds, more than 0")
        if not 0 <= self.merge <= self.split / 2:
            raise MatcherError(
                f"merge is {self.merge!r}, split is {self.split!r}",
                field="merge",
                help="merge must be from 0 to half of split: else shards are merged and split for ever",
            )
        if type(self.window) is not int or self.window < 1:
            raise MatcherError(f"window is {self.window!r}", field="window", help="give a number of batches, 1 or more")
        if self.most is not None and (type(self.most) is not int or not 1 <= self.most <= MOST):
            raise MatcherError(f"most is {self.most!r}", field="most", help="give a whole number from 1 to 10,000")


class Load(NamedTuple):
    """What a shard had to do in one batch."""

    seconds: float
    """CPU seconds of its task that went into matching."""
    events: int
    filters: int
    """How many it holds."""

    @property
    def each(self) -> float:
        """Seconds for an event."""
        return self.seconds / max(1, self.events)


def rebalanced(
    layout: Layout,
    windows: Mapping[Shard, Sequence[Load]],
    policy: Elastic,
    most: int,
    before: Mapping[Shard, Load] | None = None,
) -> Layout:
    """The layout that the loads ask for; the same one if they ask for nothing.

    Args:
        layout: as it is now.
        windows: the loads of each shard, the newest last; of shards that are not there they are passed over.
        policy: the limits.
        most: how many shards load may make.
        before: of a shard that came from a split, the lightest load that the whole had.
    """
    known = {shard: list(windows.get(shard, ()))[-policy.window :] for shard in layout.shards}
    full = {shard: loads for shard, loads in known.items() if len(loads) == policy.window}
    large = [shard for shard, loads in known.items() if loads and loads[-1].filters > ENOUGH]
    hot = [
        shard
        for shard, loads in full.items()
        if shard not in large
        and min(load.seconds for load in loads) > policy.split
        and loads[-1].filters > 1
        and _helped(shard, loads, before or {})
    ]
    hot.sort(key=lambda shard: full[shard][-1].seconds, reverse=True)
    changed = layout
    for shards, room in ((large, MOST), (hot, most)):
        for shard in shards:
            if shard.halves is not None and len(changed) < room:
                changed = changed.split(shard)
    for whole in dict.fromkeys(shard.whole for shard in full):
        if whole is not None and whole.halves is not None:
            pair = [full.get(half) for half in whole.halves]
            if _are_idle(pair, policy) and set(whole.halves) <= set(changed.shards):  # neither was split just now
                changed = changed.merge(whole)
    return changed


def _helped(shard: Shard, loads: Sequence[Load], before: Mapping[Shard, Load]) -> bool:
    """Did splitting make events cheaper? That is not known if there are more filters now than the whole had then."""
    whole = before.get(shard)
    if whole is None or loads[-1].filters > whole.filters:
        return True
    return min(load.each for load in loads) <= HELPED * whole.each


def _are_idle(pair: Sequence[Sequence[Load] | None], policy: Elastic) -> bool:
    """Would one shard in the place of two have little to do?"""
    known = [loads for loads in pair if loads is not None]
    if len(known) < 2:
        return False
    busiest = sum(max(load.seconds for load in loads) for loads in known)
    return busiest < policy.merge and sum(loads[-1].filters for loads in known) <= ENOUGH // 2


# -- what is going on


class Notes(msgspec.Struct, frozen=True):
    """What the driver of an elastic query leaves beside the set."""

    time: datetime
    policy: Elastic
    shards: tuple[ShardStatus, ...] = ()
    splits: int = 0
    merges: int = 0
    changes: tuple[Relaid, ...] = ()


class Status(Divided, frozen=True):
    """The same with the limits that the query has."""

    policy: Elastic | None = None
    """None: no elastic query has reported."""


def status(path: str | FilterSet) -> Status:
    """How the filter set at a path is divided now, and what its elastic query measured and did; from any process.

    Raises:
        FilterSetError: there is no filter set here.
    """
    filters = path if isinstance(path, FilterSet) else FilterSet(path)
    version, layout = filters.current()
    notes = read_notes(filters)
    measured = {} if notes is None else {each.name: each for each in notes.shards}
    shards = tuple(measured.get(str(shard)) or ShardStatus(str(shard)) for shard in layout.shards)
    if notes is None:
        return Status(version, shards)
    return Status(version, shards, notes.time, notes.splits, notes.merges, notes.changes, notes.policy)


def read_notes(filters: FilterSet) -> Notes | None:
    """What the driver left; None if there is nothing, or nothing that can be read: it is no part of the set."""
    try:
        return msgspec.json.decode(Path(filters.path, NOTES).read_bytes(), type=Notes)
    except (OSError, msgspec.MsgspecError, MatcherError):
        return None
