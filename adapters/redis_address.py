"""Addresses of Redis: one server, the sentinels that know which one leads, or a cluster.

``redis://user:password@host:6379/0``, ``rediss://…`` (TLS) and ``unix:///path`` are redis-py's own.
``redis+sentinel://user:password@host1:26379,host2:26379/service/0`` names sentinels and the service
that they watch; ``rediss+sentinel://…`` does so over TLS. What is said of the connection (TLS, its
files, the password) holds for both hops, unless ``sentinel_username`` and ``sentinel_password`` say
otherwise of the first.

``redis+cluster://user:password@host1:6379,host2:6379`` names some nodes of a Redis Cluster, which
tell the others; ``rediss+cluster://…`` does so over TLS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

_SENTINELS = {"redis+sentinel": False, "rediss+sentinel": True}
_CLUSTERS = {"redis+cluster": False, "rediss+cluster": True}
_SENTINEL_PORT = 26379
_PORT = 6379
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
    parts = _split(url)
    if parts.scheme not in _SENTINELS:
        return None
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("the name of the service is missing: write …:26379/mymaster/0")
    if database and not database.isdigit():
        raise ValueError(f"the database is a number, not {database!r}")
    options = _options(parts, _OWN)
    shared = _tls(parts.scheme, options, over_tls=_SENTINELS[parts.scheme])
    username, password = _credentials(parts)
    return SentinelAddress(
        sentinels=_places(parts, _SENTINEL_PORT, "no host of a sentinel"),
        service=unquote(service),
        data={"username": username, "password": password, "db": int(database or 0), **shared},
        asking={
            "username": options.get("sentinel_username", username),
            "password": options.get("sentinel_password", password),
            **shared,
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """Some nodes of a cluster.

    Attributes
    ----------
    nodes : tuple of (str, int)
        Host and port of each.
    data : mapping
        redis-py's arguments for connections to every node.
    """

    nodes: tuple[tuple[str, int], ...]
    data: Mapping[str, Any] = field(repr=False)


def cluster_address(url: str) -> ClusterAddress | None:
    """What ``url`` says, None where it is of another kind.

    Raises
    ------
    ValueError
        It names a cluster, but not as it should. The message repeats no password.
    """
    parts = _split(url)
    if parts.scheme not in _CLUSTERS:
        return None
    if parts.path.strip("/") not in ("", "0"):
        raise ValueError("a cluster has database 0 alone: leave the path away")
    tls = _tls(parts.scheme, _options(parts, frozenset()), over_tls=_CLUSTERS[parts.scheme])
    username, password = _credentials(parts)
    return ClusterAddress(
        nodes=_places(parts, _PORT, "no host of a node"),
        data={"username": username, "password": password, **tls},
    )


def _split(url: str) -> SplitResult:
    """``urlsplit`` for several hosts: newer ones allow brackets around the only host alone."""
    scheme, _, rest = url.partition("://")
    netloc = re.split("[/?#]", rest, maxsplit=1)[0]
    return urlsplit(f"{scheme}://hosts{rest[len(netloc) :]}")._replace(netloc=netloc)


def _options(parts: SplitResult, own: frozenset[str]) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name, value in options.items():
        allowed = _TLS_CHECKS.get(name)
        if allowed is not None and value not in allowed:
            raise ValueError(f"{name} is one of {', '.join(sorted(allowed))}")
        if allowed is None and name not in _TLS_FILES | own:
            known = ", ".join(sorted(_TLS_FILES | own | set(_TLS_CHECKS)))
            raise ValueError(f"{name} is not known here; what is: {known}")
    return options


def _credentials(parts: SplitResult) -> tuple[str | None, str | None]:
    credentials, at, _ = parts.netloc.rpartition("@")
    if not at:
        return None, None
    username, _, password = credentials.partition(":")
    return unquote(username) or None, unquote(password) or None


def _tls(scheme: str, options: Mapping[str, str], *, over_tls: bool) -> dict[str, Any]:
    tls = {name: value for name, value in options.items() if name not in _OWN}
    if over_tls:
        return {"ssl": True, **tls}
    if tls:
        raise ValueError(f"{next(iter(tls))} needs {scheme.replace('redis', 'rediss')}://")
    return {}


def _places(parts: SplitResult, default: int, complaint: str) -> tuple[tuple[str, int], ...]:
    return tuple(
        _place(one, default, complaint) for one in parts.netloc.rpartition("@")[2].split(",")
    )


def _place(text: str, default: int, complaint: str) -> tuple[str, int]:
    place = urlsplit(f"//{text}")
    port = place.port  # raises ValueError when it is none
    if not place.hostname or port == 0:
        raise ValueError(f"{text!r} is {complaint}")
    return place.hostname, port or default
