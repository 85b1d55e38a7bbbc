"""How many processes a queue gets: more at once, fewer only after a while. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.jobs import JobState

QUIET_S = 60.0
"""A need that fell must stay so for so long, or a process would be stopped for each short lull."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The number of processes of one queue, and since when fewer would do.

    Attributes
    ----------
    processes : int
        What is to run; never none, since somebody has to look for new jobs.
    most_needed : int
        The greatest need since ``lower_since_s``.
    """

    processes: int = 1
    lower_since_s: float | None = None
    most_needed: int = 0


def rescaled(scale: Scale, counts: Mapping[str, int], *, most: int, now_s: float) -> Scale:
    """What is to run now, from the queue's jobs by state.

    One process for each job that waits or runs, up to ``most``: how many of them may ask a model
    at once is decided elsewhere, by what people leave. Jobs that wait for a time need none.
    """
    need = counts.get(JobState.QUEUED, 0) + counts.get(JobState.STARTED, 0)
    need = min(max(1, need), max(1, most))
    if need >= scale.processes:
        return Scale(processes=need)
    if scale.lower_since_s is None:
        return Scale(processes=scale.processes, lower_since_s=now_s, most_needed=need)
    most_needed = max(scale.most_needed, need)
    if now_s - scale.lower_since_s < QUIET_S:
        return Scale(
            processes=scale.processes,
            lower_since_s=scale.lower_since_s,
            most_needed=most_needed,
        )
    return Scale(processes=most_needed)


@dataclass(slots=True)
class Scales:
    """The scales of several queues, from one look to the next."""

    most: Mapping[str, int]
    _scales: dict[str, Scale] = field(default_factory=dict)

    def wanted(
        self, counts: Mapping[str, Mapping[str, int]] | None, now_s: float
    ) -> Mapping[str, int]:
        """Processes by queue. ``counts`` None: nobody tells, and nothing changes."""
        for queue, most in self.most.items():
            scale = self._scales.setdefault(queue, Scale())
            if counts is not None:
                self._scales[queue] = rescaled(scale, counts.get(queue, {}), most=most, now_s=now_s)
        return {queue: self._scales[queue].processes for queue in self.most}
