"""From what is asked now, what is expected and what there is to a number of replicas: pure.

One replica is planned to serve ``utilisation * capacity`` requests at once where their number is an
average, and ``capacity`` where it is what is enough nineteen times in twenty. What is needed is the
larger of two counts: the one for now (all that somebody waits for, averaged over half a minute) and
the one for what a forecast expects at the time at which a replica that is ordered now would serve.

*Out* at once, as far as bounds, budget and step allow. What is starting counts as there, so that
a slow start is not answered with more of the same. *In* only when the larger of the two counts was
lower for the whole stabilisation window: a forecast alone never takes anything away, and one burst
within the window keeps what it needed. *Panic*, when far more is asked at once than what is ready
can serve, lifts the step and keeps everything for a window. *To none* when nobody has asked for the
idle time and nobody is expected; whoever asks then wakes it.

The windows are those of Knative's autoscaler (stable window, panic window, scale-to-zero grace) and
the stabilisation window of Kubernetes' horizontal pod autoscaler.
"""

from __future__ import annotations

import math
from dataclasses import replace

from contracts.reasons import Reason
from contracts.scaling import Need, Replicas, Scaling, ScalingState, ScalingTarget

AVERAGE_S = 30.0
"""Time constant of the average: what comes and goes within it would be served before a replica
that is ordered for it has started."""

SLICES = 30
"""A window is kept as the peaks of so many slices."""

OVERDUE = 3.0
"""A start that takes so many times as long as it should is not reckoned with any more."""

FIRST_RETRY_S = 5.0
LONGEST_RETRY_S = 300.0
NOISE = 0.05
"""Less than this of a request at once is nobody: forecasts are never quite nothing."""


def rescaled(
    target: ScalingTarget, replicas: Replicas, need: Need, state: ScalingState, now_s: float
) -> tuple[Scaling, ScalingState]:
    """How many there shall be now, and what to pass in next time.

    Whether the answer is another one than was ordered before is in ``Scaling.changed``; who
    carries it out says what came of that with ``taken`` or ``refused``.
    """
    state = _seen(replicas, need, state, now_s)
    assert state.load is not None
    there = _there(replicas, state)
    live = _replicas_for(target, state.load) if need.live or there else 0
    # Bursts are in what is expected already, and need no part of the capacity kept free.
    expected = _replicas_for(target, (need.expected or 0.0) * target.utilisation)
    panics = need.live > target.panic_ratio * target.capacity * max(1, replicas.ready)
    if panics:
        live = max(live, _replicas_for(target, need.live))
        state = replace(state, calm_at_s=now_s + target.stabilisation_s)
    needed = max(live, expected, 1 if need.live else 0)
    state = replace(state, peaks=_with_peak(target, state.peaks, needed, now_s))
    wanted, reason = _wanted(target, state, needed=needed, there=there, now_s=now_s)
    if wanted > there:
        reason = _reason_out(there=there, live=live, expected=expected, panics=panics)
        step = wanted if panics or there == 0 else there + target.step_out
        wanted = min(wanted, step)
    bound = target.most
    if wanted > bound or (needed > bound and wanted == bound):
        reason = Reason.OVER_BUDGET if bound < target.largest else Reason.AT_LARGEST
    wanted = max(target.smallest, min(wanted, bound))
    if wanted == there and reason is Reason.ENOUGH and replicas.ready < there:
        reason = _reason_starting(target, state, now_s)
    said = Scaling(
        target=target.name,
        at_s=now_s,
        replicas=wanted,
        reason=reason,
        evidence=_evidence(replicas, need, state, live=live, expected=expected),
        changed=wanted != there,
        needed=needed,
        most=bound,
    )
    return said, state


def may_order(state: ScalingState, now_s: float) -> bool:
    """Whether an order may be tried now: the last one was taken, or its pause is over."""
    return now_s >= state.retry_at_s


def taken(state: ScalingState, replicas: int) -> ScalingState:
    """The order for ``replicas`` was taken."""
    return replace(state, ordered=replicas, failures=0, retry_at_s=0.0)


