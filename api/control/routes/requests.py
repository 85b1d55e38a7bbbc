"""Single requests of the last day: where their time went, and how their callers liked it."""

from __future__ import annotations

import itertools
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from api.control import kpi_schemas as schemas
from api.control.errors import ApiError, not_found
from api.control.kpis.journeys import Journey
from api.control.paging import Limit
from api.control.request_views import request_view
from api.control.room import READ, Caller, ControlRoom, Room
from api.control.schemas import DecisionView, Page
from api.control.views import decision_view
from contracts.events import FeedbackGiven

router = APIRouter(tags=["requests"])

_LOOKED_AT = 5000
_DECISIONS = 200


@router.get("/v1/requests", dependencies=READ)
async def list_requests(
    room: Room,
    limit: Limit = 20,
    model: Annotated[str | None, Query(max_length=512, description="Only this model's.")] = None,
    order: Annotated[
        Literal["newest", "slowest"], Query(description="Slowest: of the newest 5,000.")
    ] = "newest",
) -> Page[schemas.RequestView]:
    """Requests of the last day."""
    name = None if model is None else room.model(model)
    found = (one for one in room.board.kpis.journeys.newest() if name in (None, one.model))
    looked_at = list(itertools.islice(found, _LOOKED_AT if order == "slowest" else limit + 1))
    if order == "slowest":
        looked_at.sort(key=_until_content_s, reverse=True)
    now_s = room.clock.now_s()
    data = [request_view(one, now_s) for one in looked_at[:limit]]
    return Page(data=data, has_more=len(looked_at) > limit, last_id=data[-1].id if data else None)


@router.get("/v1/requests/{request_id:path}", dependencies=READ)
async def get_request(room: Room, request_id: str) -> schemas.RequestView:
    """Why one request was slow, for a day; by the `X-Request-ID` of its answer."""
    journey = _journey(room, request_id)
    return request_view(journey, room.clock.now_s(), await _decided(room, journey))


@router.post("/v1/feedback", status_code=201)
async def give_feedback(
    room: Room,
    _user: Caller,
    body: schemas.FeedbackBody,
) -> schemas.FeedbackView:
    """Say how an answer was, by its `X-Request-ID`: a score from 0 to 1, or good or bad."""
    score = body.score
    if score is None:
        if body.rating is None:
            raise ApiError(
                422,
                "invalid_request_error",
                "score or rating is needed: 0 to 1, or good or bad",
                code="invalid_value",
                param="score",
            )
        score = 1.0 if body.rating == "good" else 0.0
    journey = _journey(room, body.request_id)
    event = FeedbackGiven(
        event_id=room.next_event_id(),
        at_s=room.clock.now_s(),
        source=room.source,
        request_id=journey.request_id,
        model=journey.model,
        score=score,
    )
    await room.ask(room.ports.events.append((event,)))
    return schemas.FeedbackView(request_id=journey.request_id, model=journey.model, score=score)


def _journey(room: ControlRoom, request_id: str) -> Journey:
    journey = room.board.kpis.journeys.get(request_id)
    if journey is None:
        raise not_found(
            "no request of the last day has this id", code="request_not_found", param="request_id"
        )
    return journey


async def _decided(room: ControlRoom, journey: Journey) -> list[DecisionView]:
    """Decisions about its model from its arrival to its dispatch, oldest first."""
    if journey.model is None:
        return []
    until_s = journey.dispatched_at_s or journey.ended_at_s or room.clock.now_s()
    entries = await room.ask(
        room.ports.decisions.newest(limit=_DECISIONS, subject=str(journey.model))
    )
    return [
        decision_view(entry.value, entry.entry_id)
        for entry in reversed(entries)
        if journey.received_at_s <= entry.value.made_at_s <= until_s
    ][:20]


def _until_content_s(journey: Journey) -> float:
    told_s = journey.ttft_s if journey.ttft_s is not None else journey.duration_s
    return told_s if told_s is not None else -1.0
