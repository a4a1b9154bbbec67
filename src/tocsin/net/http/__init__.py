"""HTTP: every route of docs/HTTP.md."""

from tocsin.net.http.front import Front
from tocsin.net.http.wire import Upgraded, guarded, wire_of

__all__ = ["Front", "Upgraded", "guarded", "wire_of"]
