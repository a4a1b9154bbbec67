"""What rules and agents ask of a bus: a few of its verbs. Whatever has them will do, wherever the node is."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from tocsin.errors import DefinitionError
from tocsin.filters.printer import print_scalar
from tocsin.model import Event

__all__ = [
    "BusLike",
    "DeliveryLike",
    "SubscriptionLike",
    "composite_name",
    "composites_in",
    "forsake",
    "named",
]

_PREFIX: Final = "on.h"
_NAMED: Final = re.compile(r"type = '(on\.h[0-9a-f]+)'")


class DeliveryLike(Protocol):
    """An event in hand."""

    event: Event
    attempt: int
    notice: bool

    async def ack(self) -> None:
        """Settle it."""

    async def nak(self, delay: float = 0) -> None:
        """Let it come again."""

    async def term(self, reason: str = "") -> None:
        """Give it up."""

    async def in_progress(self) -> None:
        """Ask for more time."""


class SubscriptionLike(Protocol):
    """Events as they come."""

    id: str

    def poll(self) -> DeliveryLike | None:
        """The next one if there is one."""

    async def next(self) -> DeliveryLike:
        """Wait for the next one."""

    async def close(self) -> None:
        """Stop receiving."""


class _Info(Protocol):
    @property
    def name(self) -> str: ...


class _Consumer(_Info, Protocol):
    @property
    def subscriptions(self) -> list[tuple[str, str]]: ...


class _Definition(_Info, Protocol):
    @property
    def text(self) -> str: ...

    @property
    def context(self) -> str: ...


class _Alert(Protocol):
    @property
    def event(self) -> Event: ...


class BusLike(Protocol):
    """See `tocsin.Bus` for what the verbs mean."""

    name: str

    async def publish(self, event: Event) -> Any:
        """Publish an event."""

    async def publish_many(self, events: Iterable[Event]) -> Any:
        """Publish events together."""

    async def cancel(self, id: str, source: str | None = None) -> None:
        """Withdraw an event."""

    async def alerts(self) -> Sequence[_Alert]:
        """Live alerts."""

    async def subscribe(
        self,
        filter: str,
        consumer: str | None = None,
        past: Any = None,
        *,
        order: str = ...,
        ack_wait: float = ...,
    ) -> SubscriptionLike:
        """Say what you want to hear of."""

    async def unsubscribe(self, consumer: str, subscription: str) -> None:
        """Drop a subscription."""

    async def forget(self, consumer: str) -> None:
        """Drop a consumer."""

    async def consumers(self) -> Sequence[_Consumer]:
        """Every consumer."""

    async def define(self, name: str, text: str, context: str = "recent") -> Any:
        """Add a composite event; the same again changes nothing."""

    async def undefine(self, name: str) -> None:
        """Remove one."""

    async def definitions(self) -> Sequence[_Definition]:
        """All of them."""


def composite_name(text: str, context: str) -> str:
    """What a composite is called on a node: the same for everybody who asks for the same, so that they share it."""
    made = hashlib.blake2b(f"{context}\n{text}".encode(), digest_size=10)
    return _PREFIX + made.hexdigest()


def composites_in(filter: str) -> list[str]:
    """Which of them a filter is about."""
    return _NAMED.findall(filter)


def named(type: str) -> str:
    """The filter of events of a type."""
    return f"type = {print_scalar(type)}"


async def forsake(bus: BusLike, name: str) -> None:
    """Remove a composite from the node, unless a consumer hears it or others are made of it.

    Who wants one subscribes first and defines then. So somebody who comes at this moment is seen when we look again, or
    defines it after we have removed it.
    """
    known = next((each for each in await bus.definitions() if each.name == name), None)
    if known is None or await _is_heard(bus, name):
        return
    with contextlib.suppress(DefinitionError):  # others are made of it, or it is gone
        await bus.undefine(name)
    if await _is_heard(bus, name):
        await bus.define(name, known.text, context=known.context)


async def _is_heard(bus: BusLike, name: str) -> bool:
    text = named(name)
    return any(text in heard for info in await bus.consumers() for _, heard in info.subscriptions)
