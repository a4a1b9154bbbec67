"""Which versions of which packages Tocsin needs on Spark's side, and whether they are here.

The ranges are those of `pyproject.toml`, read from the installed package; nothing is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

from tocsin.errors import SessionError

__all__ = ["Package", "check", "packages", "within"]

_BASE = ("pyarrow", "numpy")
"""Of what Tocsin needs everywhere, that which Spark's workers use too."""
_VITAL = ("pyspark", "pandas", "pyarrow")
"""Nothing runs on Spark without these."""
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?\s*(?P<range>[^;\[]*?)\s*(?:;\s*(?P<marker>.*))?$")
_BOUND = re.compile(r"(<=|>=|<|>|==)\s*([\d.]+)")


class Package(NamedTuple):
    """A package, as it should be and as it is."""

    name: str
    needed: str
    """Such as `>=4.3,<4.4`."""
    found: str | None
    """The installed version; None: not installed."""
    fits: bool


def packages() -> Iterator[Package]:
    """What Spark's side of Tocsin needs; nothing if Tocsin itself runs from a bare source tree."""
    try:
        lines = metadata.requires("tocsin") or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        if not (read := _REQUIREMENT.match(line)):
            continue
        name, bounds, marker = read["name"], read["range"], read["marker"] or ""
        if (name in _BASE and not marker) or re.search(r"""extra == ['"]spark['"]""", marker):
            found = _installed(name)
            yield Package(name, _in_order(bounds), found, found is not None and within(found, bounds))


def check() -> None:
    """Refuse to go on with packages that cannot work.

    Raises:
        SessionError: one is missing, too old or too new.
    """
    for package in packages():
        if package.name in _VITAL and not package.fits:
            there = f"is {package.found}" if package.found else "is not installed"
            raise SessionError(
                f"{package.name} {there}; Tocsin needs {package.needed}",
                help=f"pip install '{package.name}{package.needed}'",
            )


def within(version: str, bounds: str) -> bool:
    """Is a version in a range such as `>=4.3,<4.4`?"""
    here = _numbers(version)
    for sign, limit in _BOUND.findall(bounds):
        there = _numbers(limit)
        order = (here > there) - (here < there)
        if not {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0, "==": order == 0}[sign]:
            return False
    return True


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> list[int]:
    """The leading numbers of a version, without zeros at the end: `4.3.0.dev1` is [4, 3]."""
    numbers = [int(part) for part in re.match(r"[\d.]*", version)[0].split(".") if part]  # type: ignore[index]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def _in_order(bounds: str) -> str:
    """The lower bound first, as people write them."""
    return ",".join(sorted(filter(None, (part.strip() for part in bounds.split(","))), reverse=True))
