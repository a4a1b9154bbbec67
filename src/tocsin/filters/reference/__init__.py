"""Structures to compare the production index with: slow, readable, right. They share no code with it."""

from tocsin.filters.reference.betree import BETree
from tocsin.filters.reference.contract import ADDED, NOT_ADDED, NOT_REMOVED, REMOVED, Outcome, Structure
from tocsin.filters.reference.domains import Domain
from tocsin.filters.reference.forest import CoveringForest
from tocsin.filters.reference.scan import LinearScan
from tocsin.filters.reference.scores import Parameters

__all__ = [
    "ADDED",
    "NOT_ADDED",
    "NOT_REMOVED",
    "REMOVED",
    "BETree",
    "CoveringForest",
    "Domain",
    "LinearScan",
    "Outcome",
    "Parameters",
    "Structure",
]
