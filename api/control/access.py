"""Who may read and who may write.

With an admin key, writes (and reads, unless they are open) need ``Authorization: Bearer
<key>``. Without one, writes are only taken from this machine: from a loopback address, not
through a proxy, and not from another site's page in a browser on this machine. Who shows one wrong
key after the other waits.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable

import structlog
from starlette.requests import Request

from api.control.errors import ApiError
from api.control.guessing import GuessBook
from contracts.config import ControlConfig
from contracts.ports import Clock

_log = structlog.get_logger(__name__)

_PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip")
_SAME_SITE = frozenset({"same-origin", "none"})


class Door:
    """Judges callers by the configuration, and remembers who guesses keys."""

    def __init__(self, config: ControlConfig, clock: Clock) -> None:
        self._open_reads = config.open_reads
        self._admin_key = None if config.admin_key is None else config.admin_key.encode()
        self._clock = clock
        self._guesses = GuessBook()

    @property
    def forgotten_guessers(self) -> int:
        """Addresses that were let go of at the bound of the table."""
        return self._guesses.forgotten

    def check_read(self, request: Request) -> None:
        """Raise ApiError unless this caller may read."""
        if not self._open_reads:
            self.check_write(request)

    def check_reader(self, request: Request, keys: Iterable[bytes]) -> None:
        """As ``check_read``, with the admin key in any of the ways that keys are shown."""
        if self._open_reads:
            return
        shown = list(keys)
        if self._admin_key is None or not self.is_admin(request, shown):
            self.note_wrong(request, shown if self._admin_key is not None else [])
            self.check_write(request)

    def check_write(self, request: Request) -> None:
        """Raise ApiError unless this caller may change things."""
        if self._admin_key is None:
            _check_local(request)
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        key = given.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
        if not self.is_admin(request, [key] if key else []):
            self.note_wrong(request, [key] if key else [])
            raise _needs_admin_key()

    def is_admin(self, request: Request, keys: Iterable[bytes]) -> bool:
        """Whether one of the keys is the admin's. Raises ApiError (429) for who guesses."""
        shown = list(keys)
        if not shown:
            return False
        wait_s = self._guesses.wait_s(*_whence(request), self._clock.monotonic_s())
        if wait_s > 0.0:
            raise _too_many_guesses(wait_s)
        # Compared as bytes and in constant time: how long a refusal takes tells nothing.
        admin_key = self._admin_key
        return admin_key is not None and any(hmac.compare_digest(key, admin_key) for key in shown)

    def note_wrong(self, request: Request, keys: Iterable[bytes]) -> None:
        """Keys were shown that open nothing."""
        peer, forwarded = _whence(request)
        now_s = self._clock.monotonic_s()
        for key in keys:
            self._guesses.note_wrong(peer, forwarded, key, now_s)
        if self._guesses.wait_s(peer, forwarded, now_s) > 0.0:
            _log.warning("control.keys_guessed", peer=peer, forwarded=forwarded)


def _whence(request: Request) -> tuple[str, str | None]:
    # Some proxies add a line of their own: the last one's word counts, not the caller's.
    told = ",".join(request.headers.getlist("x-forwarded-for"))
    return request.client.host if request.client else "", told or None


def _too_many_guesses(wait_s: float) -> ApiError:
    return ApiError(
        429,
        "rate_limited",
        "too many wrong keys came from this address: none is looked at before a minute is over",
        code="too_many_wrong_keys",
        retry_after_s=wait_s,
    )


def _needs_admin_key() -> ApiError:
    return ApiError(
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
