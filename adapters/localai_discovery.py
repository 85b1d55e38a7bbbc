"""Several LocalAIs behind one name: an address each, looked up at the start and then again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit, urlunsplit

import structlog

from contracts.config import NodeConfig
from contracts.node_facts import NodeWarning
from contracts.ports import Clock

_log = structlog.get_logger("headstart.discovery")

EVERY_S = 5.0
MAX_INSTANCES = 64

Resolve = Callable[[str, int], Sequence[str]]
"""Addresses of a host, sorted; none where nobody knows it."""

Look = Callable[[str, int], Awaitable[Sequence[str]]]
"""The same for who must not wait for it."""

Told = Callable[[tuple[NodeWarning, ...], float], None]
"""Takes what has changed, and how long it took to look."""


def addresses(host: str, port: int) -> tuple[str, ...]:
    """By the system's own resolver, which reads hosts files and name servers.

    Those of one family alone, since an instance may have one of each.
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        except OSError:
            continue
        return tuple(sorted({str(entry[4][0]) for entry in found}))[:MAX_INSTANCES]
    return ()


async def addresses_in_thread(host: str, port: int) -> Sequence[str]:
    """The same, while others go on."""
    return await asyncio.to_thread(addresses, host, port)


def instance_urls(url: str, resolve: Resolve = addresses) -> dict[str, str]:
    """The url of each instance by its address; none where nobody knows the name.

    An https address has none: its certificate is for the name.
    """
    parts = urlsplit(url)
    port = parts.port or 80
    if parts.scheme != "http":
        _log.warning("instances_not_looked_up", url=url, why="its certificate is for the name")
        return {}
    found = resolve(parts.hostname or "", port)
    if not found:
        _log.warning("instances_not_found", url=url)
    return {address: urlunsplit(parts._replace(netloc=_netloc(address, port))) for address in found}


class InstanceWatch:
    """Looks again every five seconds, and tells whether the instances are still the same.

    Parameters
    ----------
    running : sequence of NodeConfig
        Those that are used; of names that stand for none there is nothing to watch.
    told : callable
        Told after each look, with no warnings where nothing has changed.
    """

    def __init__(
        self,
        running: Sequence[NodeConfig],
        clock: Clock,
        told: Told,
        *,
        look: Look = addresses_in_thread,
        every_s: float = EVERY_S,
    ) -> None:
        self._running: dict[str, set[str]] = {}
        for node in running:
            if node.behind:
                self._running.setdefault(node.behind, set()).add(_host(node.url))
        self._clock = clock
        self._told = told
        self._look = look
        self._every_s = every_s
        self._last: tuple[NodeWarning, ...] = ()

    async def run(self) -> None:
        """Until cancelled; at once over where there is nothing to watch."""
        while self._running:
            began_s = self._clock.monotonic_s()
            warnings = [
                warning
                for name, known in self._running.items()
                for warning in await self._changed(name, known)
            ]
            took_s = (self._clock.monotonic_s() - began_s) / self._clock.scale
            self._tell(tuple(warnings), took_s)
            await self._clock.sleep(self._every_s)

    async def _changed(self, name: str, known: set[str]) -> list[NodeWarning]:
        parts = urlsplit(name)
        found = set(await self._look(parts.hostname or "", parts.port or 80))
        if not found:
            problem = "Nobody knows this name any more; its instances are used as they were."
            return [_warning("instances", f"{name}: none", problem)]
        came, went = sorted(found - known), sorted(known - found)
        said = []
        if came:
            said.append(_warning("instances_came", ", ".join(came), _CAME))
        if went:
            said.append(_warning("instances_went", ", ".join(went), _WENT))
        return said

    def _tell(self, warnings: tuple[NodeWarning, ...], took_s: float) -> None:
        if warnings != self._last:
            for warning in warnings:
                _log.warning("instances_changed", what=warning.setting, which=warning.value)
            if not warnings:
                _log.info("instances_as_before")
        self._last = warnings
        self._told(warnings, took_s)


_CAME = "Instances of LocalAI came behind its name, and get nothing to do yet."
_WENT = "Instances of LocalAI went from behind its name; they count as lost nodes."


def _warning(setting: str, value: str, problem: str) -> NodeWarning:
    return NodeWarning(
        setting=setting,
        value=value,
        problem=problem,
        remedy="Restart gateway and controller to take the instances as they are now.",
    )


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


def _netloc(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
