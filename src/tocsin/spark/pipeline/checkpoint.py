"""The checkpoint of a query: Spark's own, and beside it what must not change while it lives.

    <directory>/detect/about.json     writer, journal, where it began, how many buckets
    <directory>/detect/spark/…        Spark's: offsets, commits, state
    <directory>/detect.new, .old      one that is being made, or removed: whoever dies meanwhile leaves that

Its writer is made up with it: by that name the node knows which batches it has stored. A checkpoint that is lost or
removed is no loss: detection begins again where its definitions begin, with another writer, and the node drops what was
told before (`node/beside.py`). One whose `spark` was emptied by hand begins again too, so it gets another writer.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
from pathlib import Path
from typing import Any

import msgspec

from tocsin.errors import JournalError

__all__ = ["DETECT", "Checkpoint"]

DETECT = "detect"
"""The name of detection's checkpoint."""


class _About(msgspec.Struct):
    writer: str
    journal: str
    first: int
    buckets: int


def _writer() -> str:
    return f"tocsin/pipeline/{secrets.token_hex(8)}"


class Checkpoint:
    """One checkpoint, new or old."""

    def __init__(self, directory: Path, name: str = DETECT) -> None:
        """Name its place, and what it is for."""
        self.place = directory / name
        """Its directory."""
        self._new, self._old = directory / f"{name}.new", directory / f"{name}.old"
        self.spark = self.place / "spark"
        """For `checkpointLocation`."""

    @property
    def exists(self) -> bool:
        """Is there one?"""
        return self.place.exists()

    def begin(self, journal: str, first: int, buckets: int) -> None:
        """Make one: it begins at an offset of a journal."""
        shutil.rmtree(self._new, ignore_errors=True)
        self._new.mkdir(parents=True)
        self._write(self._new, _About(_writer(), journal, first, buckets))
        self._new.rename(self.place)

    def remove(self) -> None:
        """There is nothing left to look for."""
        shutil.rmtree(self._old, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            self.place.rename(self._old)
        shutil.rmtree(self._old, ignore_errors=True)

    @staticmethod
    def _write(place: Path, about: _About) -> None:
        (place / "about.new").write_bytes(msgspec.json.encode(about))
        (place / "about.new").replace(place / "about.json")

    def about(self, journal: str) -> _About:
        """What belongs to it.

        Raises:
            JournalError: it is damaged, or another journal's.
        """
        try:
            about = msgspec.json.decode((self.place / "about.json").read_bytes(), type=_About)
        except (OSError, msgspec.MsgspecError) as error:
            raise self.damaged(f"about.json: {error}") from None
        if about.journal != journal:
            raise JournalError(
                f"the checkpoint {self.place} belongs to another journal", path=str(self.place), help=self._help
            )
        if not self._logs("offsets"):  # Spark numbers from 0; what the writer has told under these numbers was another
            about = msgspec.structs.replace(about, writer=_writer())
            self._write(self.place, about)
        else:
            self._check_metadata()
        for folder in ("offsets", "commits"):
            numbers = sorted(int(path.name) for path in self._logs(folder))
            for number in numbers[-2:]:  # Spark reads no others
                self._check(f"{folder}/{number}")
        return about

    def reached(self) -> int | None:
        """The offset at which the last batch that was done has ended; None: there was none."""
        done = [int(path.name) for path in self._logs("commits")]
        return int(self.end_of(max(done))["offset"]) if done else None

    def end_of(self, batch: int) -> dict[str, Any]:
        """Where a batch ends that was begun, as the source has it."""
        try:
            found: dict[str, Any] = json.loads((self.spark / "offsets" / str(batch)).read_text().splitlines()[-1])
            int(found["offset"])
            return found
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise self.damaged(f"offsets/{batch}: {error!r}") from None

    def least(self, field: str) -> int | None:
        """The smallest number that a field has in the ends of batches that Spark keeps; None: there are none such."""
        found: list[int] = []
        for path in self._logs("offsets"):
            try:
                value = self.end_of(int(path.name)).get(field)
            except JournalError:
                if path.exists():
                    raise
                continue  # Spark has removed it meanwhile
            if value is not None:
                found.append(value)
        return min(found, default=None)

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

    def _check_metadata(self) -> None:
        """Spark's own name for the query: without it, it goes on with nothing that it has written."""
        try:
            json.loads((self.spark / "metadata").read_text())["id"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self.damaged(f"metadata: {error!r}") from None

    @property
    def _help(self) -> str:
        what = "detection begins anew where its definitions begin, and tells nothing twice"
        if self.place.name != DETECT:
            what = "what was not matched yet is looked for by the node, and each event comes once"
        return f"stop the node, remove {self.place}, and start it again: {what}"

    def damaged(self, what: str) -> JournalError:
        """The error for a checkpoint that cannot be used."""
        return JournalError(
            f"the pipeline's checkpoint {self.place} is damaged ({what})", path=str(self.place), help=self._help
        )
