"""How two filters relate: identical, covers, overlaps, disjoint, merge.

With N(F) for the events that F matches: F covers G iff N(F) ⊇ N(G); identical iff each covers the other; disjoint iff
N(F) and N(G) share nothing; overlaps iff they share something. A merger matches what either matches, and is *perfect*
if it matches nothing else.

Promised: a True is certain. Complete, that is False is certain too, for conjunctions of comparisons, IN, BETWEEN and
prefixes over names, whole numbers within ±2^53, and control characters left out. For all else (patterns, arithmetic,
field against field, many alternatives) False may mean "cannot tell"; `disjoint` and `overlaps` may then both be False.

The work is bounded: forms of very many alternatives are answered with False, never with minutes of search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tocsin.errors import FilterLimitError
from tocsin.filters import facts, intervals, syntax, unparse, values, witness
from tocsin.filters.intervals import Cuts
from tocsin.filters.normal import NULLNESS, REVERSED, Conjunction, Dimension, NormalForm, domain, join, meet
from tocsin.filters.printer import print_value
from tocsin.filters.syntax import Condition, Literal, Value

if TYPE_CHECKING:
    from tocsin.filters.filter import Filter

__all__ = ["MAX_ALTERNATIVES", "covers", "disjoint", "identical", "merge", "overlaps"]

MAX_ALTERNATIVES = 64
"""A merger of more alternatives than this is made imperfect."""
MAX_MERGED_TEXT = 32_768
"""So is one with a longer text."""

_MAX_PAIRS = 65_536  # pairs of alternatives looked at
_MAX_TRIES = 64  # pairs of alternatives for which a common event is looked for
_MAX_SPLITS = 256  # pieces an alternative is cut into when several alternatives cover it jointly


def covers(outer: NormalForm, inner: NormalForm) -> bool:
    """Does every event that matches `inner` match `outer`?"""
    if len(outer.alternatives) * len(inner.alternatives) > _MAX_PAIRS:
        return False
    terms: dict[str, Value] = {}
    for alternative in inner.alternatives:
        if any(_includes(wider, alternative) for wider in outer.alternatives):
            continue
        terms = terms or outer.terms | inner.terms
        if not _Cover(outer.alternatives, terms).holds(alternative):
            return False
    return True


def identical(left: NormalForm, right: NormalForm) -> bool:
    """Do both match exactly the same events?"""
    return left.key() == right.key() or (covers(left, right) and covers(right, left))


def disjoint(left: NormalForm, right: NormalForm) -> bool:
    """Is there no event that matches both?"""
    if len(left.alternatives) * len(right.alternatives) > _MAX_PAIRS:
        return False
    return next(_common(left, right), None) is None


def overlaps(left: Filter, right: Filter) -> bool:
    """Is there an event that matches both? Such an event is built and tried on both."""
    if len(left.form.alternatives) * len(right.form.alternatives) > _MAX_PAIRS:
        return False
    for tries, (known, terms) in enumerate(_common(left.form, right.form)):
        if witness.find(known, terms, (left, right)) is not None:
            return True
        if tries >= _MAX_TRIES:
            break
    return False


def merge(left: Filter, right: Filter) -> Filter:
    """Return a filter that matches what either matches.

    Where an exact one would be too large, it matches more, and `.perfect` is False.
    """
    if covers(left.form, right.form):
        return left
    if covers(right.form, left.form):
        return right
    given = [*left.form.alternatives, *right.form.alternatives]
    text = None
    if len(given) <= 2 * MAX_ALTERNATIVES:
        kept = _without_covered(_joined(given))
        if len(kept) <= MAX_ALTERNATIVES:
            form = NormalForm(tuple(kept), left.form.terms | right.form.terms)
            text = unparse.form_text(form) if len(kept) < len(given) else f"{left} OR {right}"
    perfect = left.perfect and right.perfect
    if text is not None and len(text) <= MAX_MERGED_TEXT:
        try:
            return _made(left, text, perfect)
        except FilterLimitError:
            pass
    try:
        return _made(left, unparse.conjunction_text(_hull(given)), perfect=False)
    except FilterLimitError:
        return _made(left, "TRUE", perfect=False)


def _made(like: Filter, text: str, perfect: bool) -> Filter:
    return type(like).merger(text, like.limits, perfect)


# -- covering


def _includes(outer: Conjunction, inner: Conjunction) -> bool:
    """The commonest case, and cheap: each test of `outer` is met by the same test of `inner`."""
    if not outer.residues.keys() <= inner.residues.keys():
        return False
    for dimension, cuts in outer.sets.items():
        have = inner.sets.get(dimension)
        if have is None or not intervals.is_subset(have, cuts):
            return False
    return True


class _Cover:
    """Is one alternative covered by several together? It is cut along their borders until each piece lies in one."""

    def __init__(self, outers: Iterable[Conjunction], terms: dict[str, Value]) -> None:
        self._outers = outers
        self._terms = dict(terms)
        self._fuel = _MAX_SPLITS

    def holds(self, inner: Conjunction) -> bool:
        self._fuel -= 1
        known = facts.enrich(inner, self._terms)
        if known is None:
            return True
        nearest: list[tuple[Dimension, Cuts]] = []
        for outer in self._outers:
            missing = self._missing(outer, known)
            if missing is None:
                continue
            if not missing:
                return True
            if not nearest or len(missing) < len(nearest):
                nearest = missing
        if not nearest or self._fuel < 0:
            return False
        dimension, cuts = nearest[0]
        bottom, top = domain(dimension.kind)
        pieces = (cuts, intervals.complement(cuts, bottom, top))
        return all(self.holds(_narrowed(known, dimension, piece)) for piece in pieces)

    def _missing(self, outer: Conjunction, known: Conjunction) -> list[tuple[Dimension, Cuts]] | None:
        """Tests of `outer` that only part of `known` meets; None if some test is met by nothing we can name."""
        missing: list[tuple[Dimension, Cuts]] = []
        for dimension, cuts in outer.sets.items():
            term, kind = dimension
            wanted = facts.settled(cuts) if kind in (values.TEXT, REVERSED) else cuts
            have = known.sets.get(dimension, (0, 2) if kind == NULLNESS else None)
            if have is not None and intervals.is_subset(have, wanted):
                continue
            if facts.true_at_points(known, self._terms[term], kind, cuts):
                continue
            if have is None or not intervals.intersect(have, wanted):
                return None
            missing.append((dimension, wanted))
        for text, residue in outer.residues.items():
            if text in known.residues or facts.true_at_points(known, residue) or _far_enough(residue, known):
                continue
            return None
        return missing


def _narrowed(known: Conjunction, dimension: Dimension, cuts: Cuts) -> Conjunction:
    have = known.sets.get(dimension)
    narrow = cuts if have is None else intervals.intersect(have, cuts)
    return Conjunction(known.sets | {dimension: narrow}, known.residues)


def _far_enough(residue: Condition, known: Conjunction) -> bool:
    """Is a comparison with a whole number beyond 2^53 implied by another such comparison?"""
    wanted = _far(residue)
    if wanted is None:
        return False
    term, (low, high), cuts = wanted
    for other in known.residues.values():
        have = _far(other)
        if (
            have is not None
            and have[0] == term
            and low <= have[1][0]
            and have[1][1] <= high
            and intervals.is_subset(have[2], cuts)
        ):
            return True
    return False


def _far(residue: Condition) -> tuple[str, tuple[float, float], Cuts] | None:
    """Term, range of whole numbers (exact) and set of doubles of `term op whole number`; None for other residues."""
    if not isinstance(residue, syntax.Compare) or not isinstance(residue.right, Literal) or residue.op == "<>":
        return None
    limit = residue.right.value
    if not isinstance(limit, int) or isinstance(limit, bool):
        return None
    key, (bottom, top) = intervals.number_key(float(limit)), domain(values.NUMBER)
    infinite = float("inf")
    whole, cuts = {
        "=": ((limit, limit), (key, key + 1)),
        ">": ((limit + 1, infinite), (key + 1, top)),
        ">=": ((limit, infinite), (key, top)),
        "<": ((-infinite, limit - 1), (bottom, key)),
        "<=": ((-infinite, limit), (bottom, key + 1)),
    }[residue.op]
    return print_value(residue.left), whole, cuts


# -- common events


def _common(left: NormalForm, right: NormalForm) -> Iterator[tuple[Conjunction, dict[str, Value]]]:
    """Pairs of alternatives that may have a common event, met and enriched, with their terms."""
    for one in left.alternatives:
        for other in right.alternatives:
            both = meet(one, other)
            if both is not None:
                terms = left.terms | right.terms
                known = facts.enrich(both, terms)
                if known is not None:
                    yield known, terms


# -- merging


def _joined(alternatives: list[Conjunction]) -> list[Conjunction]:
    """Join alternatives that differ in one dimension, until none do."""
    kept: list[Conjunction] = []
    waiting = list(alternatives)
    while waiting:
        one = waiting.pop(0)
        for place, other in enumerate(kept):
            joined = join(one, other)
            if joined is not None:
                del kept[place]
                waiting.insert(0, joined)
                break
        else:
            kept.append(one)
    return kept


def _without_covered(alternatives: list[Conjunction]) -> list[Conjunction]:
    kept: list[Conjunction] = []
    for place, one in enumerate(alternatives):
        others = [*kept, *alternatives[place + 1 :]]
        if not any(_includes(other, one) for other in others):
            kept.append(one)
    return kept


def _hull(alternatives: list[Conjunction]) -> Conjunction:
    """One conjunction around all: what they have in common, each set grown to hold every alternative's."""
    first, *rest = alternatives
    residues = {text: node for text, node in first.residues.items() if all(text in other.residues for other in rest)}
    sets: dict[Dimension, Cuts] = {}
    for dimension in first.sets:
        if all(dimension in other.sets for other in rest):
            cuts = intervals.union(*(other.sets[dimension] for other in alternatives))
            if len(cuts) > 2 * MAX_ALTERNATIVES:
                cuts = domain(dimension.kind) if dimension.kind == REVERSED else (cuts[0], cuts[-1])
            sets[dimension] = cuts
    return Conjunction(sets, residues)
