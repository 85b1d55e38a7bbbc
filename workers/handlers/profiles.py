"""Maintenance: what was measured of models is gone through at night.

Profiles of models that nobody has used for long go. Where nothing is stored of a model that was
seen to load, as after the store was lost, its load times are taken from the log again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from contracts.errors import Invalid
from contracts.events import AnyEvent, ModelLoaded
from contracts.ids import ModelId, NodeId
from contracts.profiles import LOAD_COLD, MeasuredProfile, Measures, Series
from contracts.seen_events import SeenEvents
from workers.tools import JobContext, Tools

KIND = "profiles"
_AT_ONCE = 5000


def outdated(
    profiles: Mapping[ModelId, MeasuredProfile], *, now_s: float, max_age_s: float
) -> tuple[ModelId, ...]:
    """Models to whose profile nothing was added for so long. Pure."""
    return tuple(
        sorted(name for name, profile in profiles.items() if now_s - profile.at_s > max_age_s)
    )


def rebuilt(
    events: Iterable[AnyEvent], known: Mapping[ModelId, MeasuredProfile]
) -> tuple[MeasuredProfile, ...]:
    """Profiles of models that are not ``known``, by the loads that the log tells of. Pure."""
    loads: dict[ModelId, dict[NodeId, Series]] = defaultdict(dict)
    for event in events:
        if isinstance(event, ModelLoaded) and event.load_s is not None and event.model not in known:
            series = loads[event.model].get(event.node, Series())
            loads[event.model][event.node] = series.plus(event.load_s, event.at_s)
    return tuple(
        MeasuredProfile(
            model=model,
            measures=tuple(
                Measures(node=node, series={LOAD_COLD: series}, at_s=series.at_s)
                for node, series in by_node.items()
            ),
        )
        for model, by_node in sorted(loads.items())
    )


async def run(
    payload: Mapping[str, object], _context: JobContext, tools: Tools
) -> Mapping[str, object]:
    """Go through all profiles once; a second run finds nothing left to do.

    Raises
    ------
    Invalid
        The payload is not empty, or this worker has no profiles.
    Transient
        A store did not answer.
    """
    if payload:
        raise Invalid(f'payload: unknown "{min(payload)}"; profiles takes none')
    if tools.profiles is None or tools.events is None:
        raise Invalid("this worker has no profiles")
    now_s = tools.clock.now_s()
    known = await tools.profiles.get_all()
    old = outdated(known, now_s=now_s, max_age_s=tools.retention.profile_age_s)
    if old:
        await tools.profiles.remove(old)
    anew = rebuilt(await _loads(tools), known)
    fresh = tuple(p for p in anew if now_s - p.at_s <= tools.retention.profile_age_s)
    if fresh:
        await tools.profiles.put(fresh)
    return {"removed": list(old), "rebuilt": [profile.model for profile in fresh]}


async def _loads(tools: Tools) -> list[AnyEvent]:
    assert tools.events is not None
    found: list[AnyEvent] = []
    seen, place = SeenEvents(), "0"
    while entries := await tools.events.read_after(place, count=_AT_ONCE):
        place = entries[-1].entry_id
        told = seen.fresh(entry.value for entry in entries)
        found += [event for event in told if isinstance(event, ModelLoaded)]
    return found
