"""The configuration in force: one snapshot, replaced as a whole."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from api.gateway.keys import KeyRing
from contracts.config import GatewayConfig


@dataclass(frozen=True, slots=True)
class _InForce:
    owner: LiveConfig
    config: GatewayConfig
    keys: KeyRing


_HELD: ContextVar[_InForce | None] = ContextVar("gateway_configuration", default=None)


class LiveConfig:
    """What whoever needs the configuration is given, and asks at each use.

    A request keeps the snapshot that it came in with (``hold``), whatever is loaded while it
    waits or streams: no request sees a part of one configuration and a part of another.
    Each request runs in a task of its own, so that this needs no argument on the way. What a
    request starts and leaves behind (an order for a load) keeps its snapshot as well.
    """

    __slots__ = ("_newest",)

    def __init__(self, config: GatewayConfig) -> None:
        self._newest = _InForce(self, config, KeyRing(config))

    @property
    def now(self) -> GatewayConfig:
        """That of this task's request; outside of one, the newest."""
        # Asked ten times for each request, so there is no call in between.
        held = _HELD.get()
        return (held if held is not None and held.owner is self else self._newest).config

    @property
    def keys(self) -> KeyRing:
        """The keys of the same snapshot."""
        return self._in_force.keys

    def hold(self) -> None:
        """A request begins in this task: from here on it sees what is the newest now."""
        _HELD.set(self._newest)

    def replace(self, config: GatewayConfig) -> None:
        """Requests that come from now on see ``config``."""
        self._newest = _InForce(self, config, KeyRing(config))

    @property
    def _in_force(self) -> _InForce:
        held = _HELD.get()
        # Another gateway of this process may have called us, as in tests.
        return held if held is not None and held.owner is self else self._newest
