"""Data of the shape the thesis measured with (cloud.md section 4): sensor files of OpenSense, made up and seeded.

    carbon-monoxide 76 × 5 · ozone 909 × 10 · schimmelstrasse 919 × 5 · stampfenbachstrasse 919 × 5
    ultrafine-particles 808 × 10, many missing

The real files are not in the thesis. Ours have its numbers of rows and sensors; the values are smooth random walks with
the level and the skew of such a pollutant, rounded to the declared step.

Where the thesis leaves room, we read it so:
    - A publication is one reading with the time of its row: two attributes. Each file has its own name for time.
    - A round takes one random row of each file, publishes every reading that is not missing, and ends with a `test`
      publication that carries the running count.
    - Subscriptions go round the files, so that any number of them has a fifth for each; of each file every fourth is on
      time, the others on a sensor. The operator is one of `< <= = >= >`, the value that of a random row.

Everything is a function of its arguments and the seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import NamedTuple

from tocsin.filters.reference import Domain
from tocsin.model import Event

__all__ = ["FILES", "OPERATORS", "SEED", "File", "domains", "publications", "rows", "subscriptions"]

SEED = 2017
START = 1_335_830_400  # 2012-05-01, when OpenSense's trams measured
OPERATORS = ("<", "<=", "=", ">=", ">")


class File(NamedTuple):
    """One sensor file: its size and what its sensors measure."""

    name: str
    rows: int
    sensors: tuple[str, ...]
    level: float
    """Median of the readings."""
    skew: float
    """How far apart low and high ones are: standard deviation of their logarithm."""
    top: float
    """Upper bound of the declared domain."""
    step: float
    interval: int
    """Seconds between rows."""
    missing: float = 0.0
    """Share of readings that are not there."""

    @property
    def time(self) -> str:
        """The attribute with the row's time, in whole seconds since 1970."""
        return f"{self.name}_time"


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}{index}" for index in range(1, count + 1))


def _station(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_{gas}" for gas in ("o3", "co", "no", "nox", "no2"))


FILES = (
    File("carbon_monoxide", 76, _numbered("co", 5), 0.6, 0.5, 50, 0.01, 60),
    File("ozone", 909, _numbered("ozone", 10), 30, 0.6, 200, 0.001, 60),
    File("schimmelstrasse", 919, _station("schimmelstrasse"), 25, 0.7, 500, 0.01, 1800),
    File("stampfenbachstrasse", 919, _station("stampfenbachstrasse"), 22, 0.7, 500, 0.01, 1800),
    File("ultrafine_particles", 808, _numbered("ufp", 10), 12_000, 0.8, 500_000, 1, 60, missing=0.6),
)


@cache
def rows(file: File, seed: int = SEED) -> list[tuple[int, tuple[float | None, ...]]]:
    """All rows of a file: time, then one reading for each sensor; None where it is missing."""
    rng = random.Random(f"{seed} rows {file.name}")
    offsets = [rng.gauss(0, 0.2) for _ in file.sensors]  # sensors are never calibrated quite alike
    digits = max(0, round(-math.log10(file.step)))
    found = []
    moment, walk = START, 0.0
    for _ in range(file.rows):
        moment += round(file.interval * rng.uniform(0.9, 1.1))
        walk = 0.95 * walk + rng.gauss(0, file.skew * math.sqrt(1 - 0.95**2))
        readings: list[float | None] = []
        for offset in offsets:
            value = file.level * math.exp(walk + offset + rng.gauss(0, 0.1))
            readings.append(None if rng.random() < file.missing else round(min(value, file.top), digits))
        found.append((moment, tuple(readings)))
    return found


def domains(seed: int = SEED) -> list[Domain]:
    """What the thesis declares in its `.attributes` file: `ozone4#0:200:0.001` and the like."""
    found = []
    for file in FILES:
        found += [Domain(sensor, 0, file.top, file.step) for sensor in file.sensors]
        moments = [moment for moment, _ in rows(file, seed)]
        found.append(Domain(file.time, min(moments), max(moments), 1))
    return [*found, Domain("test", 0, 10_000_000, 1)]


def publications(count: int, seed: int = SEED) -> list[Event]:
    """The first `count` publications."""
    return list(islice(_publications(seed), count))


def _publications(seed: int) -> Iterator[Event]:
    rng = random.Random(f"{seed} publications")
    published = 0
    while True:
        for file in FILES:
            moment, readings = rng.choice(rows(file, seed))
            for sensor, reading in zip(file.sensors, readings, strict=True):
                if reading is not None:
                    published += 1
                    yield Event(
                        "reading", file.name, id=str(published), attributes={sensor: reading, file.time: moment}
                    )
        published += 1
        yield Event("test", "publisher", id=str(published), attributes={"test": published})


def subscriptions(count: int, seed: int = SEED, operators: tuple[str, ...] = OPERATORS) -> list[str]:
    """The texts of the first `count` subscriptions; each is one triplet with one of the operators."""
    rng = random.Random(f"{seed} subscriptions")
    texts = []
    for number in range(count):
        file = FILES[number % len(FILES)]
        operator = rng.choice(operators)
        if number // len(FILES) % 4 == 3:
            moment, _ = rng.choice(rows(file, seed))
            texts.append(f"{file.time} {operator} {moment}")
            continue
        reading = None
        while reading is None:
            _, readings = rng.choice(rows(file, seed))
            column = rng.randrange(len(readings))
            reading = readings[column]
        texts.append(f"{file.sensors[column]} {operator} {reading}")
    return texts
