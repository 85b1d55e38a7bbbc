"""Whose forecasts are published: holds the predictors' lease, or waits for it."""

from __future__ import annotations

import structlog

from contracts.errors import Permanent, Transient
from contracts.ports import Clock, Lease
from contracts.tenure import Tenure

_log = structlog.get_logger("headstart.predictor")

RENEWALS_PER_LEASE = 4
ASKS_PER_LEASE = 8
"""By who stands by: a lease that has run out is not left lying for long."""


class Ownership:
    """One predictor's side of the lease.

    Parameters
    ----------
    name : str
        Of this process, unlike any other's.
    lease : Lease or None
        None: there is no other, and it owns from the start, without a token.
    lease_s : float
        Another takes over after this long without the owner.
    """

    def __init__(self, name: str, lease: Lease | None, clock: Clock, *, lease_s: float) -> None:
        self.name = name
        self._lease = lease
        self._clock = clock
        self._lease_s = lease_s
        self._tenure = Tenure()
        self._away = False
        self.competes = False
        """Whether to take the lease where nobody holds it."""

    @property
    def token(self) -> int | None:
        """The fencing token of its term; None: it has no term, or no rival."""
        return self._tenure.token

    def holds(self) -> bool:
        """Whether it owns at this moment, also after the process was stopped for a while."""
        return self._lease is None or self._tenure.holds(self._clock.monotonic_s())

    @property
    def is_unsure(self) -> bool:
        """Whether it owned until its lease ran out, and nobody has said who does now."""
        return self.token is not None and not self.holds()

    async def run(self) -> None:
        """Compete for the lease and keep it; until cancelled."""
        while self._lease is not None:
            before = self.token
            if self.competes or self.holds():
                await self._ask(self._lease)
            if self.token is not None and self.token != before:
                _log.info("predictor_owns", token=self.token)
            elif before is not None and self.token is None:
                _log.warning("predictor_taken_over_from", token=before)
            parts = RENEWALS_PER_LEASE if self.holds() else ASKS_PER_LEASE
            await self._clock.sleep(self._lease_s / parts)

    async def give_back(self) -> None:
        """Let another own at once; compete anew, if ``run`` does."""
        self._tenure = Tenure()
        if self._lease is None:
            return
        try:
            await self._lease.release(self.name)
        except (Transient, Permanent) as error:
            _log.warning("predictor_lease_not_released", error=str(error))

    async def _ask(self, lease: Lease) -> None:
        asked_s = self._clock.monotonic_s()
        try:
            token = await lease.acquire(self.name, now_s=self._clock.now_s(), lease_s=self._lease_s)
        except (Transient, Permanent) as error:
            if not self._away:
                _log.warning("predictor_lease_store_away", error=str(error))
            self._away = True
            return
        if self._away:
            _log.info("predictor_lease_store_back")
        self._away = False
        self._tenure = self._tenure.answered(token, asked_s=asked_s, lease_s=self._lease_s)
