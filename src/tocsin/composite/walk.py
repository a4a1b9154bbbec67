"""The event graph looked at from above: what a node is made of, and which nodes a definition has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tocsin.composite.expression import Definition
from tocsin.composite.graph import Graph, LeafNode, Node, OperationNode

__all__ = ["Below", "below", "constituents", "node_text", "role_names", "roots"]


class Below(NamedTuple):
    """A node of a definition."""

    number: int
    definition: Definition
    """The one it belongs to: that which was asked for, or one that it names."""


def roots(graph: Graph) -> list[int]:
    """The node of each definition, in their order."""
    found = [0] * len(graph.definitions)
    for number, node in enumerate(graph.nodes):
        for definition in node.outputs:
            found[definition] = number
    return found


def constituents(graph: Graph) -> list[list[int]]:
    """For each node those it is made of, in order of their places."""
    found: list[dict[int, int]] = [{} for _ in graph.nodes]
    for number, node in enumerate(graph.nodes):
        for link in node.links:
            found[link.to][link.role] = number
    return [[by_place[place] for place in sorted(by_place)] for by_place in found]


def below(graph: Graph, definitions: Sequence[int]) -> list[Below]:
    """The nodes of some definitions, from the top down; each once."""
    made_of, tops = constituents(graph), roots(graph)
    found: dict[int, Below] = {}
    rest = [Below(tops[definition], graph.definitions[definition]) for definition in reversed(definitions)]
    while rest:
        here = rest.pop()
        if here.number in found:
            continue
        found[here.number] = here
        for number in reversed(made_of[here.number]):
            node = graph.nodes[number]
            named = any(link.to == here.number and link.key is not None for link in node.links)
            rest.append(Below(number, graph.definitions[graph.named[number]] if named else here.definition))
    return list(found.values())


def node_text(node: Node) -> str:
    """A node as its definition has it."""
    if isinstance(node, OperationNode):
        return node.text
    text = f"[{node.filter}]" if isinstance(node, LeafNode) else f"AT '{node.at}'"
    return text if node.name is None else f"{text} AS {node.name}"


def role_names(node: OperationNode, count: int) -> Sequence[str]:
    """What the constituents of a node are there for."""
    operator = node.rules.operator
    if operator in ("OR", "AND", "ANY"):
        return [""] * count
    middle = {"NOT": "forbidden", "A": "each", "A*": "all"}.get(operator)
    return ["opener", *([middle] if middle else []), "closer"][:count]
