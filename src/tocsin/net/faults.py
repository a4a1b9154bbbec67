"""Errors ↔ wire: an error is the same embedded and remote.

On the wire it is `TocsinError.as_dict`, of a request with the replies that came; here it becomes the same class again,
with the same fields. What a class has beside them (a path, a holder) stays on the server and reads as unknown here.
"""

from __future__ import annotations

import msgspec

from tocsin.errors import RequestError, TocsinError, from_dict
from tocsin.net.frames import WireError

__all__ = ["from_wire", "to_wire"]


def to_wire(error: BaseException) -> WireError:
    """An error as it is sent; of one that is not ours, nothing but that there was one."""
    if isinstance(error, TocsinError):
        said = error.as_dict()
        position = said["position"]
        return WireError(
            error=str(said["error"]),
            message=str(said["message"]),
            field=_text(said["field"]),
            position=position if isinstance(position, int) else None,
            help=_text(said["help"]),
            replies=list(error.replies) if isinstance(error, RequestError) else [],
        )
    return WireError("TocsinError", "the server has a defect, and has written it down", help="tell who runs it")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def from_wire(said: WireError) -> TocsinError:
    """The error that was sent: of its own class if it is known here, else a `TocsinError`."""
    error = from_dict(msgspec.structs.asdict(said))
    if isinstance(error, RequestError):
        error.replies = said.replies
    return error
