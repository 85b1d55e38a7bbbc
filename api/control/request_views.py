"""One request as people see it: where its time went, and why. No clock, no I/O."""

from __future__ import annotations

from api.control import kpi_schemas as schemas
from api.control.kpis.journeys import Journey
from api.control.schemas import DecisionView

_WORDS = {
    "queue": "waiting for a free slot",
    "load": "waiting for its model to load",
    "first_content": "LocalAI's work up to the first content",
    "rest": "the rest of the answer",
    "upstream": "LocalAI's work",
}


def request_view(
    journey: Journey, now_s: float, decisions: list[DecisionView] | None = None
) -> schemas.RequestView:
    """What became of it; ``decisions`` are those about its model while it waited."""
    phases = phases_of(journey)
    return schemas.RequestView(
        id=journey.request_id,
        model=journey.model,
        operation=journey.operation,
        priority=journey.priority,
        stream=journey.stream,
        received_at_s=journey.received_at_s,
        ended_at_s=journey.ended_at_s,
        outcome=journey.outcome,  # type: ignore[arg-type]  # one of the four that are documented
        status=journey.status,
        error=journey.error or None,
        node=journey.node,
        cold=journey.cold,
        wait_s=journey.wait_s,
        load_s=journey.load_s,
        first_content_s=journey.ttft_s,
        duration_s=journey.duration_s,
        input_tokens=journey.input_tokens,
        output_tokens=journey.output_tokens,
        target_s=journey.target_s,
        met=journey.met,
        feedback=journey.score,
        phases=phases,
        sentence=why(journey, phases, now_s),
        decisions=decisions or [],
    )


def phases_of(journey: Journey) -> list[schemas.PhaseView]:
    """The parts of its time that are known, in their order; they add up to its duration."""
    parts: list[tuple[str, float]] = []
    waited_s, total_s = journey.wait_s, journey.duration_s
    if waited_s is None and journey.outcome == "completed":
        return []  # nobody recorded when it went on, as of those that the demo begins with
    if waited_s is None:
        # It never went anywhere: all of its time was spent waiting.
        waited_s = total_s if total_s is not None else None
        return [] if waited_s is None else [_phase("queue", waited_s)]
    load_s = journey.load_s or 0.0
    parts += [("queue", waited_s - load_s), ("load", load_s)]
    if journey.ttft_s is not None:
        parts.append(("first_content", journey.ttft_s - waited_s))
        if total_s is not None:
            parts.append(("rest", total_s - journey.ttft_s))
    elif total_s is not None:
        parts.append(("upstream", total_s - waited_s))
    return [_phase(name, seconds) for name, seconds in parts]


def why(journey: Journey, phases: list[schemas.PhaseView], now_s: float) -> str:
    """In one or two sentences."""
    said = _end(journey, now_s)
    if phases:
        total_s = sum(phase.seconds for phase in phases)
        slowest = max(phases, key=lambda phase: phase.seconds)
        if total_s > 0.0:
            share = f"{100 * slowest.seconds / total_s:.0f} %"
            said += (
                f" Most of its time, {slowest.seconds:.2f} s ({share}), was {_WORDS[slowest.name]}."
            )
    if journey.met is not None and journey.target_s is not None:
        verb = "met" if journey.met else "missed"
        said += f" It {verb} its target of {journey.target_s:g} s."
    return said


def _end(journey: Journey, now_s: float) -> str:
    if journey.outcome == "open":
        for_s = max(0.0, now_s - journey.received_at_s)
        if journey.dispatched_at_s is None:
            return f"It has been waiting for {for_s:.1f} s."
        return f"It is being answered, {for_s:.1f} s after it came."
    took = f" after {journey.duration_s:.2f} s" if journey.duration_s is not None else ""
    if journey.outcome == "failed":
        whose = f" ({journey.origin.value})" if journey.origin is not None else ""
        return f"It failed{took}: {journey.error or 'no reason told'}{whose}."
    if journey.outcome == "cancelled":
        who = "It was preempted" if journey.left_because == "preempted" else "Its caller left"
        return f"{who}{took}, while it was {journey.phase or 'under way'}."
    return f"It was answered with {journey.status}{took}."


def _phase(name: str, seconds: float) -> schemas.PhaseView:
    # Two clocks were read: what comes out below nothing is nothing.
    return schemas.PhaseView(name=name, seconds=round(max(0.0, seconds), 4))  # type: ignore[arg-type]  # one of the five
