"""The frames of protocol 1, as values. docs/PROTOCOL.md says what they mean.

A frame is a map whose `op` says which of these it is. Fields that are not known are passed over, so that a newer side
may say more. `Raw` stands for what the codec of the connection writes and reads: an event, a value.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

__all__ = [
    "Bye",
    "Call",
    "ClientFrame",
    "Close",
    "Command",
    "Credit",
    "Deliver",
    "Done",
    "Ended",
    "Failed",
    "Hello",
    "Ping",
    "Pong",
    "Publish",
    "Recall",
    "Reclaim",
    "Return",
    "Seen",
    "ServerFrame",
    "Settle",
    "Subscribe",
    "Taken",
    "Trouble",
    "Watch",
    "Welcome",
    "WireError",
]

Number = Annotated[int, Meta(ge=0, le=2**53)]
"""What every language can count."""
Item = tuple[Number, Number, Number, Number, int, Raw]
"""Of a delivery: number, attempt, flags, offset, arrived (microseconds since 1970), event."""


class _Frame(Struct, tag_field="op", tag=str.lower, omit_defaults=True):
    pass


class WireError(Struct):
    """An error as `TocsinError.as_dict` has it."""

    error: str
    message: str
    field: str | None = None
    position: int | None = None
    help: str | None = None


# -- both ways


class Ping(_Frame):
    """Are you there? Everything that was sent before it is done with before it is answered."""

    n: Number = 0


class Pong(_Frame):
    """Yes. `now` is journal time, in microseconds since 1970; a client leaves it out."""

    n: Number = 0
    now: int = 0


class Bye(_Frame):
    """The end, and why: `closed`, `draining`, `replaced`, or what was broken."""

    reason: str = "closed"


# -- from the client


class Hello(_Frame):
    """The first frame: who speaks which version."""

    version: Number = 1
    name: str | None = None
    token: str | None = None
    options: dict[str, Any] = {}


class Publish(_Frame):
    """Store these events, all or none. Done: [[id, offset], …]."""

    n: Number
    events: list[Raw]


class Subscribe(_Frame):
    """Open a subscription under a number of the client's choice. Done: {id, consumer, start, seam, options}."""

    n: Number
    sub: Number
    filter: Any
    consumer: Any = None
    past: str | None = None
    options: dict[str, Any] = {}
    replay: bool = False
    system: bool = False
    credit: Number = 0
    ahead: bool = False


class Credit(_Frame):
    """So many deliveries (or items of a watch) more may be sent."""

    sub: Number
    n: Number


class Taken(_Frame):
    """Of what was sent ahead: these are in the application's hands now."""

    sub: Number
    items: list[Number]


class Return(_Frame):
    """Of what was sent ahead: these are not wanted, and wait again as if they had not been sent."""

    sub: Number
    items: list[Number]


class Settle(_Frame):
    """Settle deliveries of a subscription by their numbers; with `n` it is answered when that is stored.

    All of `ack` or none; of the others each is tried, and the first that failed is told.
    """

    sub: Number
    n: Number | None = None
    ack: list[Number] = []
    nak: list[tuple[Number, float]] = []
    term: list[tuple[Number, str]] = []
    extend: list[Number] = []


class Reclaim(_Frame):
    """Deliveries of an earlier connection, each as [offset, attempt], are still in hand.

    Done: their numbers on this connection; null: it is settled, or no longer kept.
    """

    n: Number
    sub: Number
    items: list[tuple[Number, Number]]


class Close(_Frame):
    """Close a subscription, or a watch."""

    n: Number
    sub: Number


class Call(_Frame):
    """Every other verb. Done: what the verb gives."""

    n: Number
    verb: str
    args: Raw


class Watch(_Frame):
    """Open a stream that is no subscription; `what` it shows has a name. Its number is one of subscriptions'."""

    n: Number
    sub: Number
    what: str
    args: Raw
    credit: Number = 0


# -- from the server


class Welcome(_Frame):
    """The answer to hello."""

    version: Number
    name: str
    session: str
    limits: dict[str, float]
    now: int


class Done(_Frame):
    """A command was carried out."""

    re: Number
    value: Raw


class Failed(_Frame):
    """A command was refused, or failed; `re` is left out if it is not known which."""

    error: WireError
    re: Number | None = None


class Deliver(_Frame):
    """Events for a subscription, at most as many as it has credit for. Flags: 1 replayed, 2 notice."""

    sub: Number
    items: list[Item]
    now: int = 0


class Recall(_Frame):
    """Of what was sent ahead: these are not to be handed out any more. What was taken already stays taken."""

    sub: Number
    items: list[Number]


class Trouble(_Frame):
    """Something could not be read for a subscription; it goes on."""

    sub: Number
    error: WireError


class Ended(_Frame):
    """A subscription or a watch has ended; there is nothing more from it."""

    sub: Number
    error: WireError | None = None


class Seen(_Frame):
    """Items of a watch, each with its number."""

    sub: Number
    items: list[tuple[Number, Raw]]


Command = Publish | Subscribe | Reclaim | Close | Call | Watch
"""What is always answered."""
ClientFrame = (
    Hello | Publish | Subscribe | Credit | Taken | Return | Settle | Reclaim | Close | Call | Watch | Ping | Pong | Bye
)
ServerFrame = Welcome | Done | Failed | Deliver | Recall | Trouble | Ended | Seen | Ping | Pong | Bye
