"""References made from the code: what a module promises in its docstrings, options and tables, as Markdown pages.

They are made while the site is built (`tools/hooks.py`) and are not committed. A committed copy would have to be made
anew with every change of an option or a route, by whoever makes it, and every two branches would meet in it.
"""

from __future__ import annotations

from collections.abc import Callable

from tools.reference import commands, configuration, measured, metrics, python, routes

__all__ = ["PAGES"]

PAGES: dict[str, Callable[[], str]] = {
    "reference/python.md": python.bus,
    "reference/pieces.md": python.pieces,
    "reference/rules.md": python.rules,
    "reference/spark.md": python.spark,
    "reference/cli.md": commands.page,
    "reference/http.md": routes.page,
    "reference/metrics.md": metrics.page,
    "reference/configuration.md": configuration.page,
    "reference/measured.md": measured.page,
}
"""The pages, and who makes each."""