def refused(state: ScalingState, now_s: float) -> ScalingState:
    """The order was not taken: the next is tried later, each time twice as late."""
    pause_s = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(state.failures, 10))
    return replace(state, failures=state.failures + 1, retry_at_s=now_s + pause_s)


def _seen(replicas: Replicas, need: Need, state: ScalingState, now_s: float) -> ScalingState:
    if state.load is None:
        load = float(need.live)
    else:
        share = -math.expm1(-max(0.0, now_s - state.at_s) / AVERAGE_S)
        load = state.load + share * (need.live - state.load)
    missing = replicas.ready < _there(replicas, state)
    since_s = state.starting_since_s
    return replace(
        state,
        load=load,
        at_s=now_s,
        busy_at_s=now_s if need.live or state.busy_at_s is None else state.busy_at_s,
        starting_since_s=(now_s if since_s is None else since_s) if missing else None,
    )


def _there(replicas: Replicas, state: ScalingState) -> int:
    """What there is or was asked for: who tells what is wanted is right, else our last order."""
    asked = state.ordered if replicas.wanted is None else replicas.wanted
    return replicas.ready if asked is None else asked


def _replicas_for(target: ScalingTarget, requests: float) -> int:
    """Replicas for so many requests at once; a little noise is nobody."""
    if requests < NOISE:
        return 0
    # 1e-9: what is planned for exactly must not cost one more by rounding.
    return math.ceil(requests / (target.capacity * target.utilisation) - 1e-9)


def _with_peak(
    target: ScalingTarget, peaks: tuple[tuple[float, int], ...], needed: int, now_s: float
) -> tuple[tuple[float, int], ...]:
    width_s = max(1.0, target.stabilisation_s / SLICES)
    begin_s = math.floor(now_s / width_s) * width_s
    kept = tuple(
        (at_s, most)
        for at_s, most in peaks
        if now_s - target.stabilisation_s < at_s + width_s and at_s < begin_s
    )
    same = [most for at_s, most in peaks if at_s == begin_s]
    return (*kept, (begin_s, max([needed, *same])))


def _wanted(
    target: ScalingTarget,
    state: ScalingState,
    *,
    needed: int,
    there: int,
    now_s: float,
) -> tuple[int, Reason]:
    if needed >= there:
        return needed, Reason.ENOUGH
    first_s = state.peaks[0][0]
    has_looked = now_s - first_s >= target.stabilisation_s * (1.0 - 1.0 / SLICES)
    if now_s < state.calm_at_s or not has_looked:
        return there, Reason.STABILISING
    most = max(peak for _, peak in state.peaks)
    if most >= there:
        return there, Reason.STABILISING
    if most == 0 and there == 1 and target.smallest == 0:
        idle_s = 0.0 if state.busy_at_s is None else now_s - state.busy_at_s
        return (0, Reason.NOBODY_ASKS) if idle_s >= target.idle_s else (1, Reason.STABILISING)
    fewer = max(most, there - target.step_in, target.smallest)
    return (fewer, Reason.NEEDED_LESS) if fewer < there else (there, Reason.ENOUGH)


def _reason_out(*, there: int, live: int, expected: int, panics: bool) -> Reason:
    if there == 0 and live:
        return Reason.WOKEN
    if panics:
        return Reason.PANIC
    return Reason.FORECAST_NEED if expected > live else Reason.LIVE_NEED


def _reason_starting(target: ScalingTarget, state: ScalingState, now_s: float) -> Reason:
    since_s = now_s if state.starting_since_s is None else state.starting_since_s
    overdue = now_s - since_s > OVERDUE * target.start_s
    return Reason.START_OVERDUE if overdue else Reason.STARTING


def _evidence(
    replicas: Replicas, need: Need, state: ScalingState, *, live: int, expected: int
) -> dict[str, float]:
    found: dict[str, float] = {
        "ready": replicas.ready,
        "starting": replicas.starting,
        "in_flight": need.in_flight,
        "waiting": need.waiting,
        "load": round(state.load or 0.0, 3),
        "replicas_for_now": live,
        "replicas_for_forecast": expected,
    }
    if need.expected is not None:
        found["expected"] = round(need.expected, 3)
    return found
