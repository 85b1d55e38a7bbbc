"""Backtests and schedules over the control API."""

from __future__ import annotations

from collections.abc import Iterator

import aiohttp
import pytest

from contracts.errors import Transient
from contracts.insights import BacktestReport, BacktestScore, ModelScore
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration

LIMIT = aiohttp.ClientTimeout(total=10)


@pytest.fixture(scope="module")
def control() -> Iterator[RunningControl]:
    control = RunningControl(minutes=1).start()
    yield control
    control.stop()


def report(model) -> BacktestReport:
    score = BacktestScore(
        method="mixture",
        horizon_s=300.0,
        scaled_pinball=0.42,
        rmsse=0.9,
        coverage_80=0.8,
        brier=None,
        reliability_max_error=None,
        looks=900,
    )
    return BacktestReport(
        workload="events",
        made_at_s=100.0,
        from_s=0.0,
        until_s=90.0,
        took_s=2.0,
        models=1,
        requests=10,
        champion="boosted",
        reason="better over the last week (0.400 to 0.420)",
        scores=(score,),
        by_model=(ModelScore(model=model, mixture=0.42, boosted=0.4),),
    )


async def ask(control: RunningControl, path: str):
    async with (
        aiohttp.ClientSession(timeout=LIMIT) as session,
        session.get(control.url + path) as answer,
    ):
        return answer.status, await answer.json()


async def test_the_newest_tables_and_who_is_champion_are_shown(control):
    (model, *_) = control.room.board.forecasts
    status, before = await ask(control, f"/v1/forecasts/{model}")
    assert (status, before["backtest"]) == (200, None)
    assert (await ask(control, "/v1/backtests"))[1]["data"] == []
    control.do(control.insights.put_backtest(report(model)))
    status, page = await ask(control, "/v1/backtests")
    (table,) = page["data"]
    assert (status, table["id"], table["champion"]) == (200, "events", "boosted")
    assert table["rows"][0]["scaled_pinball"] == 0.42
    assert table["rows"][0]["brier"] is None
    _, forecast = await ask(control, f"/v1/forecasts/{model}")
    assert forecast["backtest"] == {
        "made_at_s": 100.0,
        "champion": "boosted",
        "reason": "better over the last week (0.400 to 0.420)",
        "mixture": 0.42,
        "boosted": 0.4,
    }
    other = control.room.board.forecasts
    unscored = next((name for name in other if name != model), None)
    if unscored is not None:
        _, forecast = await ask(control, f"/v1/forecasts/{unscored}")
        assert (forecast["backtest"]["mixture"], forecast["backtest"]["champion"]) == (
            None,
            "boosted",
        )


async def test_forecasts_are_shown_though_backtests_cannot_be_read(control):
    (model, *_) = control.room.board.forecasts
    control.insights.fault = Transient("away")
    try:
        status, forecast = await ask(control, f"/v1/forecasts/{model}")
        assert (status, forecast["backtest"]) == (200, None)
        assert (await ask(control, "/v1/backtests"))[0] == 503
    finally:
        control.insights.fault = None


async def test_without_a_store_of_backtests_that_is_said():
    control = RunningControl(minutes=1, jobs=False).start()
    try:
        status, answer = await ask(control, "/v1/backtests")
        assert (status, answer["error"]["code"]) == (503, "no_backtests")
    finally:
        control.stop()


async def test_the_schedule_and_the_state_of_the_last_time_are_shown(control):
    _, page = await ask(control, "/v1/jobs")
    chores = {chore["id"]: chore for chore in page["maintenance"]}
    assert list(chores) == ["retention", "backtest", "retrain", "profiles"]
    assert all(chore["next_at_s"] > control.lively.clock.now_s() for chore in chores.values())
    assert chores["backtest"]["last_state"] is None
    jobs = control.room.ports.jobs
    assert jobs is not None
    jobs.enqueue("maintenance", "backtest", {}, chores["backtest"]["last_job_id"])
    _, page = await ask(control, "/v1/jobs")
    states = {chore["id"]: chore["last_state"] for chore in page["maintenance"]}
    assert states["backtest"] == "queued"
