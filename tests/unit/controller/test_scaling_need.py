"""What a target is asked for: live requests of people, and what a forecast adds."""

from __future__ import annotations

import math

import pytest

from contracts.events import PriorityClass
from contracts.forecasts import (
    HORIZONS_S,
    Forecast,
    ForecastStatus,
    HorizonForecast,
    ModelForecast,
    Signal,
)
from contracts.ids import ModelId, RequestId
from contracts.scaling import ScalingTarget
from contracts.world import OpenRequest, WorldSnapshot
from controller.scaling.need import need_of

NOW_S = 1000.0
CHAT = ScalingTarget(name="chat", models=("chat-*",), start_s=90.0)


def request(model: str = "chat-a", *, sent: bool = True, priority=PriorityClass.REALTIME):
    return OpenRequest(
        model=ModelId(model),
        source="g",
        received_at_s=NOW_S,
        dispatched_at_s=NOW_S if sent else None,
        priority=priority,
    )


def world(*requests: OpenRequest) -> WorldSnapshot:
    return WorldSnapshot(
        taken_at_s=NOW_S, requests={RequestId(str(n)): one for n, one in enumerate(requests)}
    )


def horizon(at_s: float, mean: float, high: float, status=ForecastStatus.READY) -> HorizonForecast:
    return HorizonForecast(
        horizon_s=at_s,
        mean=mean,
        quantiles=(0.0, mean, high, high),
        method="x",
        status=status,
        loss=None,
        floor_loss=None,
        coverage_ratio=None,
    )


def signal(model: str, which: Signal, *horizons: HorizonForecast, expires_at_s: float = 2000.0):
    return Forecast(
        model=ModelId(model),
        signal=which,
        made_at_s=NOW_S,
        expires_at_s=expires_at_s,
        horizons=horizons,
    )


def forecast(
    model: str,
    mean: float,
    high: float,
    *,
    took_s: float | None = 10.0,
    status=ForecastStatus.READY,
    expires_at_s: float = 2000.0,
    horizons_s: tuple[float, ...] = HORIZONS_S,
) -> dict[ModelId, ModelForecast]:
    counts = [horizon(at_s, mean * at_s, high * at_s, status) for at_s in horizons_s]
    signals = [signal(model, Signal.ARRIVALS, *counts, expires_at_s=expires_at_s)]
    if took_s is not None:
        signals.append(signal(model, Signal.DURATION_S, horizon(60.0, took_s, took_s)))
    return {
        ModelId(model): ModelForecast(model=ModelId(model), next_use=None, signals=tuple(signals))
    }


def test_requests_of_people_count_by_where_they_are():
    need = need_of(
        CHAT,
        world(
            request(),
            request("chat-b"),
            request(sent=False),
            request("image"),
            request(priority=PriorityClass.BATCH),
            request(priority=PriorityClass.BACKGROUND, sent=False),
        ),
        {},
    )
    assert (need.in_flight, need.waiting, need.live, need.expected) == (2, 1, 3, None)


def test_a_target_without_models_serves_all():
    assert need_of(ScalingTarget(name="all"), world(request("image")), {}).in_flight == 1


def test_what_is_expected_is_rate_times_duration_high_but_not_highest_for_each():
    both = forecast("chat-a", 0.3, 0.6) | forecast("chat-b", 0.4, 0.8) | forecast("image", 9, 9)
    need = need_of(CHAT, world(), both)
    assert need.expected == pytest.approx(
        7.0 + 1.645 * math.sqrt((3.0**2 + 4.0**2) / 1.2816**2 + 7.0)
    )


def test_the_horizon_that_a_start_reaches_to_counts_else_the_last():
    mixed = {
        ModelId("chat-a"): ModelForecast(
            model=ModelId("chat-a"),
            next_use=None,
            signals=(
                signal("chat-a", Signal.ARRIVALS, horizon(60.0, 600, 600), horizon(300.0, 30, 30)),
                signal("chat-a", Signal.DURATION_S, horizon(60.0, 10.0, 10.0)),
            ),
        )
    }
    at_once = 1.0 + 1.645
    assert need_of(CHAT, world(), mixed).expected == pytest.approx(at_once)
    far = ScalingTarget(name="far", start_s=9000.0)
    assert need_of(far, world(), mixed).expected == pytest.approx(at_once)
    near = ScalingTarget(name="near", start_s=30.0)
    assert need_of(near, world(), mixed).expected == pytest.approx(100.0 + 16.45)


def test_on_a_rising_flank_what_comes_towards_the_end_counts():
    rising = {
        ModelId("chat-a"): ModelForecast(
            model=ModelId("chat-a"),
            next_use=None,
            signals=(
                signal("chat-a", Signal.ARRIVALS, horizon(60.0, 6, 6), horizon(300.0, 54, 54)),
                signal("chat-a", Signal.DURATION_S, horizon(60.0, 10.0, 10.0)),
            ),
        )
    }
    expected = need_of(CHAT, world(), rising).expected
    assert expected == pytest.approx(2.0 + 1.645 * math.sqrt(2.0))


@pytest.mark.parametrize(
    "unusable",
    [
        {"took_s": None},
        {"expires_at_s": NOW_S},
        {"status": ForecastStatus.DEGRADED},
        {"horizons_s": ()},
    ],
)
def test_a_forecast_that_may_not_be_used_is_absent_and_not_zero(unusable):
    assert need_of(CHAT, world(), forecast("chat-a", 1.0, 2.0, **unusable)).expected is None


def test_a_duration_without_numbers_is_none():
    bare = ModelForecast(
        model=ModelId("chat-a"),
        next_use=None,
        signals=(
            signal("chat-a", Signal.ARRIVALS, horizon(300.0, 30, 30)),
            signal("chat-a", Signal.DURATION_S),
        ),
    )
    assert need_of(CHAT, world(), {ModelId("chat-a"): bare}).expected is None
