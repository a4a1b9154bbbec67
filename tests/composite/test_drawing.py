"""Drawings show the graph that there is: all of it, once, and nothing that breaks the page."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from itertools import combinations

import pytest

from tocsin import DefinitionError, Detector, Event
from tocsin.composite.drawing import CHARACTER, PADDING
from tocsin.composite.graph import OperationNode
from tocsin.composite.layers import Size, layout, wide, wrapped

SVG = "{http://www.w3.org/2000/svg}"
NASTY = """[name = 'a<b & "c" ]]> \\\\ \u6771\u4eac' AND data.text LIKE '%</svg><script>%'] AS n"""


def plant() -> Detector:
    made = Detector()
    made.define("pair", "SEQ([type = 'a'] AS a, [type = 'b'] AS b) WITHIN 1 MINUTE BY k", "chronicle")
    made.define("again", "SEQ([type = 'a'] AS a, [type = 'b'] AS b) WITHIN 1 MINUTE BY k", "chronicle")
    made.define(
        "late", "NOT(pair AS p, [type = 'x'], PLUS([type = 'c'], 5 SECONDS)) BY k WHERE true", "recent", "interval"
    )
    made.define("self", "SEQ([type = 'a'], [type = 'a'])")
    made.define("some", f"ANY(2, [type = 'a'], {NASTY}, P*([type = 'c'], 1 HOUR, [v > 3]))", "cumulative")
    made.define("plain", "[type = 'z']")
    return made


def chains(count: int) -> Detector:
    """A graph of about three nodes for each, with shared ones and long edges."""
    made = Detector()
    for number in range(count):
        inner = f"SEQ([type = 'a{number % 7}'], [type = 'b{number}'])"
        text = f"AND({inner}, [type = 'c{number % 11}'])"
        made.define(
            f"d{number}", text if number % 3 else f"SEQ({text}, d{number - 1}, [v = {number}])" if number else text
        )
    return made


def links(detector: Detector) -> list[tuple[str, str]]:
    return sorted((f"n{n}", f"n{link.to}") for n, node in enumerate(detector.graph.nodes) for link in node.links)


def outputs(detector: Detector) -> list[tuple[str, str]]:
    return sorted((f"n{n}", f"d{out}") for n, node in enumerate(detector.graph.nodes) for out in node.outputs)


# -- text


def test_a_tree_for_terminals() -> None:
    made = Detector()
    made.define("pair", "SEQ([type = 'a'] AS a, [type = 'b'] AS b) WITHIN 1 MINUTE BY k", "chronicle")
    made.define("late", "NOT(pair, [type = 'x'], PLUS([type = 'c'] AS c, 5 SECONDS)) BY k WHERE c.v > 1")
    assert made.draw() == "\n".join(
        [
            "pair BY k",
            "└─ SEQ #1  chronicle; WITHIN 1 MINUTE",
            "   ├─ opener: [type = 'a'] AS a",
            "   └─ closer: [type = 'b'] AS b",
            "late BY k WHERE c.v > 1",
            "└─ NOT  recent",
            "   ├─ opener: pair: SEQ #1, see above",
            "   ├─ forbidden: [type = 'x']",
            "   └─ closer: PLUS 5 SECONDS  recent",
            "      └─ opener: [type = 'c'] AS c",
        ]
    )


def test_only_some_definitions() -> None:
    made = plant()
    text = made.draw(definitions=["late"])
    assert text.splitlines()[0] == "late BY k WHERE TRUE"
    assert "pair: SEQ  chronicle" in text and "ANY" not in text
    names = re.findall(r"^  (\w+) \[label", made.draw("dot", ["plain"]), re.MULTILINE)
    assert len(names) == 2


def test_every_operation_is_drawn_once_and_marked_where_it_is_shared() -> None:
    made = plant()
    text = made.draw()
    operations = [node for node in made.graph.nodes if isinstance(node, OperationNode)]
    shown = [line for line in text.splitlines() if re.search(r"(recent|chronicle|cumulative)", line)]
    assert len(shown) == len(operations)
    assert text.count("SEQ #1") == 3 and text.count("SEQ #1, see above") == 2


def test_figures_are_those_of_the_moment() -> None:
    made = Detector(max_open=2)
    made.define("pair", "SEQ([type = 'a'], [type = 'b']) WITHIN 1 MINUTE", "chronicle")
    times = ["00:00:00", "00:00:01", "00:00:02", "00:01:01"]
    made.feed_batch([Event("a", "/test", time=f"2026-11-16T{moment}Z") for moment in times])
    assert "2 open, 0 expired, 2 dropped" in made.draw("text", figures=True)
    for format in ("dot", "svg"):  # in two lines, so that a box is not wide
        drawn = made.draw(format, figures=True)
        assert "2 open" in drawn and "0 expired, 2 dropped" in drawn
        assert "dropped" not in made.draw(format)
    made.advance(int(1e18))
    assert "0 open, 2 expired, 2 dropped" in made.draw(figures=True)


# -- DOT


@pytest.mark.parametrize("made", [plant(), chains(20)], ids=["plant", "chains"])
def test_dot_has_the_edges_of_the_graph(made: Detector) -> None:
    dot = made.draw("dot")
    found = sorted(re.findall(r"^  (\w+) -> (\w+) \[label=\"\w*\"\];$", dot, re.MULTILINE))
    assert found == sorted(links(made) + outputs(made))
    names = re.findall(
        r'^  (\w+) \[label="(?:[^"\\]|\\.)*", tooltip="(?:[^"\\]|\\.)*", shape=[^"]*\];$', dot, re.MULTILINE
    )
    assert len(names) == len(set(names)) == len(made.graph.nodes) + len(made.graph.definitions)
    assert len(dot.splitlines()) == len(names) + len(found) + 3, "a line is not what it should be"


# -- SVG


@pytest.mark.parametrize("made", [plant(), chains(60)], ids=["plant", "chains"])
def test_svg_has_one_box_for_each_node_and_nothing_sticks_out(made: Detector) -> None:
    root = ET.fromstring(made.draw("svg", figures=True))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    boxes = []
    for group in root.iter(f"{SVG}g"):
        [rect], [title] = group.findall(f"{SVG}rect"), group.findall(f"{SVG}title")
        assert title.text
        x, y, w, h = (float(rect.get(name, 0)) for name in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + w <= width and y + h <= height
        boxes.append((x, y, w, h))
        lines = group.findall(f"{SVG}text")
        assert lines
        for line in lines:
            assert float(line.get("x", 0)) + wide(line.text or "") * CHARACTER <= x + w - PADDING + 0.2
            assert y + 10 <= float(line.get("y", 0)) <= y + h - 4
    assert len(boxes) == len(made.graph.nodes) + len(made.graph.definitions)
    for one, other in combinations(boxes, 2):
        apart = one[0] + one[2] <= other[0] or other[0] + other[2] <= one[0]
        assert apart or one[1] + one[3] <= other[1] or other[1] + other[3] <= one[1], "boxes overlap"
    assert len(root.findall(f"{SVG}path")) == len(links(made)) + len(outputs(made))


def test_svg_is_escaped_and_self_contained() -> None:
    svg = plant().draw("svg")
    root = ET.fromstring(svg)
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    assert any("""a<b & "c" ]]>""" in title and "</svg><script>" in title for title in titles)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
        "svg",
        "title",
        "style",
        "rect",
        "path",
        "g",
        "text",
    }
    assert "<script" not in svg and "href" not in svg and "url(" not in svg and "@import" not in svg
    assert "prefers-color-scheme: dark" in svg and "currentColor" in svg


def test_what_xml_cannot_hold_is_replaced() -> None:
    made = Detector()
    made.define("odd", "[name = 'a\x01b']")
    assert "a\N{REPLACEMENT CHARACTER}b" in "".join(ET.fromstring(made.draw("svg")).itertext())


def test_edges_pass_no_box() -> None:
    """Between the two boxes it joins, a route crosses layers only where nothing stands."""
    sizes = {name: Size(60 + 10 * number, 40.0) for number, name in enumerate("abcdefgh")}
    edges = [("a", "b", 0), ("b", "c", 0), ("c", "d", 0), ("a", "d", 1), ("e", "c", 1), ("f", "d", 2), ("g", "b", 1)]
    placed = layout(sizes, [*edges, ("h", "d", 3)])
    for (start, end, _), points in zip(edges, placed.routes, strict=False):
        for (x0, y0), (x1, y1) in zip(points, points[1:], strict=False):
            for name, (x, y) in placed.corners.items():
                if name not in (start, end) and y0 == y1:
                    across = x0 < x + sizes[name].width and x1 > x
                    assert not (across and y < y0 < y + sizes[name].height), (start, end, name)


@pytest.mark.parametrize("format", ["text", "dot", "svg"])
def test_two_hundred_nodes_are_drawn_in_a_second(format: str) -> None:
    made = chains(70)
    assert len(made.graph.nodes) > 200
    started = time.process_time()
    drawn = made.draw(format, figures=True)
    assert time.process_time() - started < 1
    assert "d69" in drawn


def test_an_empty_graph() -> None:
    assert Detector().draw() == ""
    assert Detector().draw("dot").splitlines() == ["digraph tocsin {", "  rankdir=LR;", "}"]
    assert list(ET.fromstring(Detector().draw("svg")).iter(f"{SVG}g")) == []


def test_lines_are_broken_at_blanks_and_no_longer_than_asked() -> None:
    assert wrapped("one two  three", 8) == ["one two", "three"]
    assert wrapped("abcdefghij k", 4) == ["abcd", "efgh", "ij k"]
    assert wrapped("\u6771\u4eac\u90fd", 4) == ["\u6771\u4eac", "\u90fd"]


def test_mistakes() -> None:
    with pytest.raises(DefinitionError, match="there is no format 'png'; there are text, dot, svg"):
        plant().draw("png")
    with pytest.raises(DefinitionError, match="there is no definition nobody"):
        plant().draw(definitions=["nobody"])
    with pytest.raises(DefinitionError, match="there is no definition nobody"):
        plant().waiting("nobody")


def test_a_page_may_give_it_other_colours() -> None:
    """Rules of its own are for a file by itself; in a page there are attributes alone, and no colour but the page's."""
    made = Detector()
    made.define("pair", "SEQ([type = 'a'], [type = 'b'])")
    made.define("idle", "AND([type = 'x'], [type = 'y'])")
    made.feed(Event("a", "/test", time="2026-11-16T00:00:00Z"))
    root = ET.fromstring(made.draw("svg", figures=True))
    [style] = root.iter(f"{SVG}style")
    rules = [line for line in (style.text or "").splitlines() if "{" in line and not line.startswith("@media")]
    assert rules and all(line.strip().startswith("svg.tocsin-graph:root") for line in rules)
    for element in root.iter():
        assert {element.get("fill"), element.get("stroke")} <= {None, "none", "currentColor"}
    kinds = [group.get("class") for group in root.iter(f"{SVG}g")]
    assert kinds.count("node operation waits") == 1 and kinds.count("node operation") == 1
    assert "waits" not in made.draw("svg")


def test_what_waits_is_found_among_very_many() -> None:
    """However much is open, no more is looked at than is shown."""
    made = Detector(max_open=200_000)
    made.define("pair", "SEQ([type = 'a'], [type = 'b'])", "chronicle")
    made.define("both", "AND([type = 'a'], [type = 'b'])", "chronicle")
    made.feed_batch([Event("a", "/test", time="2026-11-16T00:00:00Z")] * 100_000)
    started = time.process_time()
    assert len(made.waiting("pair", 20)) == 20
    [both] = made.waiting("both", 20)
    assert len(both.offsets) <= 1_000
    assert "100,000 open" in made.draw(figures=True)
    assert time.process_time() - started < 0.1
