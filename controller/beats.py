"""Gateways' beats against the open requests that the world counts for them: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from contracts.ids import ModelId, RequestId
from contracts.messages import GatewayBeat
from contracts.world import WorldSnapshot
from controller.open_requests import end_request
from controller.roster import GONE_AFTER_S, Roster, gone_after_s

BEAT_GRACE_S = 2.0
"""An open request that its gateway's beat does not count is dropped only when it is older
than this at the beat: events and beats travel separately."""


def fold_beat(world: WorldSnapshot, beat: GatewayBeat) -> WorldSnapshot:
    """Drop open requests that their gateway no longer counts: their end was lost on the way."""
    if beat.leaving:
        return drop_gateway(world, beat.gateway, beat.at_s)
    settled_s = beat.at_s - BEAT_GRACE_S
    waiting: dict[ModelId, list[RequestId]] = {}
    flying: dict[ModelId, list[RequestId]] = {}
    for request_id, request in world.requests.items():
        if request.source != beat.gateway:
            continue
        sent_s = request.dispatched_at_s
        if (request.received_at_s if sent_s is None else sent_s) < settled_s:
            kind = waiting if sent_s is None else flying
            kind.setdefault(request.model, []).append(request_id)
    for model in dict.fromkeys((*waiting, *flying)):
        held, sent = waiting.get(model, []), flying.get(model, [])
        held_there, sent_there = beat.waiting.get(model, 0), beat.in_flight.get(model, 0)
        # A beat may overtake the event that a request was sent: it then counts as in flight
        # there and as waiting here, so only what the two sums differ by has ended.
        ended = max(0, len(held) + len(sent) - held_there - sent_there)
        uncounted = [
            *held[: max(0, len(held) - held_there)],
            *sent[: max(0, len(sent) - sent_there)],
        ]
        for request_id in uncounted[:ended]:
            world = end_request(world, request_id, beat.at_s)
    return world


def with_preemptible(world: WorldSnapshot, counts: Mapping[ModelId, int]) -> WorldSnapshot:
    """What gateways say that they may cancel now, over all of them."""
    changed = {
        name: replace(status, preemptible=counts.get(name, 0))
        for name, status in world.models.items()
        if status.preemptible != counts.get(name, 0)
    }
    return replace(world, models={**world.models, **changed}) if changed else world


def drop_gateway(world: WorldSnapshot, gateway: str, now_s: float) -> WorldSnapshot:
    """End every request of a gateway that is gone."""
    for request_id, request in tuple(world.requests.items()):
        if request.source == gateway:
            world = end_request(world, request_id, now_s)
    return world


def unheard_sources(
    world: WorldSnapshot, roster: Roster, now_s: float, *, after_s: float = GONE_AFTER_S
) -> tuple[str, ...]:
    """Who holds requests that are older than a gateway may be silent, and is not there."""
    return tuple(
        dict.fromkeys(
            request.source
            for request in world.requests.values()
            if request.source not in roster.beats
            and max(request.received_at_s, request.dispatched_at_s or 0.0) < now_s - after_s
        )
    )


@dataclass(frozen=True, slots=True)
class Silence:
    """The world and the roster without gateways that were silent for too long.

    ``gone``: who that is; ``is_news``: one of them was on the roster.
    """

    world: WorldSnapshot
    roster: Roster
    gone: tuple[str, ...] = ()
    is_news: bool = False


def silenced(
    world: WorldSnapshot, roster: Roster, since_s: float | None, now_s: float, scale: float
) -> Silence:
    """Forget gateways that were silent for too long, be it since before this term.

    ``since_s``: since when beats are heard without a break; None: they are not. ``scale``: as in
    ``gone_after_s``.
    """
    after_s = gone_after_s(scale)
    if since_s is None or now_s < since_s + after_s:
        return Silence(world, roster)
    roster, silent = roster.without_silent(now_s, after_s=after_s)
    unheard = unheard_sources(world, roster, now_s, after_s=after_s)
    gone = tuple(dict.fromkeys((*silent, *unheard)))
    for gateway in gone:
        world = drop_gateway(world, gateway, now_s)
    return Silence(world, roster, gone, is_news=bool(silent))
