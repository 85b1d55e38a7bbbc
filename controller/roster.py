"""Which gateways are there, and whether all of them have let a model go: pure bookkeeping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId
from contracts.messages import GatewayBeat
from contracts.world import QueueStatus

GONE_AFTER_S = 3.0
"""A gateway whose beat is older counts as gone (beats come every second)."""

MIN_REAL_SILENCE_S = 1.0
MAX_GATEWAYS = 1000


def gone_after_s(scale: float) -> float:
    """How old a beat may be: however fast the clock runs, it is as fast as the machine.

    >>> gone_after_s(1.0), gone_after_s(30.0)
    (3.0, 30.0)
    """
    return max(GONE_AFTER_S, MIN_REAL_SILENCE_S * scale)


class DrainVerdict(StrEnum):
    """What the gateways say about a drain."""

    WAIT = "wait"
    """Not all have acknowledged it yet."""
    CLEAR = "clear"
    """All have, and none has a request in flight."""
    BUSY = "busy"
    """One that acknowledged it still has requests in flight."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The last beat of each gateway that is alive."""

    beats: Mapping[GatewayId, GatewayBeat] = field(default_factory=dict)

    def heard(self, beat: GatewayBeat, at_s: float | None = None) -> Roster:
        """With a newer beat; a leaving gateway goes, and past the bound new ones are ignored.

        ``at_s``: when it was heard by the clock of whoever listens, which is what its age counts
        from: clocks of two machines differ. None: when it was sent.
        """
        if beat.leaving:
            return replace(
                self, beats={name: b for name, b in self.beats.items() if name != beat.gateway}
            )
        known = self.beats.get(beat.gateway)
        if at_s is None and known is not None and known.at_s > beat.at_s:
            return self
        if known is None and len(self.beats) >= MAX_GATEWAYS:
            return self
        kept = beat if at_s is None else replace(beat, at_s=at_s)
        return replace(self, beats={**self.beats, beat.gateway: kept})

    def without_silent(
        self, now_s: float, *, after_s: float = GONE_AFTER_S
    ) -> tuple[Roster, tuple[GatewayId, ...]]:
        """Without those gone, and who they are."""
        gone = tuple(name for name, beat in self.beats.items() if beat.at_s < now_s - after_s)
        if not gone:
            return self, ()
        kept = {name: beat for name, beat in self.beats.items() if name not in gone}
        return replace(self, beats=kept), gone

    def queues(self) -> tuple[QueueStatus, ...]:
        """Requests that wait for admission or a load, by class, over all gateways."""
        waiting = {
            priority: sum(beat.queued.get(priority, 0) for beat in self.beats.values())
            for priority in PriorityClass
        }
        return tuple(
            QueueStatus(
                priority=priority,
                waiting=count,
                capacity=self._capacity(priority),
                oldest_wait_s=self._oldest_wait_s(priority),
            )
            for priority, count in waiting.items()
        )

    def _capacity(self, priority: PriorityClass) -> int | None:
        """Over all gateways; None where one does not tell, or there is none."""
        told = [beat.capacity.get(priority) for beat in self.beats.values()]
        known = [one for one in told if one is not None]
        return sum(known) if known and len(known) == len(told) else None

    def _oldest_wait_s(self, priority: PriorityClass) -> float | None:
        told = (beat.oldest_queued_s.get(priority) for beat in self.beats.values())
        return max((one for one in told if one is not None), default=None)

    def preemptible(self) -> Mapping[ModelId, int]:
        """Requests in flight that gateways may cancel, by model; zero is left out."""
        counts: Counter[ModelId] = Counter()
        for beat in self.beats.values():
            counts.update(beat.preemptible)
        return {model: count for model, count in counts.items() if count}

    def drain(self, drain_id: str, model: ModelId) -> DrainVerdict:
        """Whether ``model`` may be unloaded. Without any gateway it is clear."""
        verdict = DrainVerdict.CLEAR
        for beat in self.beats.values():
            if drain_id not in beat.drains:
                verdict = DrainVerdict.WAIT
            elif beat.in_flight.get(model, 0) > beat.in_flight_away.get(model, 0):
                return DrainVerdict.BUSY
        return verdict
