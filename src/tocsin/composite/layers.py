"""Where boxes and edges go: a small layered layout, from left to right.

Layers follow from the edges; a box stands as near to what it leads to as it can. An edge that passes a layer has a
place of its own there, so it goes around boxes. The order in a layer is that of the neighbours (a few sweeps of
barycentres); heights follow the neighbours too, as far as nothing overlaps. Cost grows with boxes and passed layers.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["Placed", "Size", "layout", "wide", "wrapped"]

_MARGIN, _GAP, _PASSAGE = 16.0, 14.0, 10.0
"""Around all; between boxes of a layer; for an edge that passes."""
_CURVE, _RUN = 30.0, 62.0
"""Between layers: room for curves, and before each input a straight piece with room for the name of a role."""
_SWEEPS = 9
"""The last one looks at what boxes lead to, so inputs do not cross."""


class Size(NamedTuple):
    """Of a box."""

    width: float
    height: float


Near = dict[str, list[tuple[str, float]]]
"""Neighbours on one side, each with where it is met: from -0.5, its top, to 0.5."""


class Placed(NamedTuple):
    """A layout."""

    width: float
    height: float
    corners: dict[str, tuple[float, float]]
    """Of each box, the upper left."""
    routes: list[list[tuple[float, float]]]
    """Of each edge, the points it passes."""


def wide(text: str) -> int:
    """How many columns a text takes in a monospaced font."""
    return sum(2 if unicodedata.east_asian_width(mark) in "WF" else 1 for mark in text)


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of at most so many columns, broken at blanks where there are some."""
    lines: list[str] = []
    line = ""
    for word in " ".join(text.split()).split(" "):
        if line and wide(line) + 1 + wide(word) <= width:
            line = f"{line} {word}"
            continue
        if line:
            lines.append(line)
        line = ""
        for mark in word:
            if wide(line) + wide(mark) > width:
                lines.append(line)
                line = ""
            line += mark
    return [*lines, line]


def layout(sizes: Mapping[str, Size], edges: Sequence[tuple[str, str, int]]) -> Placed:
    """Place boxes by name and edges (from, to, which of its inputs), which lead to no circle."""
    depth = _depths(sizes, edges)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for name in sizes:
        layers[depth[name]].append(name)
    chains: list[list[str]] = []
    heights = {name: size.height + _GAP for name, size in sizes.items()}
    for number, (start, end, _) in enumerate(edges):
        passed = [f"{number}@{layer}" for layer in range(depth[start] - 1, depth[end], -1)]
        for layer, name in zip(range(depth[start] - 1, depth[end], -1), passed, strict=True):
            layers[layer].append(name)
            heights[name] = _PASSAGE
        chains.append([start, *passed, end])
    before: Near = {name: [] for name in heights}
    after: Near = {name: [] for name in heights}
    inputs = Counter(end for _, end, _ in edges)
    for chain, (_, end, place) in zip(chains, edges, strict=True):
        for one, other in zip(chain, chain[1:], strict=False):
            after[one].append((other, (place + 1) / (inputs[end] + 1) - 0.5 if other == end else 0.0))
            before[other].append((one, 0.0))
    _order(layers, before, after)
    middles = _heights(layers, heights, before, after)
    return _placed(sizes, edges, layers, chains, middles)


def _depths(sizes: Mapping[str, Size], edges: Sequence[tuple[str, str, int]]) -> dict[str, int]:
    """How many edges at most lie behind a box. One that leads nowhere stands right behind what leads to it."""
    leads: dict[str, list[str]] = {name: [] for name in sizes}
    comes: dict[str, list[str]] = {name: [] for name in sizes}
    for start, end, _ in edges:
        leads[start].append(end)
        comes[end].append(start)
    waits = {name: len(to) for name, to in leads.items()}
    depth = dict.fromkeys(sizes, 0)
    ready = [name for name, count in waits.items() if not count]
    for name in ready:
        for start in comes[name]:
            depth[start] = max(depth[start], depth[name] + 1)
            waits[start] -= 1
            if not waits[start]:
                ready.append(start)
    for name in sizes:
        if not leads[name] and comes[name]:
            depth[name] = min(depth[start] for start in comes[name]) - 1
    return depth


