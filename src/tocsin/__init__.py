"""Tocsin: event notification for Python whose data pipeline runs on Spark. The whole public surface is on this page."""

from tocsin.errors import (
    EventError,
    FilterError,
    FilterLimitError,
    FilterTypeError,
    MatcherError,
    SchemaError,
    TocsinError,
)
from tocsin.filters.filter import Filter
from tocsin.filters.index import Matcher
from tocsin.filters.schema import Schema
from tocsin.model import Event

__version__ = "0.1.0"

__all__ = [
    "Event",
    "EventError",
    "Filter",
    "FilterError",
    "FilterLimitError",
    "FilterTypeError",
    "Matcher",
    "MatcherError",
    "Schema",
    "SchemaError",
    "TocsinError",
    "__version__",
]
