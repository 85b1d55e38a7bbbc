"""Whether this process lives, and whether it can serve."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from api.control.errors import error_body
from api.control.room import ControlRoom, Room
from contracts.predictors import Standing

router = APIRouter(tags=["health"])


class HealthView(BaseModel):
    """The process lives."""

    status: str = "ok"


class CheckView(BaseModel):
    """One thing that must hold. ``why``: what is wrong; null if nothing is.

    ``owner``, ``standbys``: of predictors, which one publishes and how many would take over.
    """

    name: str
    ok: bool
    age_s: float | None = None
    why: str | None = None
    owner: str | None = None
    standbys: int | None = None


class ReadyView(BaseModel):
    """All that must hold."""

    ready: bool
    checks: list[CheckView]


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz() -> HealthView:
    """Alive; depends on nothing."""
    return HealthView()


@router.head("/readyz", include_in_schema=False, response_model=None)
@router.get("/readyz", response_model=ReadyView)
async def readyz(room: Room) -> ReadyView | JSONResponse:
    """Can serve: the store answers, the controller and the predictor speak. 503 says why not."""
    view = ReadyView(ready=True, checks=_checks(room))
    wrong = [f"{check.name}: {check.why}" for check in view.checks if not check.ok]
    if not wrong:
        return view
    body = error_body("not_ready", "; ".join(wrong), code="not_ready")
    body |= {"ready": False, "checks": [check.model_dump() for check in view.checks]}
    return JSONResponse(body, status_code=503, headers={"Retry-After": "5"})


def _checks(room: ControlRoom) -> list[CheckView]:
    board, now_s = room.board, room.clock.now_s()
    away = board.store_fault is not None
    snapshot_age_s, forecast_age_s = board.snapshot_age_s(now_s), board.forecast_age_s(now_s)
    # Forecasts are renewed every ten seconds and expire after a minute.
    forecast_limit_s = max(60.0, room.stale_after_s)
    predictor = _age_check("predictor", forecast_age_s, forecast_limit_s, "forecast")
    return [
        CheckView(name="redis", ok=not away, why="it does not answer" if away else None),
        _sources_check(room),
        _age_check("controller", snapshot_age_s, room.stale_after_s, "snapshot"),
        _predictor_check(room, predictor),
    ]


def _predictor_check(room: ControlRoom, check: CheckView) -> CheckView:
    """By the age of forecasts alone: between two owners nothing is wrong yet."""
    living = room.board.living_predictors(room.clock.now_s())
    standbys = sum(one.standing is Standing.STANDBY for one in living)
    is_owned = bool(living) and living[0].standing is Standing.OWNER
    return check.model_copy(
        update={"owner": living[0].name if is_owned else None, "standbys": standbys}
    )


def _sources_check(room: ControlRoom) -> CheckView:
    """Whether each stream is followed. The details, which may name addresses, are in the log."""
    broken = ", ".join(sorted(room.followers.faults))
    return CheckView(
        name="sources", ok=not broken, why=f"cannot follow {broken}" if broken else None
    )


def _age_check(name: str, age_s: float | None, limit_s: float, what: str) -> CheckView:
    if age_s is None:
        why: str | None = f"no {what} was ever seen"
    elif age_s > limit_s:
        why = f"its newest {what} is {age_s:.0f} s old"
    else:
        why = None
    return CheckView(name=name, ok=why is None, age_s=age_s, why=why)
