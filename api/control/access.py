"""Who may read and who may write.

With an admin key, writes (and reads, unless they are open) need ``Authorization: Bearer
<key>``. Without one, writes are only taken from this machine: from a loopback address, not
through a proxy, and not from another site's page in a browser on this machine.
"""

from __future__ import annotations

import hmac
import ipaddress

from starlette.requests import Request

from api.control.errors import ApiError
from contracts.config import ControlConfig

_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip")
_SAME_SITE = frozenset({"same-origin", "none"})


def check_read(request: Request, config: ControlConfig) -> None:
    """Raise ApiError unless this caller may read."""
    if config.open_reads:
        return
    if config.admin_key is None:
        _check_local(request)
    else:
        _check_key(request, config.admin_key)


def check_write(request: Request, config: ControlConfig) -> None:
    """Raise ApiError unless this caller may change things."""
    if config.admin_key is None:
        _check_local(request)
    else:
        _check_key(request, config.admin_key)


def _check_key(request: Request, admin_key: str) -> None:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # Compared as bytes and in constant time: how long a refusal takes tells nothing.
    matches = hmac.compare_digest(given.strip().encode("latin-1"), admin_key.encode())
    if scheme.lower() == "bearer" and matches:
        return
    raise ApiError(
        401,
        "authentication_error",
        "this needs the admin key: send it as 'Authorization: Bearer <key>'",
        code="invalid_api_key",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _check_local(request: Request) -> None:
    why = _foreign(request)
    if why is not None:
        raise ApiError(
            403,
            "permission_error",
            f"without an admin key this is only taken from this machine, and {why}; "
            "set an admin key to allow it from elsewhere",
            code="local_only",
        )


def _foreign(request: Request) -> str | None:
    """Why a caller does not count as local; None if it does."""
    client = request.client.host if request.client else ""
    if not _is_loopback(client):
        return "the caller is elsewhere"
    if any(name in request.headers for name in _PROXY_HEADERS):
        return "the request came through a proxy"
    # A page of another site, or a name that was made to point here (DNS rebinding), also
    # speaks from a loopback address: the browser says where the page came from.
    if not _is_local_name(request.url.hostname or ""):
        return "it names another host"
    if request.headers.get("sec-fetch-site", "none") not in _SAME_SITE:
        return "it comes from another site's page"
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{request.url.netloc}":
        return "it comes from another site's page"
    return None


def _is_local_name(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost") or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
