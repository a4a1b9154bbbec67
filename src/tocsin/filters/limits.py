"""What a filter may cost: one frozen value, every limit named.

The defaults hold for anyone; a server may hand tighter ones to a caller it trusts less.
"""

from __future__ import annotations

import msgspec

__all__ = ["DEFAULT", "Limits"]


class Limits(msgspec.Struct, frozen=True):
    """Limits on one filter; going over one raises `FilterLimitError` with that `limit` name."""

    length: int = 262_144
    """Characters of text. Room for an IN list of 10,000 items of 20 letters."""
    depth: int = 32
    """Nesting of brackets, functions and prefix operators. sqlglot takes about 20 Python frames per level of the
    1,000."""
    conjunctions: int = 1_024
    """Alternatives in the normal form: (a OR b) AND (c OR d) has four."""
    atoms: int = 65_536
    """Tests in the normal form, over all alternatives."""
    pattern: int = 4_096
    """Characters of one LIKE or RLIKE pattern or one XPath."""


DEFAULT = Limits()
