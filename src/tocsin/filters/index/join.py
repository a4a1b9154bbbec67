"""Several stored matchers → one: parsing a million filters takes minutes, so it is done in pieces, in many processes.

    records of each part ─▶ the numbers of a common space ─▶ one stream

No filter is read again: codes, labels and dimensions get new numbers, a column at a time. What the parts learnt about
events is left behind. Filters that are identical in two parts stay two entries: give identical texts to one part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tocsin.errors import MatcherError
from tocsin.filters.index.labels import Labels
from tocsin.filters.index.layout import Array
from tocsin.filters.index.registry import Registry, Shared
from tocsin.filters.index.space import WITHIN_CUTS, Space
from tocsin.filters.index.tables import Tables, join_tables, renumber, spread, take_apart
from tocsin.filters.index.view import Observed

__all__ = ["join"]

Part = tuple[Registry, Space, Observed, Tables]
"""What `wire.load` gives."""


def join(parts: Sequence[Part]) -> Part:
    """One registry, space and stream for all.

    Raises:
        MatcherError: two parts have the same key.
    """
    space = Space()
    numbers = [space.adopt(old) for _, old, _, _ in parts]
    _make_labels(space, [old for _, old, _, _ in parts])
    observed = Observed()
    observed.reserve(len(space.code_values), len(space.ordered))
    streams = []
    first = 0
    for (registry, old, _, tables), (codes, coded, ordered) in zip(parts, numbers, strict=True):
        moved = renumber(tables, np.array(codes, np.int32), old, _with_labels_of(old, space))
        streams.append(_redirect(moved, first, np.array(coded, np.int32), np.array(ordered, np.int32)))
        first += len(registry.keys)
    return _registry([registry for registry, _, _, _ in parts]), space, observed, join_tables(streams)


def _make_labels(space: Space, parts: Sequence[Space]) -> None:
    """Give every text that some part has a label for one label."""
    texts: dict[tuple[str, str], set[str]] = {}
    for part in parts:
        for dimension in part.ordered:
            if dimension.labels is not None:
                texts.setdefault((dimension.term, dimension.kind), set()).update(dimension.labels.dump()[0])
    for dimension in space.ordered:
        if dimension.labels is not None:
            known = sorted(texts[dimension.term, dimension.kind])
            dimension.labels = Labels.load(known, [0] * len(known)).relabelled()


def _with_labels_of(old: Space, new: Space) -> Space:
    """The old ordered dimensions, their texts with the labels they have in the new space."""
    made = Space()
    for dimension in old.ordered:
        labels, known = dimension.labels, new.ordered_dimension(dimension.term, dimension.kind).labels
        if labels is not None and known is not None:
            texts, of_text = labels.dump()[0], dict(zip(*known.dump(), strict=True))
            labels = Labels.load(texts, [of_text[text] for text in texts])
        made.restore_ordered(dimension.term, dimension.kind, labels)
    return made


def _redirect(tables: Tables, first_entry: int, coded: Array, ordered: Array) -> Tables:
    """Rewrite entries and dimensions, and bring lists of codes in order again; `tables` is a copy already."""
    stream, places = tables.stream, tables.places
    parts = take_apart(stream, places)
    stream[places] += first_entry
    stream[parts.code_at] = np.where(parts.code_dimension < 0, -1, _at(coded, parts.code_dimension))
    stream[parts.range_at] = _at(ordered, parts.range_dimension)
    listed = parts.set_operation != WITHIN_CUTS
    stream[parts.set_at - 3] = np.where(listed, _at(coded, parts.set_dimension), _at(ordered, parts.set_dimension))
    sizes = parts.set_size[listed]
    items = spread(parts.set_at[listed], sizes)
    order = np.lexsort((stream[items], np.repeat(np.arange(len(sizes)), sizes)))
    stream[items] = stream[items][order]
    return tables


def _at(numbers: Array, places: Array) -> Array:
    """`numbers[places]`, and anything where there is no such place: what is asked for both sorts is used for one."""
    return numbers[np.clip(places, 0, len(numbers) - 1)] if len(numbers) else np.zeros_like(places)


def _registry(parts: Sequence[Registry]) -> Registry:
    keys = [list(key) if isinstance(key, Shared) else key for part in parts for key in part.keys]
    joined = Registry.restored(keys, np.concatenate([part.digests for part in parts]))
    if len(joined) != sum(map(len, parts)):
        raise MatcherError("two of the matchers have the same key", help="join matchers of different keys")
    return joined
