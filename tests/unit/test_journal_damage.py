"""One changed byte anywhere in the file: never a hang, never a foreign error, never events that were not written."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tocsin import Event
from tocsin.errors import TocsinError
from tocsin.journal.check import check
from tocsin.journal.repair import repair
from tocsin.journal.sqlite import SqliteJournal

ROOT = 2 * 4096
"""Page 3 is the root of `blocks`: its first bytes say where rows lie, and in which order."""
KNOWN = [(ROOT + 10, 0), (ROOT + 14, 5), (ROOT + 8, 0), (ROOT + 3, 1), (ROOT + 18, 0), (4061, 170), (3749, 128)]
"""Changes that once made `check` walk in a circle, or raised TypeError and UnicodeDecodeError."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "journal.db"
    with SqliteJournal(path, merge=False) as journal:
        for n in range(6):
            journal.append([Event("t", "s", str(n), time="2026-01-01T00:00:00Z")])
    return path.read_bytes()


def changed(sound: bytes, at: int, value: int, directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    raw = bytearray(sound)
    raw[at] = value
    path = directory / "journal.db"
    path.write_bytes(raw)
    return path


def try_everything(sound: bytes, at: int, value: int, directory: Path) -> None:
    ids = {str(n) for n in range(6)}
    for open_it in (check, repair, lambda path: SqliteJournal(path).close()):
        try:
            open_it(changed(sound, at, value, directory))
        except TocsinError:
            continue
    try:
        with SqliteJournal(changed(sound, at, value, directory)) as journal:
            assert {event.id for block in journal.blocks() for event in block.events()} <= ids
    except TocsinError:
        return


@pytest.mark.parametrize(("at", "value"), KNOWN)
@pytest.mark.timeout(20)
def test_known_damage(sound: bytes, at: int, value: int, tmp_path: Path) -> None:
    try_everything(sound, at, value, tmp_path / "j")


@pytest.mark.timeout(60)
def test_random_damage(sound: bytes, tmp_path: Path) -> None:
    draw = random.Random(7)
    for _ in range(60):
        at = draw.choice([ROOT + draw.randrange(60), draw.randrange(100, len(sound))])
        try_everything(sound, at, draw.randrange(256), tmp_path / "j")
