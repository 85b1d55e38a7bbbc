"""Judging a replay: what real processes did with a trace, from the emulator's own log.

Both sides of a comparison are judged alike: a request was cold if its model was not hot in
the emulator's log at the moment it was sent, and it waited from there until its service began
there. What a proxy says of itself plays no part. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from contracts.ids import ModelId
from simulator.report import Row, percentile, row


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request as the client saw it; times are epoch seconds of the stack's clock.

    ``status`` is None when the connection broke.
    """

    request_id: str
    model: ModelId
    due_s: float
    sent_s: float
    ended_s: float
    status: int | None

    @property
    def failed(self) -> bool:
        """Whether it was not answered well."""
        return self.status is None or not 200 <= self.status < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """What a line of the emulator's log says to a judge."""

    kind: str
    at_s: float
    model: ModelId
    request_id: str | None = None

    @classmethod
    def parse(cls, line: Mapping[str, object]) -> LogLine:
        """From the line's JSON object."""
        request_id = line.get("request_id")
        return cls(
            kind=str(line["kind"]),
            at_s=float(str(line["at_s"])),
            model=ModelId(str(line["model"])),
            request_id=None if request_id is None else str(request_id),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A policy's row, and what a row has no place for."""

    row: Row
    failed: int
    jitter_p99_s: float


def judge(
    policy: str,
    sent: Sequence[Sent],
    log: Iterable[LogLine],
    *,
    from_s: float,
    until_s: float,
    slo_s: float,
    prefetches: int,
    wasted_prefetches: int,
) -> Judgement:
    """Sum up the requests that were due within [from_s, until_s) and the loads begun in it.

    A request that failed waited until its failure and never meets its target.
    """
    lines = sorted(log, key=lambda line: line.at_s)
    hot = HotTimes(lines)
    started = {line.request_id: line.at_s for line in lines if line.kind == "request_started"}
    counted = [request for request in sent if from_s <= request.due_s < until_s]
    waits = []
    for request in counted:
        start_s = started.get(request.request_id)
        good = start_s is not None and not request.failed
        wait_s = (start_s if good and start_s is not None else request.ended_s) - request.sent_s
        target_s = slo_s if good else -1.0
        waits.append((max(0.0, wait_s), target_s, not hot.at(request.model, request.sent_s)))
    lateness = sorted(request.sent_s - request.due_s for request in counted)
    return Judgement(
        row=row(
            policy,
            waits,
            loads=sum(
                line.kind == "load_started" and from_s <= line.at_s < until_s for line in lines
            ),
            prefetches=prefetches,
            wasted_prefetches=wasted_prefetches,
        ),
        failed=sum(request.failed for request in counted),
        jitter_p99_s=percentile(lateness, 0.99),
    )


class HotTimes:
    """When each model was hot."""

    _BECOMES_HOT = frozenset({"load_ended"})
    _BECOMES_COLD = frozenset({"unloaded", "load_failed", "load_cancelled"})

    def __init__(self, lines: Sequence[LogLine]) -> None:
        self._times: dict[ModelId, list[float]] = {}
        self._states: dict[ModelId, list[bool]] = {}
        for line in lines:
            if line.kind in self._BECOMES_HOT or line.kind in self._BECOMES_COLD:
                self._times.setdefault(line.model, []).append(line.at_s)
                self._states.setdefault(line.model, []).append(line.kind in self._BECOMES_HOT)

    def at(self, model: ModelId, at_s: float) -> bool:
        """Whether ``model`` was hot at ``at_s``."""
        index = bisect_right(self._times.get(model, ()), at_s)
        return index > 0 and self._states[model][index - 1]
