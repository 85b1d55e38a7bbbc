"""Paths that LocalAI serves without a key, so that people can sign in. Pure."""

from __future__ import annotations

_PROBES = frozenset({"/healthz", "/readyz"})
_PAGES = frozenset(
    {
        "/",
        "/app",
        "/browse",
        "/explorer",
        "/login",
        "/swagger",
        "/favicon.svg",
        "/.well-known/localai.json",
        "/api/auth/status",
        "/api/auth/github/callback",
        "/api/auth/github/login",
        "/api/auth/oidc/callback",
        "/api/auth/oidc/login",
        "/api/branding",
        "/api/instructions",
    }
)
_FOLDERS = (
    "/app/",
    "/assets/",
    "/browse/",
    "/branding/asset/",
    "/api/instructions/",
    "/invite/",
    "/locales/",
    "/static/",
    "/swagger/",
)
_SIGN_IN = frozenset({"/api/auth/login", "/api/auth/register", "/api/auth/token-login"})


def needs_no_key(method: str, path: str, *, is_preflight: bool) -> bool:
    """Whether the gateway lets a request through that shows no key of its own.

    Probes, the pages and files of LocalAI's UI up to its sign-in, and CORS preflight, with which
    browsers send none. What these pages then ask for needs a key.
    """
    if method == "OPTIONS":
        return is_preflight
    return path in _PROBES or is_public(method, path)


def is_public(method: str, path: str) -> bool:
    """Whether it is a part of LocalAI's UI that is there before anybody has signed in.

    ``path`` is decoded. The node's key is not for such requests: whoever asks is nobody yet.
    """
    if ".." in path or "\\" in path:
        return False
    if method == "POST":
        return path in _SIGN_IN
    return method in ("GET", "HEAD") and (path in _PAGES or path.startswith(_FOLDERS))
