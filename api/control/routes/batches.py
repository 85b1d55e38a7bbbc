"""OpenAI's Batch API over the models of LocalAI."""

from __future__ import annotations

import secrets
from typing import Any, TypeVar

from fastapi import APIRouter

from api.control.batch_views import BatchBody, BatchView, batch_view
from api.control.errors import ApiError, not_found
from api.control.paging import After, Limit, cut_after
from api.control.room import Caller, ControlRoom, Room
from api.control.routes.files import find_file
from api.control.schemas import ErrorBody, Page
from api.control.users import User
from contracts.batch_lifecycle import cancelled_by_caller
from contracts.batches import (
    BATCH_ENDPOINTS,
    ENDED,
    WINDOWS_S,
    Batch,
    BatchStatus,
    BatchStore,
    FilePurpose,
    check_metadata,
)
from contracts.errors import Invalid

router = APIRouter(tags=["batches"])

MAX_OPEN_BATCHES = 1_000
_TRIES = 5

_FULL: dict[int | str, dict[str, Any]] = {
    429: {"model": ErrorBody, "description": "As many batches as allowed are open."}
}

T = TypeVar("T")


@router.post("/v1/batches", responses=_FULL)
async def add_batch(room: Room, user: Caller, body: BatchBody) -> BatchView:
    """Start a batch; its file is read and judged soon after."""
    if body.endpoint not in BATCH_ENDPOINTS:
        raise _wrong("endpoint", body.endpoint, BATCH_ENDPOINTS)
    if body.completion_window not in WINDOWS_S:
        raise _wrong("completion_window", body.completion_window, tuple(WINDOWS_S))
    check_metadata(body.metadata or {})
    file = await find_file(room, user, body.input_file_id)
    if file.purpose is not FilePurpose.BATCH:
        raise ApiError(
            400,
            "invalid_request_error",
            f"{file.file_id} is the output of a batch, no file of requests",
            code="invalid_purpose",
            param="input_file_id",
        )
    batches = store_of(room)
    known = await room.ask(batches.list())
    if sum(batch.status not in ENDED for batch in known) >= MAX_OPEN_BATCHES:
        raise ApiError(
            429,
            "rate_limit_error",
            f"{MAX_OPEN_BATCHES} batches are open already",
            code="too_many_batches",
            retry_after_s=60.0,
        )
    now_s = room.clock.now_s()
    batch = Batch(
        batch_id=f"batch_{secrets.token_hex(12)}",
        endpoint=body.endpoint,
        input_file_id=file.file_id,
        completion_window=body.completion_window,
        status=BatchStatus.VALIDATING,
        created_at_s=now_s,
        expires_at_s=now_s + WINDOWS_S[body.completion_window],
        metadata=body.metadata or {},
        models=user.models,
        owner=user.owner,
    )
    await room.ask(batches.add(batch))
    return batch_view(batch)


@router.get("/v1/batches")
async def list_batches(
    room: Room, user: Caller, limit: Limit = 20, after: After = None
) -> Page[BatchView]:
    """The caller's batches, newest first."""
    found = [b for b in await room.ask(store_of(room).list()) if user.sees(b.owner)]
    page, more = cut_after(found, limit=limit, after=after, key=lambda batch: batch.batch_id)
    data = [batch_view(batch) for batch in page]
    return Page(data=data, has_more=more, last_id=data[-1].id if data else None)


@router.get("/v1/batches/{batch_id}")
async def get_batch(room: Room, user: Caller, batch_id: str) -> BatchView:
    """Where a batch is."""
    return batch_view(await _find(room, user, batch_id))


@router.post("/v1/batches/{batch_id}/cancel")
async def cancel_batch(room: Room, user: Caller, batch_id: str) -> BatchView:
    """End a batch: what is done stays, what runs is broken off."""
    for _ in range(_TRIES):
        batch = await _find(room, user, batch_id)
        try:
            wanted = cancelled_by_caller(batch, room.clock.now_s())
        except Invalid as error:
            raise ApiError(
                409,
                "invalid_request_error",
                f"the batch is {batch.status.value}: there is nothing to cancel",
                code="batch_not_cancellable",
            ) from error
        if wanted == batch:
            return batch_view(batch)
        changed = await room.ask(store_of(room).replace(wanted))
        if changed is not None:
            return batch_view(changed)
    raise ApiError(
        503, "store_unavailable", "the batch changes too fast; try again", retry_after_s=1.0
    )


def store_of(room: ControlRoom) -> BatchStore:
    """The store of batches. Raises ApiError (503) where there is none."""
    if room.ports.batches is None:
        raise ApiError(503, "not_configured", "no batches are set up here", code="no_batches")
    return room.ports.batches


async def _find(room: ControlRoom, user: User, batch_id: str) -> Batch:
    batch = await room.ask(store_of(room).get(batch_id))
    if batch is None or not user.sees(batch.owner):
        raise not_found(
            f'no batch is called "{batch_id:.80}"', code="batch_not_found", param="batch_id"
        )
    return batch


def _wrong(param: str, value: str, allowed: tuple[str, ...]) -> ApiError:
    return ApiError(
        400,
        "invalid_request_error",
        f'{param} is "{value:.80}"; it must be one of {", ".join(allowed)}',
        code="invalid_value",
        param=param,
    )
