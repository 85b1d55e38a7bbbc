"""Calls to servers that callers name: never to addresses of our own network, unless allowed."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping

import aiohttp
from yarl import URL

from adapters.public_addresses import is_public
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
        connector = aiohttp.TCPConnector(
            resolver=aiohttp.ThreadedResolver(),
            socket_factory=None if self._allow_private else _public_socket,
        )
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
        except aiohttp.InvalidURL as error:
            raise Permanent("the webhook's URL cannot be called") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            refused = _refusal(error)
            if refused is not None:
                raise Permanent(str(refused)) from error
            raise Transient(f"the webhook did not answer: {type(error).__name__}") from error
        if status in _PASSING:
            raise Transient(f"the webhook answered {status}")
        if status not in _SUCCESS:
            raise Permanent(f"the webhook answered {status}")


def check_webhook(url: str, *, allow_private: bool) -> None:
    """Raise Invalid for what can be no webhook; names are judged when they are resolved."""
    if not url.isprintable() or " " in url:
        # The library would drop them without a word.
        raise Invalid("webhook: must hold no spaces and no control characters")
    try:
        # Read as it will be read when it is called: two parsers may see two hosts in one text.
        parts = URL(url)
    except (ValueError, TypeError, LookupError) as error:  # the library's own slips too
        raise Invalid("webhook: this is no URL") from error
    if parts.scheme not in ("http", "https") or not parts.host:
        raise Invalid("webhook: must be a URL that begins with http:// or https://")
    if parts.user is not None or parts.password is not None:
        raise Invalid("webhook: must hold no password")
    if allow_private or not _is_address(parts.host):
        return
    if not is_public(parts.host):
        raise Invalid(f"webhook: {parts.host} is no public address")


class _NotPublic(OSError):
    """What was to be called is in our own network."""


def _public_socket(info: aiohttp.AddrInfoType) -> socket.socket:
    """A socket for what is connected to: a name cannot change its mind in between."""
    family, kind, protocol, _, address = info
    if not is_public(str(address[0])):
        raise _NotPublic("the webhook leads to no public address")
    return socket.socket(family=family, type=kind, proto=protocol)


def _refusal(error: BaseException) -> BaseException | None:
    """Our own refusal below an error of the library."""
    seen: list[BaseException] = [error]
    while seen:
        one = seen.pop()
        if isinstance(one, _NotPublic):
            return one
        seen += [each for each in (one.__cause__, one.__context__) if each is not None]
        if isinstance(one, BaseExceptionGroup):
            seen += one.exceptions
    return None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
