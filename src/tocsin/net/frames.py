"""The frames of protocol 1, as values. docs/PROTOCOL.md says what they mean.

A frame is a map whose `op` says which of these it is. Fields that are not known are passed over, so that a newer side
may say more. `Raw` stands for what the codec of the connection writes and reads: an event, a value.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from tocsin.net.parts import Frame, Item, Number, Said, Viewed, WireError

__all__ = [
    "Answer",
    "Asked",
    "Bye",
    "Call",
    "Cast",
    "ClientFrame",
    "Close",
    "Credit",
    "Deliver",
    "Done",
    "Drop",
    "Ended",
    "Fail",
    "Failed",
    "Grouped",
    "Hello",
    "Join",
    "Leave",
    "Opening",
    "Ping",
    "Pong",
    "Publish",
    "Recall",
    "Reclaim",
    "Request",
    "Return",
    "Said",
    "Seen",
    "Serve",
    "ServerFrame",
    "Settle",
    "Shared",
    "Subscribe",
    "Taken",
    "Trouble",
    "Viewed",
    "Want",
    "Watch",
    "Welcome",
    "WireError",
    "Withdraw",
]

# -- both ways


class Ping(Frame):
    """Are you there? Everything that was sent before it is done with before it is answered."""

    n: Number = 0


class Pong(Frame):
    """Yes. `now` is journal time, in microseconds since 1970; a client leaves it out."""

    n: Number = 0
    now: int = 0


class Bye(Frame):
    """The end, and why: `closed`, `draining`, `replaced`, or what was broken."""

    reason: str = "closed"


# -- from the client


class Hello(Frame):
    """The first frame: who speaks which version."""

    version: Number = 1
    name: str | None = None
    token: str | None = None
    options: dict[str, Any] = {}


class Publish(Frame):
    """Store these events, all or none. Done: [[id, offset], …].

    A `writer` numbers what it sends: a position that was stored once stores nothing again, and gets the same answer.
    """

    n: Number
    events: list[Raw]
    writer: str | None = None
    position: Number | None = None


class Subscribe(Frame):
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


class Credit(Frame):
    """So many deliveries (or items of a watch) more may be sent."""

    sub: Number
    n: Number


class Taken(Frame):
    """Of what was sent ahead: these are in the application's hands now."""

    sub: Number
    items: list[Number]


class Return(Frame):
    """Of what was sent ahead: these are not wanted, and wait again as if they had not been sent."""

    sub: Number
    items: list[Number]


class Want(Frame):
    """Somebody waits for the next delivery of a subscription that is shared, and there is none here."""

    sub: Number


class Settle(Frame):
    """Settle deliveries of a subscription by their numbers; with `n` it is answered when that is stored.

    All of `ack` or none; of the others each is tried, and the first that failed is told.
    """

    sub: Number
    n: Number | None = None
    ack: list[Number] = []
    nak: list[tuple[Number, float]] = []
    term: list[tuple[Number, str]] = []
    extend: list[Number] = []


class Reclaim(Frame):
    """Deliveries of an earlier connection, each as [offset, attempt], are still in hand.

    Done: their numbers on this connection; null: it is settled, or no longer kept.
    """

    n: Number
    sub: Number
    items: list[tuple[Number, Number]]


class Close(Frame):
    """Close a subscription, or a watch. With `undo`, be it as if the subscription had not been opened."""

    n: Number
    sub: Number
    undo: bool = False


class Call(Frame):
    """Every other verb. Done: what the verb gives."""

    n: Number
    verb: str
    args: Raw


class Watch(Frame):
    """Open a stream that is no subscription; `what` it shows has a name. Its number is one of subscriptions'."""

    n: Number
    sub: Number
    what: str
    args: Raw
    credit: Number = 0


class Serve(Frame):
    """Answer requests for a resource, under a number of the client's choice. Done: null, when everybody may know."""

    n: Number
    sub: Number
    resource: Any


class Answer(Frame):
    """The reply to a request that was asked."""

    sub: Number
    id: str
    data: Raw


class Fail(Frame):
    """A request that was asked has failed; whoever asked gets the message."""

    sub: Number
    id: str
    message: str


class Withdraw(Frame):
    """Serve no more: nothing new is asked. Done when what is in hand is answered, or its time is up.

    Without `drains` it is given up at once. It was served no more already: done.
    """

    n: Number
    sub: Number
    drains: bool = True


class Request(Frame):
    """Ask who serves a resource. Done: the reply, or with policy `all` the list of them."""

    n: Number
    resource: Any
    data: Raw
    timeout: Any = 30.0
    policy: Any = "one"


class Drop(Frame):
    """Nobody waits for the answer to this request any more: there is none."""

    n: Number


class Join(Frame):
    """Be a member of a group, under a number of the client's choice. Done: the view in which you are new.

    Who was a member on an earlier connection says what came last, and the last view: it gets what it has missed.
    """

    n: Number
    sub: Number
    group: Any
    credit: Number = 0
    after: Number = 0
    view: Number = 0


class Cast(Frame):
    """Say something to a group. Done: its offset. The same `id` again says it once."""

    n: Number
    sub: Number
    data: Raw
    id: str | None = None


class Leave(Frame):
    """Leave a group. Done when everybody may know."""

    n: Number
    sub: Number


# -- from the server


class Welcome(Frame):
    """The answer to hello."""

    version: Number
    name: str
    session: str
    limits: dict[str, float]
    now: int


class Done(Frame):
    """A command was carried out."""

    re: Number
    value: Raw


class Failed(Frame):
    """A command was refused, or failed; `re` is left out if it is not known which."""

    error: WireError
    re: Number | None = None


class Deliver(Frame):
    """Events for a subscription, at most as many as it has credit for. Flags: 1 replayed, 2 notice.

    Of a consumer that is not durable, `low` is the lowest offset that waits and was not sent.
    """

    sub: Number
    items: list[Item]
    now: int = 0
    low: Number = 0


class Recall(Frame):
    """Of what was sent ahead: these are not to be handed out any more.

    With `ask`, those that were not handed out already are to be answered by `return`, for somebody who waits.
    """

    sub: Number
    items: list[Number]
    ask: bool = False


class Shared(Frame):
    """Others get of the same: say `want` from now on when somebody waits and there is nothing."""

    sub: Number


class Trouble(Frame):
    """Something could not be read for a subscription; it goes on."""

    sub: Number
    error: WireError


class Ended(Frame):
    """A subscription or a watch has ended; there is nothing more from it."""

    sub: Number
    error: WireError | None = None


class Seen(Frame):
    """Items of a watch, each with its number."""

    sub: Number
    items: list[tuple[Number, Raw]]


class Asked(Frame):
    """Requests to answer, each as id, sender, attempt, data. At most 1,000 are in hand."""

    sub: Number
    items: list[tuple[str, str, Number, Raw]]


class Grouped(Frame):
    """Views and messages of a group, at most as many as there is credit for; `view` is the one that holds now."""

    sub: Number
    items: list[Viewed | Said] = []
    view: Viewed | None = None


Opening = Subscribe | Watch | Serve | Join
"""What opens something under a number of the client's choice."""
_Asking = Publish | Subscribe | Reclaim | Close | Call | Watch | Serve | Withdraw | Request | Join | Cast | Leave
_Telling = Hello | Credit | Taken | Return | Want | Settle | Answer | Fail | Drop | Ping | Pong | Bye
ClientFrame = _Asking | _Telling
_Streaming = Deliver | Recall | Shared | Trouble | Ended | Seen | Asked | Grouped
ServerFrame = Welcome | Done | Failed | _Streaming | Ping | Pong | Bye
