"""The published description (OpenAPI 3.1), made from the table that makes the routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tocsin.net.http.contract import JSON, Operation, Param

__all__ = ["describe"]

_PLACE: Final = re.compile(r"\{(\w+)(?::path)?\}")
_ERROR: Final = {
    "type": "object",
    "required": ["error", "message", "field", "position", "help"],
    "properties": {
        "error": {"type": "string", "description": "Its class."},
        "message": {"type": "string"},
        "field": {"type": ["string", "null"]},
        "position": {"type": ["integer", "null"]},
        "help": {"type": ["string", "null"], "description": "What to do instead."},
    },
}


def describe(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole description."""
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        paths.setdefault(_PLACE.sub(r"{\1}", each.path), {})[each.method.lower()] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tocsin", "version": "1", "description": "Event notification. See docs/HTTP.md."},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    places = [Param(name, "") for name in _PLACE.findall(operation.path)]
    said: dict[str, Any] = {
        "summary": operation.about,
        "operationId": f"{operation.method.lower()}{_PLACE.sub('', operation.path).replace('/', '_')}",
        "parameters": [
            *(_parameter(each, "path") for each in places),
            *(_parameter(each, "query") for each in operation.query),
            *(_parameter(each, "header") for each in operation.headers),
        ],
        "responses": {
            **{str(status): _answer(content) for status, content in operation.gives.items()},
            "default": {
                "description": "It was refused.",
                "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
        "security": [{}] if operation.is_open else [{}, {"token": []}],
    }
    if operation.takes:
        said["requestBody"] = {"required": operation.needs_body, "content": _content(operation.takes)}
    return said


def _parameter(param: Param, where: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": param.kind}
    if param.choices:
        schema["enum"] = list(param.choices)
    if param.kind in ("integer", "number"):
        schema["minimum"] = param.least or 0
        if param.most is not None:
            schema["maximum"] = param.most
    if where == "path":
        schema["minLength"] = 1
    return {
        "name": param.name,
        "in": where,
        "required": where == "path" or param.needed,
        "description": param.about,
        "schema": schema,
    }


def _answer(content: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"description": "It was done."}
    return {**found, "content": _content(content)} if content else found


def _content(content: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: {"schema": schema} for kind, schema in content.items()}
