"""What combinations of events mean: a language, an event graph, and a detector. Pure: no clock, no disk, no network."""

from tocsin.composite.detector import Detector
from tocsin.composite.expression import Definition

__all__ = ["Definition", "Detector"]
