"""What can be set, and what is limited: variables, options, and every limit with its number, read from the code."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET

import tocsin
from tocsin.filters.limits import Limits as FilterLimits
from tocsin.net.protocol import Limits as ConnectionLimits
from tocsin.security.limits import Allowance
from tocsin.spark import options
from tools.reference import commands
from tools.reference.markdown import arguments, table
from tools.reference.members import constants, fields

__all__ = ["page"]

_SOURCE = Path(tocsin.__file__).parent
_FEW = 5  # verbs that are named one by one
_NAMED = re.compile(r"TOCSIN_[A-Z_]*[A-Z]")

_ELSEWHERE = {
    "TOCSIN_KERNELS": "`numpy`: match and transcode without Numba; `numba`: wait for its kernels however long they "
    "take. Left out: work without them until they are compiled",
    "TOCSIN_KEEPERS": "`off`: Spark's tasks keep no processes beside them in which detectors live on",
    "TOCSIN_COMPLETE": "set by the scripts of `tocsin completion`; not for you",
}
"""Variables that no option of the command stands for."""
_BESIDE = {"TOCSIN_CA": "Every verb that speaks to a node trusts these certificates (PEM)."}
"""What a variable of an option does beside."""
_GIVEN = (
    "TOCSIN_TYPE",
    "TOCSIN_SOURCE",
    "TOCSIN_ID",
    "TOCSIN_PRIORITY",
    "TOCSIN_SUBJECT",
    "TOCSIN_TIME",
    "TOCSIN_OFFSET",
)
"""Variables that a command of a rule finds: the event it runs for."""

_LIMITED = {
    "Events": ("tocsin.model", "tocsin.payload"),
    "The journal and delivery": ("tocsin.journal.contract", "tocsin.node.pipeline", "tocsin.delivery.lane"),
    "Filters of other languages, and XML": ("tocsin.filters.dialects", "tocsin.filters.xpathcost"),
    "Requests, groups, discovery": (
        "tocsin.peers.requests",
        "tocsin.peers.servers",
        "tocsin.peers.groups",
        "tocsin.peers.advertisements",
        "tocsin.node.requests",
        "tocsin.node.discovery",
    ),
    "Rules": ("tocsin.rules.schedule",),
    "HTTP": ("tocsin.net.http.bodies", "tocsin.net.http.wire", "tocsin.net.http.front", "tocsin.net.http.staged"),
}
"""Modules whose explained constants are limits."""


def page() -> str:
    """The page of all that can be set."""
    return "\n".join(
        [
            "# Configuration\n",
            "A node has no configuration file: what it can be told are the options of `tocsin up`, and what a program "
            "can say are arguments. Options come first, then variables, then defaults.\n",
            "## Environment variables\n",
            table(["variable", "is read by", ""], _variables()),
            f"A command of a rule finds its event in {', '.join(f'`{each}`' for each in _GIVEN)}.\n",
            "## Connecting\n",
            "Arguments of `tocsin.connect` and `tocsin.sync.connect`.\n",
            table(["argument", "default", ""], _arguments(tocsin.connect, tocsin.connect.__init__)),
            "## A subscription and its consumer\n",
            "Arguments of `bus.subscribe`; `GET /subscribe` takes most. In brackets: what a new consumer has.\n",
            table(["argument", "default", ""], _arguments(tocsin.Bus.subscribe)),
            "## A composite event\n",
            "Arguments of `bus.define`.\n",
            table(["argument", "default", ""], _arguments(tocsin.Bus.define)),
            "## Trimming\n",
            "Arguments of `bus.trim`.\n",
            table(["argument", "default", ""], _arguments(tocsin.Bus.trim)),
            "## The Spark source and sink\n",
            'Options of `format("tocsin")`; they are explained in [SPARK](../SPARK.md). An option that is not known '
            "is refused.\n",
            table(["for", "options"], [("reading", _names(options._READING)), ("writing", _names(options._WRITING))]),
            "## Limits\n",
            "Going over one is a typed error, or a 413, 429 or 431, that names it. Measured numbers are in "
            "[Limits, with numbers](../about/limits.md).\n",
            *_of("A filter", FilterLimits, "`tocsin.Filter(text, limits=…)`; the first to be passed is named."),
            *_of("A connection", ConnectionLimits, "`serve(limits=…)`; a client is told them when it connects."),
            *_of("A token", Allowance, "`tocsin token add`, all connections of the token together."),
            *(part for title, modules in _LIMITED.items() for part in _constants(title, modules)),
        ]
    )


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _variables() -> Iterator[tuple[str, str, str]]:
    found = commands.variables()
    _all_are_known({*found, *_ELSEWHERE, *_GIVEN})
    for name, uses in sorted(found.items()):
        verbs = sorted({verb.removeprefix("tocsin ") for verb, _, _ in uses})
        few = " ".join(f"`tocsin {verb}`" for verb in verbs)
        several = few if len(verbs) <= _FEW else f"{len(verbs)} verbs of `tocsin`"
        texts = sorted({f"{about} (`{option.split('`')[1]}`)" for _, option, about in uses})
        texts += [_BESIDE[name]] if name in _BESIDE else []
        yield f"`{name}`", several, " · ".join(texts)
    for name, about in _ELSEWHERE.items():
        yield f"`{name}`", "the library", about


def _all_are_known(known: set[str]) -> None:
    """A variable that the source names and this page does not would be a secret."""
    named = {each for path in _SOURCE.rglob("*.py") for each in _NAMED.findall(path.read_text())}
    if missing := sorted(named - known):
        raise LookupError(f"the page of the configuration does not explain {', '.join(missing)}: see {__name__}")


def _arguments(explained: Any, called: Any = None) -> Iterator[tuple[str, str, str]]:
    texts = arguments(explained.__doc__)
    for name, each in inspect.signature(called or explained).parameters.items():
        if name == "self":
            continue
        default = "" if each.default in (each.empty, UNSET) else f"`{each.default!r}`"
        yield f"`{name}`", default, texts.get(name, "")


def _of(title: str, limits: type, where: str) -> Iterator[str]:
    yield f"### {title}\n"
    yield where + "\n"
    defaults: Any = limits()
    shown = [
        (f"`{each.name}`", _number(getattr(defaults, each.name), each.about), each.about) for each in fields(limits)
    ]
    yield table(["limit", "", ""], shown)


def _constants(title: str, modules: tuple[str, ...]) -> Iterator[str]:
    rows = [
        (_number(each.value, each.about), each.about)
        for name in modules
        for each in constants(importlib.import_module(name))
        if isinstance(each.value, int | float)
    ]
    if not rows:
        raise LookupError(f"{', '.join(modules)}: no limit is explained there any more")
    yield f"### {title}\n"
    yield table(["", ""], rows)


def _number(value: object, about: str) -> str:
    if value is None:
        return "none"
    if isinstance(value, int) and "ytes" in about and value % 1024 == 0:
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value >= size and value % size == 0:
                return f"{value // size:,} {unit}"
    return f"{value:,}" if isinstance(value, int) and value < 10**13 else f"{value:g}"
