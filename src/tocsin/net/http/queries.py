"""Queries: what stands behind the `?`, read by the kinds that the table gives. What is not in the table is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from starlette.requests import Request

from tocsin.errors import ProtocolError
from tocsin.model import MAX_INT
from tocsin.net.http.contract import Param

__all__ = ["LONGEST", "TOKEN", "parse"]

LONGEST: Final = 32_768
"""Characters that one value may have; the longest filter has fewer."""
TOKEN: Final = "token"
_WHOLE: Final = re.compile(r"[0-9]{1,19}")
_NUMBER: Final = re.compile(r"[0-9]{1,19}(\.[0-9]{1,19})?")
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


def parse(request: Request, params: Sequence[Param], *, token: bool = False) -> dict[str, Any]:
    """What a query says, by name; what it does not say is left out.

    Args:
        request: the request.
        params: what may be said.
        token: may the token be there? It is passed over here.

    Raises:
        ProtocolError: a name is not known, said twice or missing, or a value is not of its kind.
    """
    known = {param.name: param for param in params}
    found: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if token and name == TOKEN:
            continue
        param = known.get(name)
        if param is None:
            may = f"use {', '.join(known)}" if known else "leave it out"
            raise ProtocolError(f"there is no parameter {name[:64]!r}", field=name[:64], help=may)
        if name in found:
            raise ProtocolError(f"{name} is given twice", field=name, help="give it once")
        found[name] = _value(param, text)
    for param in params:
        if param.needed and param.name not in found:
            raise ProtocolError(f"{param.name} is not given", field=param.name, help=f"give it: ?{param.name}=…")
    return found


def _value(param: Param, text: str) -> Any:
    if len(text) > LONGEST:
        raise ProtocolError(f"{param.name} has {len(text):,} characters", field=param.name, help=f"up to {LONGEST:,}")
    value: Any = None
    if param.kind == "string":
        value = text if not param.choices or text in param.choices else None
    elif param.kind == "boolean":
        value = _FLAGS.get(text)
    elif param.kind == "integer" and _WHOLE.fullmatch(text):
        value = int(text) if (param.least or 0) <= int(text) <= (param.most or MAX_INT) else None
    elif param.kind == "number" and _NUMBER.fullmatch(text):
        value = float(text) if math.isfinite(float(text)) else None
    if value is None:
        raise ProtocolError(f"{param.name} is {text[:64]!r}", field=param.name, help=f"give {_wanted(param)}")
    return value


def _wanted(param: Param) -> str:
    if param.choices:
        return " or ".join(param.choices)
    if param.kind == "integer":
        return f"a whole number from {param.least or 0}" + (f" to {param.most:,}" if param.most is not None else "")
    return {"boolean": "true or false", "number": "a number from 0"}.get(param.kind, "text")
