"""The production index: many filters, one question. `matcher` is the way in; ARCHITECTURE.md names the steps."""

from tocsin.filters.index.explain import Explanation
from tocsin.filters.index.matcher import Matcher

__all__ = ["Explanation", "Matcher"]
