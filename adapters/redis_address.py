"""Addresses of Redis: one server, or the sentinels that know which one leads.

``redis://user:password@host:6379/0``, ``rediss://…`` (TLS) and ``unix:///path`` are redis-py's own.
``redis+sentinel://user:password@host1:26379,host2:26379/service/0`` names sentinels and the service
that they watch; ``rediss+sentinel://…`` does so over TLS. What is said of the connection (TLS, its
files, the password) holds for both hops, unless ``sentinel_username`` and ``sentinel_password`` say
otherwise of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

_SCHEMES = {"redis+sentinel": False, "rediss+sentinel": True}
_SENTINEL_PORT = 26379
_TLS_FILES = frozenset({"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"})
_TLS_CHECKS = {"ssl_cert_reqs": frozenset({"none", "optional", "required"})}
_OWN = frozenset({"sentinel_username", "sentinel_password"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelAddress:
    """Sentinels, and what they are asked for.

    Attributes
    ----------
    sentinels : tuple of (str, int)
        Host and port of each.
    service : str
        The name under which they watch the server.
    data, asking : mapping
        redis-py's arguments for connections to the server, and to the sentinels.
    """

    sentinels: tuple[tuple[str, int], ...]
    service: str
    data: Mapping[str, Any] = field(repr=False)
    asking: Mapping[str, Any] = field(repr=False)


def sentinel_address(url: str) -> SentinelAddress | None:
    """What ``url`` says, None where it is of another kind.

    Raises
    ------
    ValueError
        It names sentinels, but not as it should. The message repeats no password.
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        return None
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("the name of the service is missing: write …:26379/mymaster/0")
    if database and not database.isdigit():
        raise ValueError(f"the database is a number, not {database!r}")
    options = _options(parts)
    tls = {name: value for name, value in options.items() if name not in _OWN}
    shared = {"ssl": True, **tls} if _SCHEMES[parts.scheme] else {}
    if tls and not shared:
        raise ValueError(f"{next(iter(tls))} needs rediss+sentinel://")
    username, password = _credentials(parts)
    return SentinelAddress(
        sentinels=tuple(_place(one) for one in parts.netloc.rpartition("@")[2].split(",")),
        service=unquote(service),
        data={"username": username, "password": password, "db": int(database or 0), **shared},
        asking={
            "username": options.get("sentinel_username", username),
            "password": options.get("sentinel_password", password),
            **shared,
        },
    )


def _options(parts: SplitResult) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name, value in options.items():
        allowed = _TLS_CHECKS.get(name)
        if allowed is not None and value not in allowed:
            raise ValueError(f"{name} is one of {', '.join(sorted(allowed))}")
        if allowed is None and name not in _TLS_FILES | _OWN:
            known = ", ".join(sorted(_TLS_FILES | _OWN | set(_TLS_CHECKS)))
            raise ValueError(f"{name} is not known here; what is: {known}")
    return options


def _credentials(parts: SplitResult) -> tuple[str | None, str | None]:
    credentials, at, _ = parts.netloc.rpartition("@")
    if not at:
        return None, None
    username, _, password = credentials.partition(":")
    return unquote(username) or None, unquote(password) or None


def _place(text: str) -> tuple[str, int]:
    place = urlsplit(f"//{text}")
    port = place.port  # raises ValueError when it is none
    if not place.hostname or port == 0:
        raise ValueError(f"{text!r} is no host of a sentinel")
    return place.hostname, port or _SENTINEL_PORT