def _order(layers: list[list[str]], before: Near, after: Near) -> None:
    place = {name: float(index) for layer in layers for index, name in enumerate(layer)}
    for sweep in range(_SWEEPS):
        near, far = (after, before) if sweep % 2 == 0 else (before, after)
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            key = {}
            for name in layer:
                key[name] = _mean([place[each] + at for each, at in near[name] or far[name]], place[name])
            layer.sort(key=key.__getitem__)
            place.update((name, float(index)) for index, name in enumerate(layer))


def _heights(layers: list[list[str]], heights: Mapping[str, float], before: Near, after: Near) -> dict[str, float]:
    """The middle of everything, as near to its neighbours as the order allows."""
    middle: dict[str, float] = {}
    for layer in layers:
        middle.update(_apart(layer, heights, dict.fromkeys(layer, 0.0)))
    for sweep in range(_SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wish = {}
            for name in layer:
                near = [middle[each] + at * heights[each] for each, at in (*before[name], *after[name])]
                wish[name] = _mean(near, middle[name])
            middle.update(_apart(layer, heights, wish))
    return middle


def _apart(layer: list[str], heights: Mapping[str, float], wish: Mapping[str, float]) -> dict[str, float]:
    """The places nearest to those wished for, in the order given, at which nothing overlaps (isotonic regression)."""
    offset, offsets = 0.0, {}
    blocks: list[tuple[float, int]] = []  # mean and count of those pushed together
    for name in layer:
        offsets[name] = offset + heights[name] / 2
        offset += heights[name]
        blocks.append((wish[name] - offsets[name], 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (mean, count), (other, more) = blocks.pop(), blocks.pop()
            blocks.append(((mean * count + other * more) / (count + more), count + more))
    shifts = [mean for mean, count in blocks for _ in range(count)]
    return {name: offsets[name] + shift for name, shift in zip(layer, shifts, strict=True)}


def _placed(
    sizes: Mapping[str, Size],
    edges: Sequence[tuple[str, str, int]],
    layers: list[list[str]],
    chains: list[list[str]],
    middle: dict[str, float],
) -> Placed:
    left, right, x = {}, {}, _MARGIN
    for number in range(len(layers) - 1, -1, -1):
        left[number] = x
        right[number] = x + max((sizes[name].width for name in layers[number] if name in sizes), default=0.0)
        x = right[number] + _CURVE + _RUN
    layer_of = {name: number for number, layer in enumerate(layers) for name in layer}
    tops = [middle[name] - (sizes[name].height / 2 if name in sizes else 0) for name in middle]
    down = _MARGIN - min(tops, default=0.0)
    corners = {name: (left[layer_of[name]], middle[name] + down - sizes[name].height / 2) for name in sizes}
    inputs = Counter(end for _, end, _ in edges)
    routes = []
    for (start, end, place), chain in zip(edges, chains, strict=True):
        y = middle[start] + down
        points = [(corners[start][0] + sizes[start].width, y), (right[layer_of[start]], y)]
        for name in chain[1:-1]:
            y = middle[name] + down
            points += [(left[layer_of[name]] - _RUN, y), (right[layer_of[name]], y)]
        x1, y1 = corners[end]
        y = y1 + sizes[end].height * (place + 1) / (inputs[end] + 1)
        routes.append([*points, (x1 - _RUN, y), (x1, y)])
    bottoms = [corners[name][1] + size.height for name, size in sizes.items()]
    bottoms += [middle[name] + down for name in middle if name not in sizes]
    return Placed(right[0] + _MARGIN, max(bottoms, default=0.0) + _MARGIN, corners, routes)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
