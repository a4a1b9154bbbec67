"""Values of verbs on their way: arguments as they are sent, explanations as they come."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Raw

from tocsin.composite.explain import ExplainedPart, Explanation
from tocsin.composite.explain import Step as Operation
from tocsin.composite.language import parse
from tocsin.errors import ConsumerError, ProtocolError
from tocsin.net.protocol import MSGPACK
from tocsin.net.verbs import About

__all__ = ["WireExplained", "written"]


class _Rest(msgspec.Struct):
    """All of an explanation but its definition, in the same order."""

    key: dict[str, Any]
    time: Any
    parts: tuple[ExplainedPart, ...]
    steps: tuple[Operation, ...]
    completed_by: ExplainedPart | None
    missing: str
    span: timedelta | None
    within: timedelta | None
    certain: bool


class WireExplained(msgspec.Struct):
    """An explanation as it comes: its definition as text."""

    definition: About
    rest: _Rest

    def explanation(self) -> Explanation:
        """What it says."""
        made = self.definition
        definition = parse(made.name, made.text, made.context, made.semantics)
        definition = msgspec.structs.replace(definition, max_open=made.max_open)
        return Explanation(definition, *msgspec.structs.astuple(self.rest))


def written(arguments: dict[str, Any]) -> Raw:
    """Arguments as they are sent.

    Raises:
        ConsumerError: one of them cannot be; it is named.
    """
    for name, value in arguments.items():
        try:
            MSGPACK.value(value)
        except ProtocolError as error:
            raise ConsumerError(f"{name} is {value!r}", field=name, help=error.help) from None
    return MSGPACK.value(arguments)
