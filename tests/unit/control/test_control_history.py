from __future__ import annotations

from api.control.history import DemandHistory, HistoryRow
from contracts.forecasts import (
    HORIZONS_S,
    Forecast,
    ForecastStatus,
    HorizonForecast,
    ModelForecast,
    Signal,
)
from contracts.ids import ModelId

LLAMA = ModelId("llama")
MINUTE = 60.0


def forecast(made_at_s: float, scale: float = 1.0, model: ModelId = LLAMA) -> ModelForecast:
    """Each horizon's median says how long it is in minutes, times ``scale``."""
    return ModelForecast(
        model=model,
        next_use=None,
        signals=(
            Forecast(
                model=model,
                signal=Signal.ARRIVALS,
                made_at_s=made_at_s,
                expires_at_s=made_at_s + 60,
                horizons=tuple(
                    HorizonForecast(
                        horizon_s=horizon_s,
                        mean=1.0,
                        quantiles=(0.0, scale * horizon_s / 60, 100.0, 200.0),
                        method="naive",
                        status=ForecastStatus.READY,
                        loss=None,
                        floor_loss=None,
                        coverage_ratio=None,
                    )
                    for horizon_s in HORIZONS_S
                ),
            ),
        ),
    )


def row_at(
    history: DemandHistory, minute: int, *, horizon_s: float = 60.0, now_s: float = 600.0
) -> HistoryRow:
    rows = history.rows(LLAMA, horizon_s=horizon_s, now_s=now_s, minutes=8)
    return next(row for row in rows if row.start_s == minute * MINUTE)


def test_requests_are_counted_in_their_minute_and_summed_over_the_window():
    history = DemandHistory()
    history.counting_since(0.0)
    for at_s in (120.0, 179.9, 180.0, 410.0):
        history.arrived(LLAMA, at_s)
    assert [row_at(history, minute).count for minute in (2, 3, 4, 6)] == [2, 1, 0, 1]
    five_minutes = row_at(history, 6, horizon_s=300.0)
    assert five_minutes.count == 1
    assert five_minutes.window_count == 4  # minutes 2 to 6


def test_a_minute_that_has_not_ended_has_no_count():
    history = DemandHistory()
    history.counting_since(0.0)
    history.arrived(LLAMA, 605.0)
    current = row_at(history, 10, now_s=630.0)
    assert (current.count, current.window_count) == (None, None)


def test_before_counting_began_is_unknown_and_not_zero():
    history = DemandHistory()
    history.counting_since(190.0)  # within minute 3, which was counted in part only
    history.counting_since(250.0)  # a later word does not move the beginning
    assert row_at(history, 3).count is None
    assert row_at(history, 4).count == 0
    assert row_at(history, 5, horizon_s=300.0).window_count is None


def test_nobody_ever_counted():
    assert row_at(DemandHistory(), 5).count is None


def test_a_band_stands_for_the_window_that_begins_where_it_was_made():
    history = DemandHistory()
    history.forecast_made(forecast(300.0))
    one_minute = row_at(history, 5)
    assert one_minute.quantiles == (0.0, 1.0, 100.0, 200.0)
    # Made at minute 5 about five minutes: the window ends with minute 9.
    assert row_at(history, 9, horizon_s=300.0).quantiles == (0.0, 5.0, 100.0, 200.0)
    assert row_at(history, 5, horizon_s=300.0).quantiles is None


def test_of_several_forecasts_the_closest_to_the_full_minute_counts():
    history = DemandHistory()
    for made_at_s, scale in ((290.0, 1.0), (302.0, 2.0), (310.0, 3.0), (329.0, 4.0)):
        history.forecast_made(forecast(made_at_s, scale))
    assert row_at(history, 5).quantiles == (0.0, 2.0, 100.0, 200.0)
    history.forecast_made(forecast(331.0, 5.0))  # belongs to the next minute
    assert row_at(history, 6).quantiles == (0.0, 5.0, 100.0, 200.0)


def test_what_is_forecast_now_reaches_past_now():
    history = DemandHistory()
    history.forecast_made(forecast(600.0))
    rows = history.rows(LLAMA, horizon_s=900.0, now_s=600.0, minutes=8)
    assert rows[-1].end_s == 600.0 + 16 * MINUTE
    ahead = next(row for row in rows if row.end_s == 600.0 + 900.0)
    assert ahead.quantiles == (0.0, 15.0, 100.0, 200.0)
    assert ahead.window_count is None


def test_old_minutes_are_overwritten_and_late_events_do_not_spoil_them():
    history = DemandHistory(minutes=70)
    history.counting_since(0.0)
    history.arrived(LLAMA, 60.0)
    history.forecast_made(forecast(60.0, 7.0))
    history.arrived(LLAMA, 71 * MINUTE)  # the same place in the ring as minute 1
    history.forecast_made(forecast(71 * MINUTE, 8.0))
    history.arrived(LLAMA, 60.0)
    history.forecast_made(forecast(60.0, 9.0))
    now_s = 75 * MINUTE
    assert row_at(history, 71, now_s=now_s).count == 1
    assert row_at(history, 71, now_s=now_s).quantiles == (0.0, 8.0, 100.0, 200.0)


def test_a_wish_for_more_minutes_than_are_kept_is_cut():
    history = DemandHistory(minutes=70)
    rows = history.rows(LLAMA, horizon_s=3600.0, now_s=100 * MINUTE, minutes=240)
    assert rows[0].start_s == 90 * MINUTE


def test_models_are_bounded_and_a_forgotten_ones_counts_are_unknown():
    history = DemandHistory(max_models=2)
    history.counting_since(0.0)
    assert row_at(history, 5).count == 0  # known to have had none
    for name in ("llama", "mistral", "llama", "whisper"):
        history.arrived(ModelId(name), 300.0)
    assert history.models == ("llama", "whisper")
    assert history.forgotten == 1
    other = history.rows(ModelId("mistral"), horizon_s=60.0, now_s=600.0, minutes=8)
    assert {row.count for row in other} == {None}


def test_forecasts_without_arrivals_or_with_odd_shapes_are_left_out():
    history = DemandHistory()
    history.forecast_made(ModelForecast(model=LLAMA, next_use=None, signals=()))
    odd = forecast(300.0)
    horizons = tuple(
        HorizonForecast(
            horizon_s=horizon_s,
            mean=1.0,
            quantiles=quantiles,
            method="naive",
            status=ForecastStatus.READY,
            loss=None,
            floor_loss=None,
            coverage_ratio=None,
        )
        for horizon_s, quantiles in ((60.0, (1.0,)), (77.0, (1.0, 2.0, 3.0, 4.0)))
    )
    signal = odd.signals[0]
    history.forecast_made(
        ModelForecast(
            model=LLAMA,
            next_use=None,
            signals=(
                Forecast(
                    model=LLAMA,
                    signal=Signal.ARRIVALS,
                    made_at_s=signal.made_at_s,
                    expires_at_s=signal.expires_at_s,
                    horizons=horizons,
                ),
            ),
        )
    )
    rows = history.rows(LLAMA, horizon_s=60.0, now_s=600.0, minutes=8)
    assert {row.quantiles for row in rows} == {None}
    unknown = history.rows(LLAMA, horizon_s=77.0, now_s=600.0, minutes=8)
    assert {row.quantiles for row in unknown} == {None}
