"""Judgements on keys: who may change things, who may ask models. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from cli.checkup.findings import Finding, fail, ok, warn

LEAST_CHARS = 16
_COMMON = frozenset({"changeme", "password", "secret", "admin", "test", "sk-1234", "localai"})


def judge_admin_key(key: str | None, host: str) -> Finding:
    """Whether a stranger could change targets, pins and modes."""
    open_to_all = host in ("0.0.0.0", "::", "")  # noqa: S104 - compared with
    if key is None and open_to_all:
        return warn(
            "keys.admin",
            "control",
            "no admin key is set: changes are taken from this machine alone",
            "set control.admin_key (`openssl rand -hex 24`) to change things from elsewhere",
        )
    if key is None:
        return ok("keys.admin", "control", "it listens on this machine alone")
    return _strength("keys.admin", "control", key, "control.admin_key")


def judge_gateway_keys(keys: tuple[str, ...], host: str, *, named: int) -> Iterator[Finding]:
    """Whether anybody may ask models, and whether keys can be guessed."""
    if not keys and not named:
        open_to_all = host in ("0.0.0.0", "::", "")  # noqa: S104 - compared with
        what = "it asks for no key: whoever reaches it may use every model"
        if open_to_all:
            yield warn("keys.gateway", "gateway", what, "set gateway.keys, or named ones")
        else:
            yield ok("keys.gateway", "gateway", "it listens on this machine alone")
    for number, key in enumerate(keys, start=1):
        yield _strength("keys.gateway", f"gateway, key {number}", key, "gateway.keys")
    if named:
        yield ok("keys.gateway", "gateway", f"{named} keys with names and bounds")


def _strength(check: str, subject: str, key: str, setting: str) -> Finding:
    remedy = f"make another one (`openssl rand -hex 24`) and set {setting}"
    if key.lower() in _COMMON:
        return fail(check, subject, "its key is one that everybody tries first", remedy)
    if len(key) < LEAST_CHARS:
        return fail(check, subject, f"its key has {len(key)} characters and can be guessed", remedy)
    if len(set(key)) < 8:
        return fail(check, subject, "its key is made of a few characters only", remedy)
    return ok(check, subject, f"its key has {len(key)} characters")
