"""Calls to servers that callers name: never to addresses of our own network, unless allowed."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from contracts.errors import Invalid, Permanent, Transient

_LIMIT_REAL_S = 10.0
_SUCCESS = range(200, 300)
_PASSING = frozenset({408, 425, 429, *range(500, 600)})


class HttpNotifier:
    """``contracts.ports.Notifier`` over aiohttp; follows no redirects.

    Parameters
    ----------
    allow_private : bool
        Whether addresses that are not public may be called: callers could else reach
        whatever our machine can, with its rights.
    """

    def __init__(self, *, allow_private: bool = False) -> None:
        self._allow_private = allow_private

    async def notify(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Post once; see the port."""
        check_webhook(url, allow_private=self._allow_private)
        resolver = aiohttp.ThreadedResolver() if self._allow_private else _PublicResolver()
        connector = aiohttp.TCPConnector(resolver=resolver)
        timeout = aiohttp.ClientTimeout(total=_LIMIT_REAL_S)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector, timeout=timeout, trust_env=False
                ) as session,
                session.post(
                    url, data=body, headers=dict(headers), allow_redirects=False
                ) as response,
            ):
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error.__cause__, _NotPublic):
                raise Permanent(str(error.__cause__)) from error
            raise Transient(f"the webhook did not answer: {type(error).__name__}") from error
        if status in _PASSING:
            raise Transient(f"the webhook answered {status}")
        if status not in _SUCCESS:
            raise Permanent(f"the webhook answered {status}")


def check_webhook(url: str, *, allow_private: bool) -> None:
    """Raise Invalid for what can be no webhook; names are judged when they are resolved."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise Invalid(f"webhook: no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise Invalid("webhook: must be a URL that begins with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise Invalid("webhook: must hold no password")
    if allow_private:
        return
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if not _is_public(str(address)):
        raise Invalid(f"webhook: {address} is no public address")


class _NotPublic(OSError):
    """A name that leads into our own network."""


class _PublicResolver(AbstractResolver):
    """Resolves names, and refuses those of addresses that are not public.

    What is checked is what is connected to: a name cannot change its mind in between.
    """

    def __init__(self) -> None:
        self._resolver = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for one in found:
            if not _is_public(one["host"]):
                raise _NotPublic(f"the webhook's name {host} leads to no public address")
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed.sixtofour or parsed
    return parsed.is_global and not parsed.is_multicast
