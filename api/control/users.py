"""Who uses files, batches and background jobs: the callers of the gateway, by the same keys."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from fastapi import Request

from api.control.access import Door
from api.control.errors import ApiError
from api.gateway.headers import presented_keys
from api.gateway.keys import KeyRing
from contracts.config import CallerKey, GatewayConfig

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
    door : Door
        It knows the admin key, which opens everything, and who guesses keys.
    """

    def __init__(self, config: GatewayConfig, door: Door) -> None:
        self._ring = KeyRing(config)
        self._door = door

    def reload(self, config: GatewayConfig) -> None:
        """The gateway's keys have changed: those that are gone open nothing any more."""
        self._ring = KeyRing(config)

    def of(self, request: Request) -> User:
        """Who this is.

        Raises
        ------
        ApiError
            401 where keys are asked for and none fits, 429 after too many that did not.
        """
        shown = [key for key in presented_keys(request.headers.raw) if key]
        if self._ring.is_open:
            self._door.check_reader(request, shown)
            return User(owner="", sees_all=True)
        key = self._ring.find(shown)
        if key is None:
            if self._door.is_admin(request, shown):
                return User(owner="", sees_all=True)
            self._door.note_wrong(request, shown)
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
