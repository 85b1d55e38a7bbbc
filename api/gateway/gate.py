"""Who may come in, and how often: keys of the gateway's own, applied to a request's head."""

from __future__ import annotations

from collections.abc import Mapping

from api.gateway.detect import InferencePath
from api.gateway.headers import RequestHead
from api.gateway.keys import is_restricted, may_pass_through
from api.gateway.listings import model_of_path
from api.gateway.live import LiveConfig
from api.gateway.peers import Peers
from api.gateway.problems import Problem, permission_denied, rate_limited, unauthorized
from api.gateway.public_paths import needs_no_key
from api.gateway.rates import Rates
from api.gateway.residency import RouteBook
from contracts.config import CallerKey
from contracts.ports import Clock


class Gate:
    """Knows callers by their keys, and tells what keeps one out.

    What it costs where keys are held: one SHA-256 and one look-up for each request.
    """

    def __init__(self, config: LiveConfig, book: RouteBook, clock: Clock, peers: Peers) -> None:
        self._live = config
        self._book = book
        self._clock = clock
        self._peers = peers
        self._rates = Rates(peers.take_admitted)

    @property
    def admitted(self) -> Mapping[str, int]:
        """Requests that were let in, by the name of a key that has a rate."""
        return self._rates.admitted

    def key_of(self, head: RequestHead) -> CallerKey | None:
        """The key that the caller shows, where it is one of ours."""
        ring = self._live.keys
        return None if ring.is_open else ring.find(head.keys)

    def problem_of(self, head: RequestHead, path: InferencePath | None) -> Problem | None:
        """Why the request may not go further: no key (401), not this (403), not now (429).

        ``path``: the inference path that it is for. Each such request takes a token of its
        key's rate, also one that fails later.
        """
        if self._live.keys.is_open or _needs_no_key(head):
            return None
        if head.key is None:
            return unauthorized()
        if path is None:
            return self._problem_of_passing(head)
        rest_s = self._rates.take(head.key, self._clock.monotonic_s())
        if rest_s is None:
            return None
        return rate_limited(head.key.requests_per_min or 0.0, rest_s)

    def may_see(self, head: RequestHead, name: str) -> bool:
        """Whether a list may tell the caller of this model."""
        return self._live.keys.may_use(head.key, name, self._book.aliases)

    def renew(self) -> None:
        """The configuration was replaced."""
        callers = self._live.now.callers
        self._rates.keep(callers)
        self._peers.keep_keys({key.name: key for key in callers})

    def _problem_of_passing(self, head: RequestHead) -> Problem | None:
        model = model_of_path(head.path) if is_restricted(head.key) else None
        if model is not None and head.method in ("GET", "HEAD"):
            return None if self.may_see(head, model) else _foreign_path()
        return None if may_pass_through(head.key, head.method, head.path) else _foreign_path()


def _needs_no_key(head: RequestHead) -> bool:
    asks = head.get(b"access-control-request-method")
    return needs_no_key(head.method, head.path, is_preflight=asks is not None)


def _foreign_path() -> Problem:
    return permission_denied(
        "This key is for certain models only, and may not do this.", code="path_not_allowed"
    )
