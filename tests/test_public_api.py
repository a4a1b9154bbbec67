"""The names users may rely on. A change here is a change of the public surface: say so in CHANGELOG."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path

import pytest

import tocsin

PUBLIC = [
    "BadFiltersError",
    "BoundError",
    "Bus",
    "CancelError",
    "Change",
    "ConnectionLostError",
    "ConsumerError",
    "DefinitionError",
    "Delivery",
    "DeliveryError",
    "Detector",
    "Event",
    "EventError",
    "Filter",
    "FilterError",
    "FilterLimitError",
    "FilterSetError",
    "FilterTypeError",
    "ForbiddenError",
    "GroupError",
    "JournalDamagedError",
    "JournalError",
    "JournalFullError",
    "JournalLockedError",
    "LakeError",
    "Matcher",
    "MatcherError",
    "Message",
    "NetworkError",
    "NoServer",
    "NotAdvertisedError",
    "OptionError",
    "OverloadError",
    "PeerError",
    "ProtocolError",
    "ReplacedError",
    "Request",
    "RequestError",
    "RequestFailed",
    "RequestTimeout",
    "RuleDepthError",
    "RuleError",
    "Schema",
    "SchemaError",
    "ServerLost",
    "SessionError",
    "Subscription",
    "TocsinError",
    "TokenError",
    "TrimmedError",
    "UnauthorizedError",
    "UnknownEventError",
    "View",
    "WriterError",
    "__version__",
    "composite",
    "connect",
    "last",
    "retained",
    "since",
    "sync",
    "testing",
    "within",
]

EVENT_FIELDS = {
    "type": inspect.Parameter.empty,
    "source": inspect.Parameter.empty,
    "id": ...,  # made for the caller
    "subject": None,
    "time": None,
    "data": None,
    "datacontenttype": None,
    "attributes": ...,  # a new empty mapping
    "priority": 5,
    "ttl": None,
    "persistent": True,
    "ack": "none",
    "cancel": "originator",
    "correlation_id": None,
    "classification": "unclassified",
    "destination": None,
    "offset": None,
    "arrived": None,
}
"""Arguments of `Event` in their order, with their defaults; `...` stands for a default made per event."""


def test_public_names_are_the_agreed_ones_in_order() -> None:
    assert tocsin.__all__ == PUBLIC
    assert sorted(tocsin.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_explained(name: str) -> None:
    value = getattr(tocsin, name)
    if name != "__version__":
        assert (value.__doc__ or "").strip(), f"tocsin.{name} has no docstring"


def test_version_is_the_packages() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert tocsin.__version__ == project["version"]


def test_event_takes_its_fields_in_the_agreed_order() -> None:
    parameters = inspect.signature(tocsin.Event).parameters
    assert list(parameters) == list(EVENT_FIELDS)
    for name, default in EVENT_FIELDS.items():
        if default is ...:
            assert parameters[name].default is not inspect.Parameter.empty, f"{name} must be optional"
        else:
            assert parameters[name].default == default, name


def test_errors_descend_from_one() -> None:
    for name in PUBLIC:
        if name.endswith("Error"):
            assert issubclass(getattr(tocsin, name), tocsin.TocsinError)
