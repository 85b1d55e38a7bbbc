"""What would have turned a decision the other way, from the numbers it rests on. Pure."""

from __future__ import annotations

from contracts.plan import Decision, Outcome
from contracts.reasons import Reason

Numbers = dict[str, float]

_OTHERWISE: dict[Reason, str] = {
    Reason.DEMAND: "without a request that waits, it would have been loaded only if one was "
    "expected soon enough",
    Reason.OPERATOR: "nobody asking for it would have left it to the policy",
    Reason.PRELOAD: "it is loaded at start as long as `preload` is set for it",
    Reason.PINNED: "unpinning it leaves it to the policy",
    Reason.IN_FLIGHT: "it is not unloaded while it serves requests",
    Reason.MINIMUM_RESIDENCY: "a shorter `scheduler.min_residency_seconds` would have let it go",
    Reason.LOAD_SLOTS_FULL: "with one load fewer under way, it would have begun at once",
    Reason.PREFETCH_OFF: "switching `optimization.prefetch_enabled` on would have it considered",
    Reason.PREFETCH_WASTE: "fewer unused prefetches lower the price of the next one",
    Reason.OBSERVE_ONLY: "in mode active it would have been ordered",
    Reason.NEVER_FITS: "a larger budget, or a smaller variant of the model, would let it in",
    Reason.UNKNOWN_FOOTPRINT: "a measured load, or `memory_footprint_mb` in its profile, tells it",
    Reason.NO_FORECAST: "a few more requests give it a forecast",
    Reason.FORECAST_DEGRADED: "its forecast is used again once it beats the naive floor",
    Reason.COOL_DOWN: "it is tried again when LocalAI's cool-down ends",
    Reason.NODE_LOST: "its node answering again",
    Reason.FAIR_TURN: "fewer requests waiting for the other model would have let it stay",
    Reason.MAY_WAIT: "a realtime request for it would have been loaded for at once",
}


def what_would_change(decision: Decision) -> tuple[str, ...]:
    """Sentences, the most telling first; empty where nothing can be said."""
    numbers = {
        name: float(value) for name, value in decision.evidence if isinstance(value, int | float)
    }
    said = [text for rule in _RULES if (text := rule(decision, numbers)) is not None]
    general = _OTHERWISE.get(decision.reason)
    if general is not None:
        said.append(f"{general[0].upper()}{general[1:]}.")
    if ("mode", "observe") in decision.evidence:
        said.append("The mode is observe: in active it would have been ordered.")
    return tuple(said)


def _gain(decision: Decision, numbers: Numbers) -> str | None:
    gain, price = numbers.get("gain"), numbers.get("must_beat")
    if gain is None or price is None:
        return None
    if decision.outcome is Outcome.CHANGE:
        return (
            f"It gains {gain:.3g} and had to beat {price:.3g}: "
            f"{gain - price:.3g} less and it would not have been loaded."
        )
    return (
        f"It would gain {gain:.3g} and has to beat {price:.3g}: "
        f"{price - gain:.3g} more and it would be loaded."
    )


def _likelier(decision: Decision, numbers: Numbers) -> str | None:
    """A prefetch's gain is in proportion to how likely the request is."""
    gain, price, chance = (numbers.get(name) for name in ("gain", "must_beat", "probability"))
    if decision.outcome is not Outcome.HOLD or not gain or price is None or chance is None:
        return None
    needed = chance * price / gain
    if needed >= 1.0:
        return f"Even a certain request (now {100 * chance:.0f} %) would not have been enough."
    return f"A request {100 * needed:.0f} % likely (now {100 * chance:.0f} %) would be enough."


def _loss(decision: Decision, numbers: Numbers) -> str | None:
    if decision.reason is not Reason.LEAST_EXPECTED_LOSS:
        return None
    loss, chance = numbers.get("loss"), numbers.get("probability")
    if loss is None or chance is None:
        return None
    return (
        f"Its expected loss of {loss:.3g} ({100 * chance:.0f} % likely to be used) was the least "
        "for the room it gives; a likelier request, or a longer load, would have spared it."
    )


def _room(_decision: Decision, numbers: Numbers) -> str | None:
    needs, occupied, usable = (
        numbers.get(name) for name in ("needs_mb", "occupied_mb", "usable_mb")
    )
    if needs is None or occupied is None or usable is None:
        return None
    short = needs + occupied - usable
    if short <= 0:
        return None
    return f"It is {short:,.0f} MB short: that much less beside it, and it would have been loaded."


def _idle(decision: Decision, numbers: Numbers) -> str | None:
    idle_s = numbers.get("idle_s")
    if idle_s is None or decision.outcome is not Outcome.CHANGE:
        return None
    return f"A request within the last {idle_s:.0f} s would have spared it."


_RULES = (_gain, _likelier, _loss, _room, _idle)
