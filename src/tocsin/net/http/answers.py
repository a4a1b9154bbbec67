"""Answers: JSON, and errors with their status. This is the one place that says which error has which status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from tocsin import cloudevents, errors
from tocsin.errors import EventError, NetworkError, ProtocolError, TocsinError
from tocsin.model import Event
from tocsin.net.http.contract import JSON

__all__ = ["Refused", "as_json", "bare", "draining", "refusal", "reply", "status_of"]

_STATUS: Final[dict[type[TocsinError], int]] = {
    TocsinError: 400,
    errors.NotAdvertisedError: 409,
    errors.JournalError: 503,
    errors.TrimmedError: 410,
    errors.WriterError: 409,
    errors.SessionError: 503,
    errors.OverloadError: 429,
    errors.DeliveryError: 409,
    errors.UnknownEventError: 404,
    errors.CancelError: 403,
    errors.NoServer: 404,
    errors.RequestTimeout: 504,
    errors.RequestFailed: 502,
    errors.ServerLost: 502,
    errors.GroupError: 409,
    NetworkError: 503,
    errors.UnauthorizedError: 401,
    errors.ForbiddenError: 403,
    ProtocolError: 400,
    errors.ReplacedError: 409,
}
"""The nearest class above an error counts."""
_DEFECT: Final = TocsinError("the node has a defect, and has written it down", help="tell who runs it").as_dict()
_RETRY: Final = "1"  # seconds after which one may try again


class Refused(Exception):
    """An answer other than success whose status does not follow from the class of the error."""

    def __init__(self, status: int, error: TocsinError, headers: Mapping[str, str] | None = None) -> None:
        """Refuse with a status."""
        super().__init__(error.message)
        self.status, self.error, self.headers = status, error, dict(headers or {})


def draining() -> Refused:
    """The answer to what is new when the node leaves."""
    return Refused(503, NetworkError("the node is draining", help="connect again in a moment"))


def status_of(error: TocsinError) -> int:
    """The status of an error."""
    if isinstance(error, errors.UnknownEventError) and error.field == "source":
        return 409  # there are several
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, JSON)


def bare(headers: Mapping[str, str], form: str) -> Response:
    """The answer to HEAD where nobody knows how long a body would be."""
    found = Response(None, 200, headers, form)
    del found.headers["content-length"]
    return found


def refusal(error: Exception) -> Response:
    """An error as JSON; of one that is not ours, nothing but that there was one."""
    status, headers = 500, dict[str, str]()
    if isinstance(error, Refused):
        status, headers, error = error.status, dict(error.headers), error.error
    elif isinstance(error, TocsinError):
        status = status_of(error)
    if status in (429, 503):
        headers.setdefault("Retry-After", _RETRY)
    if status == 401:
        headers.setdefault("WWW-Authenticate", "Bearer")
    said: dict[str, Any] = error.as_dict() if isinstance(error, TocsinError) else dict(_DEFECT)
    if isinstance(error, errors.RequestError) and error.replies:
        said["replies"] = list(error.replies)
    return reply(said, status, headers)


def as_json(event: Event) -> bytes:
    """An event as a structured CloudEvent; attributes that JSON has no number for become text."""
    try:
        return cloudevents.to_json(event)
    except EventError:
        attributes = {name: _finite(value) for name, value in event.attributes.items()}
        return cloudevents.to_json(msgspec.structs.replace(event, attributes=attributes))


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
