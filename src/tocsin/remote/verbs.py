"""The verbs of a remote bus that are about peers; see `tocsin.client.Bus` for what they mean and raise."""

from __future__ import annotations

from typing import Any

from tocsin.filters.filter import Filter
from tocsin.net import frames
from tocsin.net.protocol import MSGPACK
from tocsin.node.requests import TIMEOUT
from tocsin.node.serving import Handler
from tocsin.remote.groups import RemoteGroup
from tocsin.remote.peers import RemotePeers
from tocsin.remote.serving import RemoteServing
from tocsin.remote.watches import RemoteChanges, RemoteDemand

__all__ = ["PeerVerbs", "text_of_filter"]


class PeerVerbs:
    """A part of `RemoteBus`."""

    _peers: RemotePeers

    async def advertise(self, filter: str | Filter) -> None:
        """Say that you will publish events like this; it is withdrawn when the bus closes or is lost."""
        text = text_of_filter(filter)
        await self._say("advertise", text)
        self._peers.advertised[str(Filter(text))] = None

    async def unadvertise(self, filter: str | Filter) -> None:
        """Withdraw what you have advertised."""
        text = str(Filter(text_of_filter(filter)))
        self._peers.advertised.pop(text, None)
        await self._say("unadvertise", text)

    async def _say(self, verb: str, text: str) -> None:
        args = MSGPACK.value({"filter": text})
        await self._peers.link.ask(lambda n: frames.Call(n, verb, args))

    def resources(self, filter: str | Filter | None = None) -> RemoteChanges:
        """What is advertised and served: first what is there now, then every change, in order."""
        return self._peers.resources(str(Filter(text_of_filter(filter))) if filter is not None else None)

    async def demand(self, filter: str | Filter) -> RemoteDemand:
        """Does anybody want events like this? True or false, with names; `changed()` waits for others."""
        return await self._peers.demand(text_of_filter(filter))

    def serve(self, resource: str, handler: Handler) -> RemoteServing:
        """Answer requests for a resource: `async with bus.serve("params/m7", handler)`."""
        return RemoteServing(self._peers, resource, handler)

    async def request(self, resource: str, data: Any = None, *, timeout: float = TIMEOUT, policy: str = "one") -> Any:
        """Ask who serves a resource; returns the reply."""
        return await self._peers.request(resource, data, timeout, policy)

    def join(self, group: str) -> RemoteGroup:
        """Be a member of a group: `async with bus.join("line-7") as group`."""
        return RemoteGroup(self._peers, group)


def text_of_filter(filter: object) -> str:
    """The text of a filter; what is neither text nor a filter is refused as embedded."""
    return filter if isinstance(filter, str) else str(filter if isinstance(filter, Filter) else Filter(filter))  # type: ignore[arg-type]
