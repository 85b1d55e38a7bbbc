"""Tells the others which predictor this is, and whether it owns or stands by."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from contracts.errors import Permanent, Transient
from contracts.ports import Clock
from contracts.predictors import PredictorBeat, PredictorRoster, Standing

_log = structlog.get_logger("headstart.predictor")

BEAT_S = 2.0
_LOOK_S = 0.25
"""A change of standing is told at once, and not only at the next beat."""


class Announcer:
    """Writes a beat every two seconds.

    Parameters
    ----------
    roster : PredictorRoster or None
        None: there is nobody to tell.
    beat : callable
        What is to be told just now.
    """

    def __init__(
        self, roster: PredictorRoster | None, clock: Clock, beat: Callable[[], PredictorBeat]
    ) -> None:
        self._roster = roster
        self._clock = clock
        self._beat = beat
        self._told: tuple[Standing, int | None] | None = None
        self._told_at_s = float("-inf")
        self._away = False

    async def run(self) -> None:
        """Until cancelled."""
        while self._roster is not None:
            beat = self._beat()
            is_due = not 0.0 <= beat.at_s - self._told_at_s < BEAT_S
            if is_due or (beat.standing, beat.token) != self._told:
                await self._tell(self._roster, beat)
            await self._clock.sleep(_LOOK_S)

    async def leave(self) -> None:
        """This process ends."""
        if self._roster is None:
            return
        try:
            await self._roster.leave(self._beat().name)
        except (Transient, Permanent) as error:
            _log.warning("predictor_not_signed_off", error=str(error))

    async def _tell(self, roster: PredictorRoster, beat: PredictorBeat) -> None:
        # Also after a failure only at the next beat: the store is not asked ever more often.
        self._told, self._told_at_s = (beat.standing, beat.token), beat.at_s
        try:
            await roster.beat(beat)
        except (Transient, Permanent) as error:
            if not self._away:
                _log.warning("predictor_roster_away", error=str(error))
            self._away = True
        else:
            if self._away:
                _log.info("predictor_roster_back")
            self._away = False
