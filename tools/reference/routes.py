"""The HTTP routes, from the table that makes both the routes and the published OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterable

from tocsin.net.http.contract import Operation, Param
from tocsin.net.http.table import OPERATIONS
from tools.reference.markdown import table

__all__ = ["page"]


def page() -> str:
    """The page of the routes."""
    written = [
        "# HTTP routes\n",
        "Every route with its parameters, from the table that also makes `GET /openapi.json`. What they mean, which "
        "errors they answer with and what they may cost is in [HTTP](../HTTP.md). `WS /bus` is in "
        "[PROTOCOL](../PROTOCOL.md).\n",
        table(["route", ""], [(f"[`{_name(each)}`](#{_anchor(each)})", each.about) for each in OPERATIONS]),
    ]
    written += [_operation(each) for each in OPERATIONS]
    return "\n".join(written)


def _name(operation: Operation) -> str:
    return f"{operation.method} {operation.path.replace(':path', '')}"


def _anchor(operation: Operation) -> str:
    kept = "".join(each if each.isalnum() else "-" for each in operation.path.replace(":path", ""))
    return f"{operation.method.lower()}{kept}".rstrip("-")


def _operation(operation: Operation) -> str:
    written = [f"## {_name(operation)} {{ #{_anchor(operation)} }}\n", operation.about + "\n"]
    written.append(table(["query", "type", ""], map(_parameter, operation.query)))
    written.append(table(["header", "type", ""], map(_parameter, operation.headers)))
    if operation.takes:
        need = "" if operation.needs_body else " (may be left out)"
        written.append(f"Body{need}: {_kinds(operation.takes)}.\n")
    given = [(f"{status}", _kinds(kinds) or "nothing") for status, kinds in operation.gives.items()]
    written.append(table(["status", "content"], given))
    return "\n".join(part for part in written if part)


def _parameter(each: Param) -> tuple[str, str, str]:
    choices = " or ".join(f"`{choice}`" for choice in each.choices)
    least = f", at least {each.least}" if each.least is not None else ""
    return f"`{each.name}`", f"{choices or each.kind}{least}", each.about


def _kinds(kinds: Iterable[str]) -> str:
    return ", ".join(f"`{each}`" for each in kinds)
