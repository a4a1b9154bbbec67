"""What happens to Markdown on its way to the site, and what the references make of docstrings."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tools import hooks
from tools.reference import configuration, markdown
from tools.reference.members import fields, signature


def shown(text: str, uri: str) -> str:
    page: Any = SimpleNamespace(file=SimpleNamespace(src_uri=uri))
    nothing: Any = None
    return hooks.on_page_markdown(text, page, nothing, nothing)


@pytest.mark.parametrize(
    ("uri", "written", "there"),
    [
        ("howto/past.md", "[a](../DELIVERY.md#the-past)", "[a](../DELIVERY.md#the-past)"),
        ("README.md", "[a](../ARCHITECTURE.md#layers)", "[a](project/ARCHITECTURE.md#layers)"),
        ("about/limits.md", "[a](../../README.md)", "[a](../project/README.md)"),
        ("project/README.md", "[a](docs/howto/past.md)", "[a](../howto/past.md)"),
        ("project/README.md", "[docs/](docs/README.md)", "[docs/](../README.md)"),
        ("project/README.md", "[a](benchmarks/rules.py)", "a"),
        ("project/README.md", "[a](https://example.org/b)", "[a](https://example.org/b)"),
        ("project/README.md", "![a](docs/figures/page.png)", "![a](../figures/page.png)"),
        ("FILTERS.md", "[a](#xpath)", "[a](#xpath)"),
        ("HTTP.md", "see `docs/CLIENTS.md`", "see [CLIENTS.md](CLIENTS.md)"),
        ("howto/past.md", "```python no-run\n[a](nowhere.md)\n```", "```python\n[a](nowhere.md)\n```"),
    ],
)
def test_links_and_fences(uri: str, written: str, there: str) -> None:
    assert shown(written, uri) == there


def test_a_link_to_nothing_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        shown("[a](gone/away.py)", "project/README.md")
    assert "gone/away.py, which does not exist" in caplog.text


def test_a_docstring_becomes_tables() -> None:
    text = """Do it.

    More of it.

    Args:
        first, second: two
            of them.
        rest: `a | b`.

    Raises:
        ValueError: it is wrong.
    """
    assert markdown.arguments(text) == {"first": "two of them.", "second": "two of them.", "rest": "`a | b`."}
    shown = markdown.docstring(text)
    assert shown.startswith("Do it.\n\nMore of it.\n\n| argument |")
    assert "| `rest` | `a \\| b`. |" in shown and "| `ValueError` | it is wrong. |" in shown


def test_a_signature_as_it_is_called() -> None:
    def call(self: object, a: int, *, b: str = "x", **rest: object) -> bool:
        """Nothing."""
        return bool(a)

    assert signature("call", call) == "call(a: int, *, b: str = 'x', **rest: object) -> bool"


def test_fields_are_read_with_their_explanations() -> None:
    class Limits:
        one: int = 3
        """How many."""
        _own: int = 4

    assert fields(Limits) == [("one", "int", "3", "How many.")]


def test_a_variable_that_nobody_explains_is_refused() -> None:
    with pytest.raises(LookupError, match="TOCSIN_URL"):
        configuration._all_are_known({"TOCSIN_PORT"})
