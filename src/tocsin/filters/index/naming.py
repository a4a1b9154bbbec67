"""Entries → keys: the last step of a match, done in C where the kernels run.

With a thousand keys to an answer this takes as long as finding them: each key is an object somewhere in memory. Keys
that were removed while we matched are left out; several keys behind one entry (`Shared`) are for the caller to put in
line.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from tocsin.filters.index import engine
from tocsin.filters.index.builtin import builtin
from tocsin.filters.index.layout import Array
from tocsin.filters.index.registry import Registry

__all__ = ["namer", "names_of_events"]


def namer(registry: Registry, entries: Array) -> Callable[[int], list[Any]]:
    """Make a function from a number to the list of keys of the first so many entries."""
    names, native = registry.keys, engine.native()
    if native is None:
        return lambda count: _without_removed([names[entry] for entry in entries[:count].tolist()])
    state: Array = np.array([id(names), id(None), entries.ctypes.data, 0], np.int64)
    make = builtin(native.name_entries, state.ctypes.data)

    # The default keeps alive what the kernel points to.
    def name(count: int, kept: Any = (names, entries, state)) -> list[Any]:
        found: list[Any] = make(count)
        return found

    return name


def names_of_events(registry: Registry, entries: Array, starts: Array) -> list[list[Any]]:
    """The keys of each event's entries: event n has those from `starts[n]` to `starts[n + 1]`."""
    names, native = registry.keys, engine.native()
    if native is None:
        flat = [names[entry] for entry in entries.tolist()]
        return [_without_removed(flat[first:last]) for first, last in pairwise(starts.tolist())]
    entries, starts = np.ascontiguousarray(entries, np.int32), np.ascontiguousarray(starts, np.int64)
    state: Array = np.array([id(names), id(None), entries.ctypes.data, starts.ctypes.data], np.int64)
    found: list[list[Any]] = builtin(native.name_events, state.ctypes.data)(len(starts) - 1)
    return found


def _without_removed(keys: list[Any]) -> list[Any]:
    return [key for key in keys if key is not None]
