"""`Filter`: one condition, ready to be asked. The face of this package for a single filter.

    text ─ language ─▶ syntax tree ─ normal ─▶ alternatives
                          │   └ evaluate ─▶ matches(event)
                          └ printer ─▶ str(f)      sparksql ─▶ f.sql()

A filter is immutable, hashable, safe to share between threads, and pickles as its text. Equal texts are parsed once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import msgspec

from tocsin.errors import FilterError, FilterLimitError
from tocsin.filters import destinations, paths, relations, sparksql
from tocsin.filters import limits as limits_module
from tocsin.filters.evaluate import Test, compile_condition
from tocsin.filters.language import parse
from tocsin.filters.limits import Limits
from tocsin.filters.normal import NormalForm, normalise
from tocsin.filters.printer import print_condition
from tocsin.filters.syntax import Condition
from tocsin.model import Event

__all__ = ["Filter"]


class _Compiled(msgspec.Struct, frozen=True):
    condition: Condition
    canonical: str
    form: NormalForm
    limits: Limits


@functools.lru_cache(maxsize=16_384)
def _compile(text: str, limits: Limits) -> _Compiled:
    condition = parse(_plain(text, limits), limits)
    try:
        form = normalise(condition, limits)
    except FilterLimitError as error:  # it knows the tree only
        raise FilterLimitError(error.message, limit=error.limit, text=text, position=0, help=error.help) from None
    return _Compiled(condition, print_condition(condition), form, limits)


def _plain(text: str, limits: Limits) -> str:
    """The text as a condition, where it is destinations or an XPath alone."""
    if destinations.is_destination(text):
        return destinations.filter_text(text)
    return paths.filter_text(text, limits) if paths.is_path(text) else text


class Filter:
    """A content filter, written as a boolean SQL expression with Spark SQL's meaning.

    Args:
        text: the condition, e.g. `"temp > 80 AND region IN ('eu', 'us')"`, or destinations: `"TAG:fire;USER:ann"`,
            or an XPath that begins with a slash, asked of the payload: `"//machine[@id='7']"`.
        limits: what it may cost; the defaults are generous.

    Raises:
        FilterError: the text is not in the language; `.position` says where.
    """

    __slots__ = ("_compiled", "_perfect", "_test", "_text")

    def __init__(self, text: str, *, limits: Limits = limits_module.DEFAULT) -> None:
        """Parse `text` (or find it among those parsed before)."""
        if not isinstance(text, str):
            raise FilterError(f"a filter is text, not {type(text).__name__}", help="write it as in 'temp > 80'")
        self._text = text
        self._perfect = True
        self._compiled = _compile(text, limits)
        self._test: Test | None = None

    @classmethod
    def merger(cls, text: str, limits: Limits, perfect: bool) -> Filter:
        """Make the result of a merge; see `perfect`."""
        made = cls(text, limits=limits)
        made._perfect = perfect
        return made

    @property
    def text(self) -> str:
        """The text it was made of."""
        return self._text

    @property
    def limits(self) -> Limits:
        """What it was allowed to cost."""
        return self._compiled.limits

    @property
    def perfect(self) -> bool:
        """False only for an imperfect merger: it accepts more than the filters it was made of."""
        return self._perfect

    @property
    def condition(self) -> Condition:
        """The syntax tree."""
        return self._compiled.condition

    @property
    def form(self) -> NormalForm:
        """The normal form: alternatives of tests."""
        return self._compiled.form

    def evaluate(self, event: Event) -> bool | None:
        """Return true, false, or None for NULL."""
        if self._test is None:
            self._test = compile_condition(self._compiled.condition)
        return self._test(event)

    def matches(self, event: Event) -> bool:
        """Is the filter true for this event?"""
        return self.evaluate(event) is True

    def covers(self, other: Filter) -> bool:
        """Does every event that `other` matches match this too? True is certain; False may mean 'cannot tell'."""
        return relations.covers(self.form, other.form)

    def identical(self, other: Filter) -> bool:
        """Do both match exactly the same events? True is certain."""
        return relations.identical(self.form, other.form)

    def overlaps(self, other: Filter) -> bool:
        """Is there an event that both match? True is certain: such an event was built and tried."""
        return relations.overlaps(self, other)

    def disjoint(self, other: Filter) -> bool:
        """Is there no event that both match? True is certain."""
        return relations.disjoint(self.form, other.form)

    def merge(self, other: Filter) -> Filter:
        """Return a filter that matches what either matches; `.perfect` is False if it may match more."""
        return relations.merge(self, other)

    def sql(self) -> str:
        """Return the condition as Spark SQL over the columns of the Tocsin source; see docs/FILTERS.md."""
        return sparksql.render(self._compiled.condition)

    def __str__(self) -> str:
        """Return the canonical text."""
        return self._compiled.canonical

    def __repr__(self) -> str:
        """Return a constructor call."""
        return f"Filter({self._compiled.canonical!r})"

    def __eq__(self, other: object) -> bool:
        """Equal means equal canonical text; `identical` compares meaning."""
        return isinstance(other, Filter) and self._compiled.canonical == other._compiled.canonical

    def __hash__(self) -> int:
        """Hash the canonical text."""
        return hash(self._compiled.canonical)

    def __reduce__(self) -> tuple[Callable[[str, Limits, bool], Filter], tuple[str, Limits, bool]]:
        """Pickle as the text it was given: the canonical one may be longer than the limits allow."""
        return (Filter.merger, (self._text, self.limits, self._perfect))
