"""The live feed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response

from api.control.errors import ApiError
from api.control.event_stream import EventStream
from api.control.feed import FeedFull
from api.control.room import READ, Room

router = APIRouter(tags=["events"], dependencies=READ)


@router.get(
    "/v1/events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def follow_events(
    room: Room, last_event_id: Annotated[str | None, Header(max_length=64)] = None
) -> EventStream:
    """The live feed, as server-sent events.

    ``hello``, ``summary``, ``models``, ``nodes``, ``queues``, ``forecasts`` and ``decision``.
    The first ones give the whole state, later ones what changed; with ``Last-Event-ID`` the
    decisions that were missed come too.
    """
    try:
        listener = room.feed.listen(last_event_id=last_event_id, opening=room.live.opening())
    except FeedFull:
        raise ApiError(
            503,
            "too_many_listeners",
            "as many pages as allowed follow the events already",
            code="too_many_listeners",
            retry_after_s=5.0,
        ) from None
    return EventStream(room.feed, listener, room.clock)
