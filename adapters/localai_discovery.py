"""Several LocalAIs behind one name: who is there, by the system's resolver."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import structlog

from adapters.clock import DEVELOPMENT, ENVIRONMENT_VARIABLE
from contracts.config import NodeConfig
from contracts.ids import NodeId
from contracts.ports import Clock

_log = structlog.get_logger("headstart.discovery")

LIMIT_REAL_S = 10.0
"""A look-up that takes longer is not waited for; its answer counts when it comes."""

MAX_ADDRESSES = 1_024
HOSTS_VARIABLE = "HEADSTART_DEV_HOSTS"
"""A file as /etc/hosts, that names are looked up in instead. For development alone."""

Resolve = Callable[[str, int], Sequence[str] | None]
"""Addresses of a host, sorted; none where there is no such name; None where nobody could tell."""

Look = Callable[[], Awaitable[tuple[str, ...] | None]]
"""The same of one host, for who must not wait for it."""

_NOBODY = frozenset(
    getattr(socket, name, socket.EAI_NONAME)
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY", "EAI_FAMILY")
)
"""There is no such name, or none of the family that was asked for."""


def addresses(host: str, port: int) -> tuple[str, ...] | None:
    """By the system's own resolver, which reads hosts files and name servers.

    Those of one family alone, since an instance may have one of each: IPv6 counts where nobody
    has an address of the other, and not where that could not be told just now.
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno not in _NOBODY:
                return None
        except (OSError, UnicodeError):  # the latter for what no name can be
            return None
        else:
            return tuple(sorted({str(entry[4][0]) for entry in found}))[:MAX_ADDRESSES]
    return ()


def addresses_in(file: Path, host: str, _port: int) -> tuple[str, ...] | None:
    """By a file with lines as in /etc/hosts; None where it cannot be read."""
    try:
        lines = [line.partition("#")[0].split() for line in file.read_text().splitlines()]
    except OSError:
        return None
    return tuple(sorted({words[0] for words in lines if host in words[1:]}))


def resolver(environ: Mapping[str, str]) -> Resolve:
    """Who is asked: the system, unless a development setup names a file."""
    file = environ.get(HOSTS_VARIABLE, "")
    if file and environ.get(ENVIRONMENT_VARIABLE, "").strip() == DEVELOPMENT:
        return partial(addresses_in, Path(file))
    return addresses


def instance_urls(url: str, resolve: Resolve = addresses) -> dict[str, str]:
    """The url of each instance by its address; none where nobody knows the name.

    An https address has none: its certificate is for the name.
    """
    parts = urlsplit(url)
    if parts.scheme != "http":
        _log.warning("instances_not_looked_up", url=url, why="its certificate is for the name")
        return {}
    found = resolve(parts.hostname or "", parts.port or 80)
    if not found:
        _log.warning("instances_not_found", url=url)
    return {address: url_at(url, address) for address in found or ()}


def url_at(url: str, address: str) -> str:
    """The same url at one of the addresses of its name; empty: as it is.

    >>> url_at("http://localai:8080/base", "fd00::5")
    'http://[fd00::5]:8080/base'
    """
    if not address:
        return url
    parts = urlsplit(url)
    host = f"[{address}]" if ":" in address else address
    return urlunsplit(parts._replace(netloc=f"{host}:{parts.port or 80}"))


def address_of(node: NodeConfig) -> str:
    """The address of an instance; empty for one that is at the name itself."""
    return "" if node.url == node.behind else urlsplit(node.url).hostname or ""


def found_in(nodes: Sequence[NodeConfig]) -> dict[NodeId, str]:
    """Addresses of the instances among nodes."""
    return {node.node: address_of(node) for node in nodes if node.behind}


class NameWatch:
    """Looks one name up, in a thread, one look at a time.

    A name server that does not answer keeps its thread for as long as the system waits for it;
    no second one is asked meanwhile.
    """

    def __init__(self, url: str, clock: Clock, resolve: Resolve = addresses) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._clock = clock
        self._resolve = resolve
        self._looking: asyncio.Future[Sequence[str] | None] | None = None

    async def look(self) -> tuple[str, ...] | None:
        """The addresses; None: nobody could tell, or not in time."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(
                asyncio.to_thread(self._resolve, self._host, self._port)
            )
        try:
            async with self._clock.timeout(LIMIT_REAL_S * self._clock.scale):
                found = await asyncio.shield(self._looking)
        except TimeoutError:
            return None
        self._looking = None
        return None if found is None else tuple(found)
