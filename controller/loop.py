"""Who leads: holds the lease, and runs a ``Leader`` while it does.

A second controller stands by and takes over when the lease of the first has run out. Without
Redis nobody can prove to lead, so nobody orders anything; gateways then act alone.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from contracts.config import ControllerConfig
from contracts.errors import Transient
from contracts.tenure import Tenure
from controller.ports import Ports
from controller.tuning import TunableLeader

_log = structlog.get_logger("headstart.controller")

RENEWALS_PER_LEASE = 4
ASKS_PER_LEASE = 8
"""By who stands by: a lease that has run out is not left lying for long."""


class ControlLoop:
    """One controller process."""

    def __init__(self, owner: str, ports: Ports, config: ControllerConfig) -> None:
        self._owner = owner
        self._ports = ports
        self._config = config
        self._tenure = Tenure()
        self._leader: TunableLeader | None = None

    def reconfigure(self, config: ControllerConfig) -> None:
        """Plan by ``config`` from now on, in this term and in later ones.

        Its LocalAIs, and the times of the lease and of polls, stay as they are until a restart.
        """
        kept = self._config
        self._config = replace(config, nodes=kept.nodes, lease_s=kept.lease_s, poll_s=kept.poll_s)
        if self._leader is not None:
            self._leader.reconfigure(self._config)

    def leads(self) -> bool:
        """Whether the lease is ours at this moment."""
        return self._tenure.holds(self._ports.clock.monotonic_s())

    async def run(self) -> None:
        """Compete, lead, lose, compete again; until cancelled."""
        while True:
            token = await self._wait_for_lease()
            _log.info("leading", token=token)
            leader = TunableLeader(token, self._owner, self._ports, self._config, leads=self.leads)
            self._leader = leader
            leading = asyncio.create_task(leader.run())
            try:
                await self._renew_while_valid(token, leading)
            finally:
                leading.cancel()
                await asyncio.gather(leading, return_exceptions=True)
                await leader.close()
                self._leader = None
            if not leading.cancelled() and leading.exception() is not None:
                raise RuntimeError("the leader stopped") from leading.exception()
            _log.warning("lease_lost", token=token)

    async def release(self) -> None:
        """Let another controller lead at once."""
        try:
            await self._ports.lease.release(self._owner)
        except Transient as error:
            _log.warning("lease_not_released", error=str(error))

    async def _wait_for_lease(self) -> int:
        away = False
        while True:
            try:
                token = await self._acquire()
            except Transient as error:
                if not away:
                    _log.warning("lease_store_away", error=str(error))
                away = True
            else:
                if away:
                    _log.info("lease_store_back")
                away = False
                if token is not None:
                    return token
            await self._ports.clock.sleep(self._config.lease_s / ASKS_PER_LEASE)

    async def _renew_while_valid(self, token: int, leading: asyncio.Task[None]) -> None:
        pause_s = self._config.lease_s / RENEWALS_PER_LEASE
        away = False
        while self.leads() and not leading.done():
            await self._ports.clock.sleep(pause_s)
            try:
                if await self._acquire() != token:
                    # Lost, or won anew after somebody else led: that is another term.
                    self._tenure = Tenure()
                    return
            except Transient as error:
                if not away:
                    _log.warning("lease_not_renewed", error=str(error))
                away = True
            else:
                away = False

    async def _acquire(self) -> int | None:
        clock, lease_s = self._ports.clock, self._config.lease_s
        asked_s = clock.monotonic_s()
        token = await self._ports.lease.acquire(self._owner, now_s=clock.now_s(), lease_s=lease_s)
        self._tenure = self._tenure.answered(token, asked_s=asked_s, lease_s=lease_s)
        return token
