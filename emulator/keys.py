"""Who may ask: LocalAI's keys, and its guard against other sites' pages."""

from __future__ import annotations

import hmac

from emulator.http import Request

EXEMPT = frozenset(
    {
        "/", "/healthz", "/readyz", "/favicon.svg", "/app", "/swagger/index.html",
        "/.well-known/localai.json", "/api/instructions", "/api/branding", "/api/auth/status",
    }
)  # fmt: skip
"""Paths that ask for no key. ``/version``, CORS preflight and images do ask for one."""


_ADMIN = (
    "/backend/", "/system", "/models/", "/metrics", "/api/resources", "/api/settings",
    "/api/models/", "/api/nodes", "/api/p2p", "/api/traces", "/api/backend-traces",
    "/api/operations",
)  # fmt: skip
_EVERYBODYS = frozenset({"/models"})

_HEADERS = ("authorization", "x-api-key", "xi-api-key")


def is_allowed(request: Request, keys: tuple[str, ...]) -> bool:
    """Whether the request has one of the keys, or needs none."""
    if not keys or request.path in EXEMPT or request.path.startswith("/emulator/"):
        return True
    offered = _offered(request)
    return any(hmac.compare_digest(offered.encode(), key.encode()) for key in keys)


def may_manage(request: Request, user_keys: tuple[str, ...]) -> bool:
    """Whether the request's key is an admin's, or what it asks for is not an admin's alone."""
    if not user_keys or not request.path.startswith(_ADMIN) or request.path in _EVERYBODYS:
        return True
    return _offered(request) not in user_keys


def is_foreign_page(request: Request) -> bool:
    """A browser sends it for another site's page, without a key in a header (a cookie is none)."""
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return False
    cross = request.headers.get("sec-fetch-site") == "cross-site"
    return cross and not any(request.headers.get(name) for name in _HEADERS)


def _offered(request: Request) -> str:
    authorization = request.headers.get("authorization", "")
    if authorization:
        return authorization.removeprefix("Bearer ")
    for name in _HEADERS[1:]:
        if request.headers.get(name):
            return request.headers[name]
    for pair in request.headers.get("cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == "token":
            return value
    return ""
