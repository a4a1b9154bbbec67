"""What combinations of events mean: a language, an event graph, and a detector. Pure: no clock, no disk, no network."""

from tocsin.composite.builder import (
    Pattern,
    any_of,
    aperiodic,
    aperiodic_star,
    at,
    event,
    not_,
    periodic,
    periodic_star,
    plus,
    ref,
)
from tocsin.composite.detector import Detector
from tocsin.composite.explain import Explanation
from tocsin.composite.expression import Definition
from tocsin.composite.waiting import Waiting

__all__ = [
    "Definition",
    "Detector",
    "Explanation",
    "Pattern",
    "Waiting",
    "any_of",
    "aperiodic",
    "aperiodic_star",
    "at",
    "event",
    "not_",
    "periodic",
    "periodic_star",
    "plus",
    "ref",
]
