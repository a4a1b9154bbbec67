"""The event graph for the eye: a tree for terminals, DOT for other programs, SVG for pages.

    text   definitions with what they are made of; a node that is used twice has a number, and is drawn once
    dot    one node and one edge for each of the graph's, and one for each definition
    svg    the same, laid out by `layers`; one file, light or dark as the reader's screen is

With `figures` every operation also says what it holds. Drawing changes nothing.

Inside a page the SVG takes the page's colour and the page's style: all it has itself are attributes, which any rule of
a style sheet overrides, in `currentColor`. Classes: `tocsin-graph`; `node` with `leaf`, `operation` or `definition`,
and `waits` where something is open; `edge`, `role`, `first`, `page`.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tocsin.composite.graph import Graph, OperationNode, undefined
from tocsin.composite.layers import Placed, Size, layout, wide, wrapped
from tocsin.composite.printer import print_duration
from tocsin.composite.walk import below, constituents, node_text, role_names, roots
from tocsin.errors import DefinitionError

__all__ = ["FORMATS", "Figures", "draw"]

FORMATS = ("text", "dot", "svg")

CHARACTER, LINE, PADDING = 7.3, 16, 9
"""Of a box in SVG: width of a character of 12 pixels in any monospaced font, height of a line, space around."""
_WIDEST = 22
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class Figures(NamedTuple):
    """What a node holds, and what it has given up."""

    open: int
    expired: int
    dropped: int

    def __str__(self) -> str:
        """Return them in words."""
        return f"{self.open:,} open, {self.expired:,} expired, {self.dropped:,} dropped"


class _Box(NamedTuple):
    name: str
    kind: str
    """`leaf`, `operation` or `definition`."""
    lines: tuple[str, ...]
    title: str
    waits: bool = False
    """Does it hold something?"""


class _Edge(NamedTuple):
    start: str
    end: str
    place: int
    label: str


def draw(
    graph: Graph,
    format: str = "text",
    definitions: Sequence[str] | None = None,
    figures: Mapping[int, Figures] | None = None,
) -> str:
    """Draw a graph.

    Args:
        graph: what to draw.
        format: `text`, `dot` or `svg`.
        definitions: names of those to be drawn, with all they are made of; None: all.
        figures: by number of a node.

    Raises:
        DefinitionError: there is no such format or definition.
    """
    if format not in FORMATS:
        raise DefinitionError(f"there is no format {format!r}", field="format", help=f"there are {', '.join(FORMATS)}")
    names = [definition.name for definition in graph.definitions]
    for name in definitions or ():
        if name not in names:
            raise undefined(name, "definitions")
    chosen = [number for number, name in enumerate(names) if definitions is None or name in definitions]
    if format == "text":
        return "\n".join(_Tree(graph, chosen, figures or {}).lines())
    boxes, edges = _picture(graph, chosen, figures or {})
    return _dot(boxes, edges) if format == "dot" else _svg(boxes, edges)


def _facts(node: OperationNode, count: int, figures: Figures | None) -> list[str]:
    """What an operation of so many constituents goes by, each fact by itself; the first is what it is called."""
    rules = node.rules
    called: str = rules.operator
    if rules.operator == "ANY":
        called = f"ANY {rules.least} of {count}"
    elif rules.period:
        called = f"{rules.operator} {print_duration(rules.period)}"
    found = [called, f"{rules.context}, interval" if rules.interval else rules.context]
    if rules.within is not None:
        found.append(f"WITHIN {print_duration(rules.within)}")
    return found if figures is None else [*found, str(figures)]


# -- text


class _Tree:
    def __init__(self, graph: Graph, chosen: Sequence[int], figures: Mapping[int, Figures]) -> None:
        self._graph, self._chosen, self._figures = graph, chosen, figures
        self._made_of, self._roots = constituents(graph), roots(graph)
        drawn = {each.number for each in below(graph, chosen)}
        uses = Counter(each for number in drawn for each in self._made_of[number])
        uses.update(self._roots[definition] for definition in chosen)
        shared = [n for n in sorted(drawn) if uses[n] > 1 and isinstance(graph.nodes[n], OperationNode)]
        self._marks = {number: mark for mark, number in enumerate(shared, 1)}
        self._seen: set[int] = set()

    def lines(self) -> Iterator[str]:
        for number in self._chosen:
            definition = self._graph.definitions[number]
            where = f" WHERE {definition.where}" if definition.where is not None else ""
            yield f"{definition.name}{_by(definition.by)}{where}"
            yield from self._node(self._roots[number], "", "└─ ", "   ", "")

    def _node(self, number: int, before: str, branch: str, below: str, role: str) -> Iterator[str]:
        node = self._graph.nodes[number]
        role = f"{role}: " if role else ""
        if not isinstance(node, OperationNode):
            yield f"{before}{branch}{role}{node_text(node)}"
            return
        called, *facts = _facts(node, len(self._made_of[number]), self._figures.get(number))
        mark = f" #{self._marks[number]}" if number in self._marks else ""
        if number in self._seen:
            yield f"{before}{branch}{role}{called}{mark}, see above"
            return
        self._seen.add(number)
        yield f"{before}{branch}{role}{called}{mark}  {'; '.join(facts)}"
        parts = self._made_of[number]
        for place, (part, name) in enumerate(zip(parts, role_names(node, len(parts)), strict=True)):
            last = place == len(parts) - 1
            role = ": ".join(filter(None, [name, self._named(part, number)]))
            yield from self._node(part, before + below, "└─ " if last else "├─ ", "   " if last else "│  ", role)

    def _named(self, part: int, number: int) -> str:
        """The definition as which a node is a constituent of another; empty: it is no definition there."""
        node = self._graph.nodes[part]
        named = any(link.to == number and link.key is not None for link in node.links)
        return self._graph.definitions[self._graph.named[part]].name if named else ""


# -- boxes and edges


def _picture(graph: Graph, chosen: Sequence[int], figures: Mapping[int, Figures]) -> tuple[list[_Box], list[_Edge]]:
    made_of, tops = constituents(graph), roots(graph)
    owners = dict(below(graph, chosen))
    boxes, edges = [], []
    for number in sorted(owners):
        node = graph.nodes[number]
        title = node_text(node) + _by(owners[number].by)
        if isinstance(node, OperationNode):
            held = figures.get(number)
            facts = _facts(node, len(made_of[number]), None)
            if held is not None:  # in two lines: a box that is wide makes the whole drawing small
                facts += [f"{held.open:,} open", f"{held.expired:,} expired, {held.dropped:,} dropped"]
            boxes.append(_Box(f"n{number}", "operation", tuple(facts), title, held is not None and held.open > 0))
        else:
            boxes.append(_Box(f"n{number}", "leaf", tuple(wrapped(node_text(node), _WIDEST)), title))
        for link in node.links:
            to = graph.nodes[link.to]
            if link.to in owners and isinstance(to, OperationNode):
                label = role_names(to, len(made_of[link.to]))[link.role]
                edges.append(_Edge(f"n{number}", f"n{link.to}", link.role, label))
    for number in chosen:
        definition = graph.definitions[number]
        lines = wrapped(definition.name, _WIDEST)
        lines += wrapped(_by(definition.by), _WIDEST) if definition.by else []
        lines += wrapped(f"WHERE {definition.where}", _WIDEST) if definition.where is not None else []
        boxes.append(_Box(f"d{number}", "definition", tuple(lines), f"{definition.name}: {definition.text}"))
        edges.append(_Edge(f"n{tops[number]}", f"d{number}", 0, ""))
    return boxes, edges


def _by(fields: Sequence[str]) -> str:
    return f" BY {', '.join(fields)}" if fields else ""


def _dot(boxes: Sequence[_Box], edges: Sequence[_Edge]) -> str:
    shapes = {"leaf": "box", "operation": "ellipse", "definition": "box, style=bold"}
    lines = ["digraph tocsin {", "  rankdir=LR;"]
    for box in boxes:
        label = "\\n".join(map(_in_quotes, box.lines))
        lines.append(f'  {box.name} [label="{label}", tooltip="{_in_quotes(box.title)}", shape={shapes[box.kind]}];')
    for edge in edges:
        lines.append(f'  {edge.start} -> {edge.end} [label="{edge.label}"];')
    return "\n".join([*lines, "}"])


def _in_quotes(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


# -- SVG

_STYLE = """
svg.tocsin-graph:root { color: #1f2328; }
svg.tocsin-graph:root .page { fill: #ffffff; }
svg.tocsin-graph:root .leaf rect { fill: #2f81f7; stroke: #2f81f7; stroke-dasharray: none; }
svg.tocsin-graph:root .definition rect { fill: #2da44e; stroke: #2da44e; }
@media (prefers-color-scheme: dark) {
  svg.tocsin-graph:root { color: #e6edf3; }
  svg.tocsin-graph:root .page { fill: #0d1117; }
}
"""
"""For a file by itself: in a page `:root` is another."""
_FONT = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_OUTLINE = {
    "leaf": 'fill-opacity=".1" stroke-opacity=".8" stroke-dasharray="5 2"',
    "operation": 'fill-opacity=".05" stroke-opacity=".45"',
    "definition": 'fill-opacity=".14" stroke-width="2"',
}


def _svg(boxes: Sequence[_Box], edges: Sequence[_Edge]) -> str:
    inputs = Counter(edge.end for edge in edges)
    sizes = {box.name: _size(box, inputs[box.name]) for box in boxes}
    placed = layout(sizes, [(edge.start, edge.end, edge.place) for edge in edges])
    width, height = placed.width, placed.height
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tocsin-graph" role="img" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" font-family="{_FONT}" font-size="12">',
        f"<title>Event graph</title><style>{_STYLE}</style>",
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}" fill="none"/>',
    ]
    out += _curves(placed, edges)
    for box in boxes:
        out += _node(box, placed, sizes[box.name])
    return "\n".join([*out, "</svg>"])


def _size(box: _Box, inputs: int) -> Size:
    width = max(map(wide, box.lines)) * CHARACTER + 2 * PADDING
    return Size(width, max(len(box.lines), inputs, 1) * LINE + 2 * PADDING)


def _node(box: _Box, placed: Placed, size: Size) -> Iterator[str]:
    x, y = placed.corners[box.name]
    waits = " waits" if box.waits else ""
    yield f'<g class="node {box.kind}{waits}"><title>{_escaped(box.title)}</title>'
    yield (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{size.width:.1f}" height="{size.height:.1f}" rx="5" '
        f'fill="currentColor" stroke="currentColor" {_OUTLINE[box.kind]}/>'
    )
    top = y + (size.height - len(box.lines) * LINE) / 2 + LINE * 0.75
    for number, line in enumerate(box.lines):
        first = ' class="first" font-weight="bold"' if number == 0 and box.kind != "leaf" else ""
        place = f'x="{x + PADDING:.1f}" y="{top + number * LINE:.1f}"'
        yield f'<text{first} {place} fill="currentColor">{_escaped(line)}</text>'
    yield "</g>"


def _curves(placed: Placed, edges: Sequence[_Edge]) -> Iterator[str]:
    for edge, points in zip(edges, placed.routes, strict=True):
        path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
        for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
            middle = (x0 + x1) / 2
            curve = f"C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f}" if y0 != y1 else "L"
            path += f" {curve} {x1:.1f} {y1:.1f}"
        yield f'<path class="edge" d="{path}" fill="none" stroke="currentColor" stroke-opacity=".5"/>'
        if edge.label:
            x, y = points[-1]
            place = (
                f'text-anchor="end" x="{x - 5:.1f}" y="{y - 4:.1f}" font-size="10" fill="currentColor" opacity=".75"'
            )
            yield f'<text class="role" {place}>{_escaped(edge.label)}</text>'


def _escaped(text: str) -> str:
    return html.escape(_UNFIT.sub("\N{REPLACEMENT CHARACTER}", text))
