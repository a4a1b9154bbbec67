"""Tocsin: event notification for Python whose data pipeline runs on Spark. The whole public surface is on this page."""

from tocsin import sync, testing
from tocsin.client import Bus, connect
from tocsin.composite import Detector
from tocsin.delivery.handles import Delivery, Subscription
from tocsin.errors import (
    BadFiltersError,
    BoundError,
    CancelError,
    ConsumerError,
    DefinitionError,
    DeliveryError,
    EventError,
    FilterError,
    FilterLimitError,
    FilterSetError,
    FilterTypeError,
    JournalDamagedError,
    JournalError,
    JournalFullError,
    JournalLockedError,
    LakeError,
    MatcherError,
    OptionError,
    OverloadError,
    SchemaError,
    SessionError,
    TocsinError,
    TrimmedError,
    UnknownEventError,
    WriterError,
)
from tocsin.filters.filter import Filter
from tocsin.filters.index import Matcher
from tocsin.filters.schema import Schema
from tocsin.journal.bounds import last, retained, since, within
from tocsin.model import Event

__version__ = "0.1.0"

__all__ = [
    "BadFiltersError",
    "BoundError",
    "Bus",
    "CancelError",
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
    "JournalDamagedError",
    "JournalError",
    "JournalFullError",
    "JournalLockedError",
    "LakeError",
    "Matcher",
    "MatcherError",
    "OptionError",
    "OverloadError",
    "Schema",
    "SchemaError",
    "SessionError",
    "Subscription",
    "TocsinError",
    "TrimmedError",
    "UnknownEventError",
    "WriterError",
    "__version__",
    "connect",
    "last",
    "retained",
    "since",
    "sync",
    "testing",
    "within",
]
