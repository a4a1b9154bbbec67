"""What a class or function looks like to its user: signature, fields with their explanations, methods."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Field", "Named", "constants", "fields", "is_described", "methods", "signature"]

_WIDTH = 100
_SHOWN = {"__aenter__", "__enter__", "__aiter__", "__iter__", "__len__", "__contains__"}


class Field(NamedTuple):
    """A field of a class: its name, type and default as written, and the text below it."""

    name: str
    kind: str
    default: str
    about: str


class Named(NamedTuple):
    """A constant of a module that is explained by a text below it."""

    name: str
    value: Any
    about: str


def signature(name: str, value: Any) -> str:
    """How it is called, as Python; on several lines where one is too long."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    given = list(found.parameters.values())
    if given and given[0].name in ("self", "cls"):
        given = given[1:]
    parts, is_keyword = [], False
    for each in given:
        if each.kind is each.POSITIONAL_ONLY:
            each = each.replace(kind=each.POSITIONAL_OR_KEYWORD)
        if each.kind is each.KEYWORD_ONLY and not is_keyword:
            parts.append("*")
        is_keyword = is_keyword or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        parts.append(_parameter(each))
    result = "" if found.return_annotation in (inspect.Signature.empty, "None") else f" -> {_kind(found)}"
    word = "async " if inspect.iscoroutinefunction(value) else ""
    line = f"{word}{name}({', '.join(parts)}){result}"
    if len(line) <= _WIDTH:
        return line
    return f"{word}{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def _kind(found: inspect.Signature) -> str:
    return _text(found.return_annotation)


def _text(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.replace(" | UnsetType", "")


def _parameter(each: inspect.Parameter) -> str:
    star = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
    kind = "" if each.annotation is each.empty else f": {_text(each.annotation)}"
    if each.default is each.empty:
        return f"{star}{each.name}{kind}"
    shown = "…" if " at 0x" in repr(each.default) or repr(each.default).startswith("<") else repr(each.default)
    return f"{star}{each.name}{kind}{' = ' if kind else '='}{shown}"


def fields(cls: type) -> list[Field]:
    """The fields of a class that are annotated in its body, in order, without those of its own use."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: list[Field] = []
    for line, after in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        if line.target.id.startswith("_") or "ClassVar" in ast.unparse(line.annotation):
            continue
        default = "" if line.value is None else ast.unparse(line.value)
        found.append(Field(line.target.id, ast.unparse(line.annotation), default, _literal(after)))
    return found


def constants(module: Any) -> list[Named]:
    """The constants of a module that are explained."""
    tree = ast.parse(inspect.getsource(module)).body
    named = [(_target(line), _literal(after)) for line, after in zip(tree, tree[1:], strict=False)]
    return [Named(name, getattr(module, name), about) for name, about in named if name.isupper() and about]


def _target(line: ast.stmt) -> str:
    """The one name that a statement assigns to; nothing if it is another statement, or the name is private."""
    targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
    name = targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""
    return "" if name.startswith("_") else name


def _literal(line: ast.stmt | None) -> str:
    """The text that stands below a field."""
    if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str):
        return " ".join(line.value.value.split())
    return ""


def is_described(cls: type) -> bool:
    """Has it fields to be shown?"""
    try:
        return bool(fields(cls))
    except (OSError, TypeError, AssertionError):
        return False


def methods(cls: type) -> Iterator[tuple[str, Any, str]]:
    """Its public methods and properties, with those it inherits from us: name, function, `property` or nothing."""
    seen: set[str] = set()
    for owner in cls.__mro__:
        if not owner.__module__.startswith("tocsin"):
            continue
        for name, value in vars(owner).items():
            if name in seen or (name.startswith("_") and name not in _SHOWN):
                continue
            seen.add(name)
            if isinstance(value, property):
                yield name, value.fget, "property"
            elif isinstance(value, classmethod | staticmethod):
                yield name, value.__func__, ""
            elif inspect.isfunction(value):
                yield name, value, ""
