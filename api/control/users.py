"""Who uses files, batches and background jobs: the callers of the gateway, by the same keys."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from fastapi import Request

from api.control.access import check_read
from api.control.errors import ApiError
from api.gateway.headers import presented_keys
from api.gateway.keys import KeyRing
from contracts.config import CallerKey, ControlConfig, GatewayConfig

_OWNER_CHARS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One caller.

    Attributes
    ----------
    owner : str
        A digest of its key; "" where no keys are asked for, and everybody is the same.
    models : tuple of str
        Names and patterns of the models that it may use; empty: all.
    key : CallerKey or None
        What it may do; None: everything.
    sees_all : bool
        Whether it sees what others own: with the admin key, or where nobody is told apart.
    """

    owner: str
    models: tuple[str, ...] = ()
    key: CallerKey | None = None
    sees_all: bool = False

    def sees(self, owner: str) -> bool:
        """Whether something of this owner is there for it."""
        return self.sees_all or owner == self.owner


class Users:
    """Tells callers apart.

    Parameters
    ----------
    config : GatewayConfig
        Its keys are the ones that count. Where it has none everybody is the same, and may come
        where everybody may read.
    control : ControlConfig
        Its admin key opens everything.
    """

    def __init__(self, config: GatewayConfig, control: ControlConfig) -> None:
        self._ring = KeyRing(config)
        self._control = control
        admin_key = control.admin_key
        self._admin_key = None if admin_key is None else admin_key.encode()

    def reload(self, config: GatewayConfig) -> None:
        """The gateway's keys have changed: those that are gone open nothing any more."""
        self._ring = KeyRing(config)

    def of(self, request: Request) -> User:
        """Who this is. Raises ApiError (401) where keys are asked for and none fits."""
        shown = [key for key in presented_keys(request.headers.raw) if key]
        admin_key = self._admin_key
        if admin_key is not None and any(hmac.compare_digest(key, admin_key) for key in shown):
            return User(owner="", sees_all=True)
        if self._ring.is_open:
            check_read(request, self._control)
            return User(owner="", sees_all=True)
        key = self._ring.find(shown)
        if key is None:
            raise ApiError(
                401,
                "authentication_error",
                "no key, or a wrong one: send a key of the gateway as a bearer token",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        # What is kept of a key is not shown to others, not even as its digest.
        owner = hashlib.sha256(b"owner\0" + key.digest).hexdigest()[:_OWNER_CHARS]
        return User(owner=owner, models=key.models, key=key)
