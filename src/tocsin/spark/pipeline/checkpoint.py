"""The checkpoint of detection: Spark's own, and beside it what must not change while it lives.

    <directory>/detect/about.json     writer, journal, where it began, how many buckets
    <directory>/detect/spark/…        Spark's: offsets, commits, state

Its writer is made up with it: by that name the node knows which batches it has stored. A checkpoint that is lost or
removed is no loss: detection begins again where its definitions begin, with another writer, and the node drops what was
told before (`node/beside.py`).
"""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path

import msgspec

from tocsin.errors import JournalError

__all__ = ["Checkpoint"]


class _About(msgspec.Struct):
    writer: str
    journal: str
    first: int
    buckets: int


class Checkpoint:
    """One checkpoint, new or old."""

    def __init__(self, directory: Path) -> None:
        """Name its place."""
        self._place = directory / "detect"
        self.spark = self._place / "spark"
        """For `checkpointLocation`."""

    @property
    def exists(self) -> bool:
        """Is there one?"""
        return self._place.exists()

    def begin(self, journal: str, first: int, buckets: int) -> None:
        """Make one: it begins at an offset of a journal."""
        self._place.mkdir(parents=True)
        about = _About(f"tocsin/pipeline/{secrets.token_hex(8)}", journal, first, buckets)
        (self._place / "about.new").write_bytes(msgspec.json.encode(about))
        (self._place / "about.new").replace(self._place / "about.json")

    def remove(self) -> None:
        """There is nothing left to look for."""
        shutil.rmtree(self._place, ignore_errors=True)

    def about(self, journal: str) -> _About:
        """What belongs to it.

        Raises:
            JournalError: it is damaged, or another journal's.
        """
        try:
            about = msgspec.json.decode((self._place / "about.json").read_bytes(), type=_About)
        except (OSError, msgspec.MsgspecError) as error:
            raise self.damaged(f"about.json: {error}") from None
        if about.journal != journal:
            raise JournalError(
                f"the checkpoint {self._place} belongs to another journal", path=str(self._place), help=self._help
            )
        for folder in ("offsets", "commits"):
            numbers = sorted(int(path.name) for path in self._logs(folder))
            for number in numbers[-2:]:  # Spark reads no others
                self._check(f"{folder}/{number}")
        return about

    def reached(self) -> int | None:
        """The offset at which the last batch that was done has ended; None: there was none."""
        done = [int(path.name) for path in self._logs("commits")]
        if not done:
            return None
        try:
            last = (self.spark / "offsets" / str(max(done))).read_text().splitlines()[-1]
            return int(json.loads(last)["offset"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.damaged(f"offsets/{max(done)}: {error!r}") from None

    def _logs(self, folder: str) -> list[Path]:
        place = self.spark / folder
        return [path for path in place.iterdir() if path.name.isdigit()] if place.exists() else []

    def _check(self, name: str) -> None:
        try:
            version, *lines = (self.spark / name).read_text().splitlines()
            if not version.startswith("v"):
                raise ValueError("it has no version")
            for line in lines:
                if line != "-":
                    json.loads(line)
            if not lines:
                raise ValueError("it is cut off")
        except (OSError, ValueError) as error:
            raise self.damaged(f"{name}: {error}") from None

    @property
    def _help(self) -> str:
        return (
            f"stop the node, remove {self._place}, and start it again: detection begins anew where its definitions "
            "begin, and tells nothing twice"
        )

    def damaged(self, what: str) -> JournalError:
        """The error for a checkpoint that cannot be used."""
        return JournalError(
            f"the pipeline's checkpoint {self._place} is damaged ({what})", path=str(self._place), help=self._help
        )
