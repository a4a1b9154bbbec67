"""What the frames of protocol 1 are made of."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

__all__ = ["Frame", "Item", "Number", "Said", "Viewed", "WireError"]

Number = Annotated[int, Meta(ge=0, le=2**53)]
"""What every language can count."""
Item = tuple[Number, Number, Number, Number, int, Raw]
"""Of a delivery: number, attempt, flags, offset, arrived (microseconds since 1970), event."""


class Frame(Struct, tag_field="op", tag=str.lower, omit_defaults=True):
    """What every frame is."""


class WireError(Struct):
    """An error as `TocsinError.as_dict` has it; of a request also the replies that came."""

    error: str
    message: str
    field: str | None = None
    position: int | None = None
    help: str | None = None
    replies: list[Any] = []


class Viewed(Struct, tag_field="kind", tag="view"):
    """A view of a group, as a part of a frame."""

    offset: Number
    members: list[str]
    joined: list[str]
    left: list[str]


class Said(Struct, tag_field="kind", tag="message"):
    """A message to a group, as a part of a frame. It lies in the last view that came before it."""

    offset: Number
    sender: str
    data: Raw
