"""The public Python names, from their signatures and docstrings.

Each page lists what is on it; a name that a package exports and no page shows is an error, so none can be forgotten.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import tocsin
import tocsin.spark
from tocsin import composite, errors, led, net, sync, testing
from tocsin import rules as rules_package
from tocsin.delivery import board
from tocsin.delivery.handles import Batch
from tocsin.filters import dialects
from tocsin.filters.schema import Attribute
from tocsin.node.definitions import DefinitionInfo
from tocsin.node.demand import Demand
from tocsin.node.discovery import Changes
from tocsin.node.groups import Group
from tocsin.node.pipeline import Published
from tocsin.node.serving import Serving
from tools.reference.markdown import docstring, summary, table
from tools.reference.members import fields, is_described, methods, signature

__all__ = ["bus", "pieces", "rules", "spark"]

_NODES_OWN = {"wake", "is_eager", "has_waiting", "take_turn"}
"""Methods of a handle that the node calls, not its user."""
_BOUNDS = ("last", "within", "since", "retained")
_PIECES = ("Filter", "Schema", "Matcher", "Detector")
_HANDLES = ("Subscription", "Delivery", "Event", "Request", "Message", "View", "Change")


def bus() -> str:
    """The page of `connect`, the bus and what it gives."""
    _all_are_shown(
        tocsin.__all__,
        {"__version__", "composite", "sync", "testing", "connect", "Bus", *_BOUNDS, *_PIECES, *_HANDLES, *_errors()},
    )
    answers = [Published, Batch, board.Status, board.Alert, board.Receipt, board.Step, board.ConsumerInfo]
    peers = [DefinitionInfo, Changes, Demand, Serving, Group]
    return "\n".join(
        [
            "# Python: the bus\n",
            "`import tocsin` has all of it. This page is made from the docstrings; what is promised is in "
            "[DELIVERY](../DELIVERY.md), [PEERS](../PEERS.md) and [COMPOSITE](../COMPOSITE.md).\n",
            _section(tocsin.connect, "tocsin.connect"),
            _section(tocsin.Bus, "tocsin.Bus"),
            "## Bounds on the past\n",
            *(_section(getattr(tocsin, name), f"tocsin.{name}", level=3) for name in _BOUNDS),
            *(_section(getattr(tocsin, name), f"tocsin.{name}") for name in _HANDLES),
            "## What verbs answer with\n",
            *(_section(each, each.__name__, level=3) for each in [*answers, *peers]),
            "## tocsin.sync\n",
            docstring(sync.__doc__),
            table(["verb", ""], [(f"`{name}`", summary(each.__doc__)) for name, each, _ in methods(sync.Bus)]),
            "## tocsin.testing\n",
            docstring(testing.__doc__),
            *(_section(getattr(testing, name), f"testing.{name}", level=3) for name in testing.__all__),
            "## tocsin.net\n",
            docstring(net.__doc__),
            *(_section(getattr(net, name), f"net.{name}", level=3) for name in ("serve", "run")),
            "## Errors\n",
            docstring(errors.__doc__),
            *(_section(getattr(tocsin, name), name, level=3, members=False) for name in _errors()),
        ]
    )


def pieces() -> str:
    """The page of filters, matchers and detectors used alone."""
    _all_are_shown(composite.__all__, {"Detector", *_builders(), "Explanation", "Waiting", "Definition"})
    shown = ["Explanation", "Waiting", "Definition", *_builders()]
    return "\n".join(
        [
            "# Python: the pieces alone\n",
            "Filters, the index over them, and the detector of composite events work without a node, a disk or a "
            "network. What they mean is in [FILTERS](../FILTERS.md) and [COMPOSITE](../COMPOSITE.md).\n",
            *(_section(getattr(tocsin, name), f"tocsin.{name}") for name in _PIECES),
            _section(Attribute, "Attribute"),
            "## tocsin.composite\n",
            docstring(composite.builder.__doc__),
            *(_section(getattr(composite, name), f"composite.{name}", level=3) for name in shown),
            "## tocsin.filters.dialects\n",
            docstring(dialects.__doc__),
            *(_section(getattr(dialects, name), f"dialects.{name}", level=3) for name in dialects.__all__),
        ]
    )


def rules() -> str:
    """The page of rules and of the local detector."""
    return "\n".join(
        [
            "# Python: rules and the local detector\n",
            "What they mean is in [RULES](../RULES.md) and [LED](../LED.md).\n",
            *_package(rules_package, "tocsin.rules"),
            *_package(led, "tocsin.led"),
        ]
    )


def spark() -> str:
    """The page of `tocsin.spark`."""
    return "\n".join(
        [
            "# Python: Spark\n",
            'The guide is [SPARK](../SPARK.md); the options of `format("tocsin")` are in '
            "[Configuration](configuration.md#the-spark-source-and-sink).\n",
            *_package(tocsin.spark, "tocsin.spark"),
        ]
    )


def _package(package: Any, name: str) -> Iterable[str]:
    yield f"## {name}\n"
    yield docstring(package.__doc__)
    for each in package.__all__:
        value = getattr(package, each)
        if callable(value):
            yield _section(value, f"{name.removeprefix('tocsin.')}.{each}", level=3)


def _errors() -> list[str]:
    kinds = [name for name in tocsin.__all__ if inspect.isclass(getattr(tocsin, name))]
    return [name for name in kinds if issubclass(getattr(tocsin, name), errors.TocsinError)]


def _builders() -> list[str]:
    rest = ("Definition", "Detector", "Explanation", "Waiting")
    return [name for name in composite.__all__ if name not in rest]


def _section(value: Any, name: str, *, level: int = 2, members: bool = True) -> str:
    """A name with its signature, its docstring, its fields and its methods."""
    is_class = inspect.isclass(value)
    has_call = not (is_class and issubclass(value, BaseException))
    written = [f"{'#' * level} {name}\n"]
    if has_call and not (is_class and "__init__" in vars(value) and name in ("tocsin.Bus", "tocsin.Subscription")):
        written.append(f"```python\n{signature(name, value)}\n```\n")
    written.append(docstring(value.__doc__))
    if is_class and members:
        if is_described(value):
            shown = [(f"`{each.name}`", f"`{each.kind}`", each.about) for each in fields(value)]
            written.append(table(["field", "type", ""], shown))
        for method, function, kind in methods(value):
            if method not in _NODES_OWN and not method.startswith("__"):
                written.append(_method(method, function, kind, name, level))
    return "\n".join(written)


def _method(method: str, function: Any, kind: str, owner: str, level: int) -> str:
    short = owner.rpartition(".")[2]
    call = f"{short}.{method}" if kind else signature(f"{short}.{method}", function)
    return f"{'#' * (level + 1)} {short}.{method}\n\n```python\n{call}\n```\n\n{docstring(function.__doc__)}"


def _all_are_shown(exported: Iterable[str], shown: set[str]) -> None:
    missing = sorted(set(exported) - shown)
    if missing:
        raise LookupError(f"no page of the reference shows {', '.join(missing)}: add them in {__name__}")
