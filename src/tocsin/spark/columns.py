"""The columns of events on Spark; the code is in `journal/columns.py`, since files of a lake have the same."""

from tocsin.journal.columns import SOURCE_ARROW, Columns, events, to_journal

__all__ = ["SOURCE_ARROW", "Columns", "events", "to_journal"]
