"""Looks at one node's machine through a probe that may hang, and says so once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog

from contracts.ids import NodeId
from contracts.ports import Clock, NodeReport
from contracts.readings import ProbeReading
from controller.sightings import Sighting, sighting

_log = structlog.get_logger("headstart.controller")

Look = Callable[[float], Awaitable[ProbeReading]]
"""Reads the machine; takes the time of the look."""

LIMIT_S = 2.0
"""A look that takes longer is not waited for; real seconds, since drivers do not run faster."""

STALE_S = 15.0
"""What was read so long ago says nothing about now."""


class Sight:
    """Puts together what LocalAI reports and what a probe reads.

    Parameters
    ----------
    node : NodeId
        Whose machine it is.
    clock : Clock
        Measures how long a look takes and how old it is.
    look : callable or None
        Reads the machine; None: it is another machine, LocalAI alone tells of it.
    accelerator : str
        What the node's models run on.
    interval_s : float
        A reading that is younger is not read again.
    """

    def __init__(
        self,
        node: NodeId,
        *,
        clock: Clock,
        look: Look | None = None,
        accelerator: str = "",
        interval_s: float = 0.0,
    ) -> None:
        self._node = node
        self._clock = clock
        self._look = look
        self._accelerator = accelerator
        self._interval_s = interval_s
        self._last: ProbeReading | None = None
        self._cards: ProbeReading | None = None
        self._hangs = False
        self._blind = False

    async def of(self, report: NodeReport, *, fresh: bool = False) -> Sighting:
        """What is the case now; ``fresh``: read even if the last reading is young."""
        found = sighting(report, await self._read(fresh=fresh), self._accelerator)
        self._tell_blind(report, found)
        return found

    async def _read(self, *, fresh: bool) -> ProbeReading | None:
        if self._look is None:
            return None
        now_s = self._clock.now_s()
        last = self._last
        # A little early counts too: a poll is never exactly on time.
        if not fresh and last is not None and 0.0 <= now_s - last.at_s < 0.9 * self._interval_s:
            return self._with_cards(last, now_s)
        try:
            async with self._clock.timeout(LIMIT_S * self._clock.scale):
                reading = await self._look(now_s)
        except TimeoutError:
            if not self._hangs:
                _log.warning("probe_hangs", node=self._node, limit_s=LIMIT_S)
            self._hangs = True
            return None if last is None or self._is_stale(last, now_s) else last
        if self._hangs:
            _log.info("probe_answers_again", node=self._node)
        self._hangs = False
        self._last = reading
        if reading.gpus:
            self._cards = reading
        return self._with_cards(reading, now_s)

    def _with_cards(self, reading: ProbeReading, now_s: float) -> ProbeReading:
        """A driver that is gone for a moment leaves its cards as they were."""
        if reading.gpus or self._cards is None or self._is_stale(self._cards, now_s):
            return reading
        return replace(reading, gpus=self._cards.gpus)

    def _is_stale(self, reading: ProbeReading, now_s: float) -> bool:
        return not 0.0 <= now_s - reading.at_s <= max(STALE_S, 3.0 * self._interval_s)

    def _tell_blind(self, report: NodeReport, found: Sighting) -> None:
        """One line where LocalAI has a GPU that we cannot see, one when we can."""
        if self._look is None:
            return
        theirs = report.reading is not None and bool(report.reading.gpus)
        ours = self._last is not None and bool(self._last.gpus)
        blind = theirs and not ours and found.reading is not None and bool(found.reading.gpus)
        if blind and not self._blind:
            _log.info(
                "gpu_not_seen",
                node=self._node,
                hint="LocalAI tells of a GPU that cannot be seen from here, so that its own "
                "figures are used; a container needs the GPU and the driver capability `utility`",
            )
        elif self._blind and ours:
            _log.info("gpu_seen", node=self._node)
        self._blind = blind
