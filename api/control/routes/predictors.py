"""Which predictors there are: the one whose forecasts are published, and those that stand by."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from api.control.errors import store_away
from api.control.room import READ, Room
from contracts.ports import entry_lag_s
from contracts.predictors import PredictorBeat, Standing

router = APIRouter(tags=["predictors"], dependencies=READ)


class PredictorView(BaseModel):
    """One predictor that lives.

    ``since_s``: since when it stands so. ``log_lag_s``: how far it is behind the end of the event
    log. ``start_s``: how long it took to know what there was to know; null: it is at it.
    """

    name: str
    host: str
    standing: Standing
    is_owner: bool
    since_s: float
    heard_at_s: float
    token: int | None
    models: int
    log_lag_s: float | None
    refused_writes: int
    start_s: float | None


class PredictorsView(BaseModel):
    """All of them, the owner first. ``owner``: null where nobody's forecasts are published."""

    owner: str | None
    standbys: int
    data: list[PredictorView]
    stale: bool


@router.get("/v1/predictors")
async def list_predictors(room: Room) -> PredictorsView:
    """Who publishes, and who would take over."""
    board = room.board
    living = board.living_predictors(room.clock.now_s())
    if not living and board.store_fault is not None:
        raise store_away()
    owner = living[0] if living and living[0].standing is Standing.OWNER else None
    return PredictorsView(
        owner=None if owner is None else owner.name,
        standbys=sum(one.standing is Standing.STANDBY for one in living),
        data=[_view(one, owner, board.log_end) for one in living],
        stale=board.store_fault is not None,
    )


def _view(one: PredictorBeat, owner: PredictorBeat | None, log_end: str | None) -> PredictorView:
    return PredictorView(
        name=one.name,
        host=one.host,
        standing=one.standing,
        is_owner=one is owner,
        since_s=one.since_s,
        heard_at_s=one.at_s,
        token=one.token,
        models=one.models,
        log_lag_s=None if log_end is None else entry_lag_s(one.place, log_end),
        refused_writes=one.refused,
        start_s=one.start_s,
    )
