"""Errors ↔ wire: an error is the same embedded and remote.

On the wire it is `TocsinError.as_dict`, of a request with the replies that came; here it becomes the same class again,
with the same fields. What a class has beside them (a path, a holder) stays on the server and reads as unknown here.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from tocsin.errors import RequestError, TocsinError
from tocsin.net.frames import WireError

__all__ = ["from_wire", "to_wire"]

_UNKNOWN: Final[dict[str, Any]] = {
    "text": None,
    "path": None,
    "limit": "",
    "holder": "",
    "first": 0,
    "last": 0,
    "filters": (),
}


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
    kind = _classes().get(said.error, TocsinError)
    error = kind.__new__(kind)
    TocsinError.__init__(error, said.message, field=said.field, position=said.position, help=said.help)
    for each in kind.__mro__:  # what their constructors would have set
        if issubclass(each, TocsinError):
            for name in inspect.signature(each.__init__).parameters.keys() & _UNKNOWN.keys():
                setattr(error, name, _UNKNOWN[name])
    if isinstance(error, RequestError):
        error.replies = said.replies
    return error


def _classes() -> dict[str, type[TocsinError]]:
    """Every error of ours by name."""
    found: dict[str, type[TocsinError]] = {}
    kinds: list[type[TocsinError]] = [TocsinError]
    while kinds:
        kind = kinds.pop()
        if kind.__module__.startswith("tocsin."):
            found.setdefault(kind.__name__, kind)
        kinds += kind.__subclasses__()
    return found
