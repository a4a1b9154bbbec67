"""HTTP: every route of docs/HTTP.md."""

from tocsin.net.http.front import Front
from tocsin.net.http.page import Files
from tocsin.net.http.upgraded import Upgraded, UpgradedWire, upgraded
from tocsin.net.http.wire import guarded, wire_of

__all__ = ["Files", "Front", "Upgraded", "UpgradedWire", "guarded", "upgraded", "wire_of"]
