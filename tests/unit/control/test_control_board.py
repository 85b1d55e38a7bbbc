from __future__ import annotations

import math
from dataclasses import replace

import pytest

from api.control import board as board_module
from api.control.board import Board
from api.control.feed import EventFeed
from api.control.group_views import group_views
from api.control.metrics import MAX_MODELS, ControlMetrics, render
from api.control.views import (
    comparison_views,
    decision_view,
    forecast_view,
    model_view,
    node_view,
    sla_view,
    summary_view,
)
from contracts.forecasts import (
    HORIZONS_S,
    NEXT_USE_GRID_S,
    Forecast,
    ForecastStatus,
    HorizonForecast,
    ModelForecast,
    NextUse,
    Signal,
)
from contracts.groups import GroupConfig
from contracts.ids import ModelId, NodeId
from contracts.plan import Decision, Outcome
from contracts.reasons import Reason
from contracts.routing import RoutingTable
from contracts.world import (
    Mode,
    ModelStatus,
    NodeStatus,
    PrefetchTally,
    Residency,
    ScheduledUse,
    Sla,
    Tier,
    Warmth,
    WorldSnapshot,
)
from simulator.memory_ports import MemoryEventLog, VirtualClock

LLAMA, NODE = ModelId("llama"), NodeId("n")
NOW_S = 1000.0


def status(
    name: str = "llama", residency: Residency = Residency.HOT, arrivals: int = 0
) -> ModelStatus:
    return ModelStatus(
        model=ModelId(name), node=NODE, residency=residency, footprint_bytes=10, arrivals=arrivals
    )


def world(*models: ModelStatus, taken_at_s: float = NOW_S) -> WorldSnapshot:
    return WorldSnapshot(
        taken_at_s=taken_at_s,
        nodes={NODE: NodeStatus(node=NODE, alive=True, budget_bytes=100)},
        models={one.model: one for one in models or (status(),)},
        prefetches=PrefetchTally(started=3, used=1, wasted=1),
        demand_loads=2,
    )


def board_of(*models: ModelStatus) -> Board:
    board = Board(default_target_s=2.0)
    board.world = world(*models)
    return board


def forecast(
    name: str = "llama", made_at_s: float = NOW_S, loss: float | None = 1.0
) -> ModelForecast:
    model = ModelId(name)
    horizon = HorizonForecast(
        horizon_s=HORIZONS_S[0],
        mean=1.0,
        quantiles=(0.0, 1.0, 2.0, 3.0),
        method="naive",
        status=ForecastStatus.READY,
        loss=loss,
        floor_loss=2.0,
        coverage_ratio=None,
    )
    return ModelForecast(
        model=model,
        next_use=NextUse(
            model=model,
            made_at_s=made_at_s,
            expires_at_s=made_at_s + 60,
            last_arrival_at_s=None,
            cumulative_hazard=tuple(delay_s / 60 for delay_s in NEXT_USE_GRID_S),
            method="gaps",
            status=ForecastStatus.READY,
            brier=None,
            floor_brier=None,
        ),
        signals=(
            Forecast(
                model=model,
                signal=Signal.ARRIVALS,
                made_at_s=made_at_s,
                expires_at_s=made_at_s + 60,
                horizons=(horizon,),
            ),
        ),
    )


def test_what_makes_the_world_stale_is_said():
    board = Board(default_target_s=2.0)
    assert board.stale_reason(NOW_S) == "no controller has published a snapshot yet"
    assert board.snapshot_age_s(NOW_S) is None
    board.world = world()
    assert board.stale_reason(NOW_S + 10) is None
    assert board.stale_reason(NOW_S + 40) == "the controller's last snapshot is 40 s old"
    assert board.stale_reason(NOW_S + 40, stale_after_s=60) is None
    board.store_fault = "ConnectionError: secret.example:6379"
    assert board.stale_reason(NOW_S) == "the store (Redis) does not answer"


def test_a_model_is_found_by_name_alias_forecast_or_target():
    board = board_of()
    board.routing = RoutingTable(
        token=1, made_at_s=0.0, mode=Mode.OBSERVE, aliases={"gpt-4": LLAMA}
    )
    board.take_forecasts([forecast("only-forecast")])
    board.slas = {ModelId("only-target"): Sla(model=ModelId("only-target"), target_s=1.0)}
    assert board.find_model("gpt-4") == LLAMA
    assert board.find_model("only-forecast") == "only-forecast"
    assert board.find_model("only-target") == "only-target"
    assert board.find_model("other") is None
    assert model_view(board, status(), NOW_S).aliases == ["gpt-4"]


def test_a_pin_shows_at_once_and_the_controller_has_the_last_word():
    board = board_of()
    assert not board.is_pinned(status())
    board.wish_pin(LLAMA, NOW_S, pinned=True)
    assert board.is_pinned(status())
    board.world = world(taken_at_s=NOW_S + 60)
    assert not board.is_pinned(status())  # it was refused, or undone elsewhere
    assert board.is_pinned(replace(status(), pinned=True))  # by the configuration


def test_a_target_is_what_was_set_else_what_is_configured_else_the_default():
    board = board_of()
    configured = Sla(model=LLAMA, target_s=5.0)
    board.world = replace(world(), slas={LLAMA: configured})
    assert board.target_s(LLAMA) == 5.0
    view = model_view(board, status(), NOW_S).sla
    assert view is not None
    assert view.source == "configured"
    board.slas = {LLAMA: Sla(model=LLAMA, target_s=1.0)}
    assert board.target_s(LLAMA) == 1.0
    assert sla_view(board, board.all_slas()[LLAMA], NOW_S).source == "set"
    assert board.target_s(ModelId("other")) == 2.0
    board.world = None
    assert board.all_slas() == board.slas


def test_a_deleted_target_does_not_come_back_from_an_older_snapshot():
    board = board_of()
    board.world = replace(world(), slas={LLAMA: Sla(model=LLAMA, target_s=5.0)})
    board.sla_deleted(LLAMA, NOW_S + 1)
    assert board.sla(LLAMA) is None
    assert board.all_slas() == {}
    board.world = replace(board.world, taken_at_s=NOW_S + 60)  # the configuration's own
    assert board.target_s(LLAMA) == 5.0


def test_forecasts_are_bounded_and_those_that_are_gone_go(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(board_module, "_MAX_FORECASTS", 2)
    board = Board(default_target_s=2.0)
    board.take_forecasts([forecast("a", 10.0), forecast("b", 20.0), forecast("c", 30.0)])
    assert list(board.forecasts) == ["b", "c"]
    assert board.forgotten_forecasts == 1
    assert board.forecast_age_s(35.0) == 5.0
    board.replace_forecasts({ModelId("c"): forecast("c", 31.0)})
    assert list(board.forecasts) == ["c"]
    board.replace_forecasts(
        {ModelId("e"): ModelForecast(model=ModelId("e"), next_use=None, signals=())}
    )
    assert board.forecast_age_s(35.0) is None


def test_the_comparison_is_over_as_many_arrivals():
    board = board_of()
    board.baselines = {
        "localai-lru": {"arrivals": 200.0, "cold_starts": 40.0, "odd": math.inf},
        "headstart": {"arrivals": 400.0, "cold_starts": 20.0},
    }
    (view,) = comparison_views(board)
    assert (view.policy, view.cold_starts, view.our_cold_starts) == ("localai-lru", 40.0, 10.0)
    assert view.avoided_cold_starts == 30.0
    assert "odd" not in view.figures
    headline = summary_view(board, NOW_S, time_scale=1.0, stale_after_s=15.0).comparison
    assert headline == view


def test_without_figures_of_ours_the_event_log_counts_and_nothing_is_not_zero():
    board = board_of()
    board.baselines = {"gdsf": {"arrivals": 100.0, "cold_starts": 7.0}, "told-nothing": {}}
    first, second = comparison_views(board)
    assert (first.our_cold_starts, first.avoided_cold_starts) == (None, None)
    assert (second.cold_starts, second.arrivals) == (None, None)
    board.tally.dispatched, board.tally.cold = 50, 5
    assert comparison_views(board)[0].our_cold_starts == 10.0
    board.baselines = {}
    assert summary_view(board, NOW_S, time_scale=1.0, stale_after_s=15.0).comparison is None


def test_the_summary_without_a_world_knows_nothing():
    summary = summary_view(Board(default_target_s=2.0), NOW_S, time_scale=1.0, stale_after_s=15.0)
    assert summary.mode is None
    assert summary.prefetches is None
    assert (summary.models_hot, summary.in_flight, summary.cold_ratio) == (None, None, None)
    assert summary.stale


def test_a_node_counts_what_our_models_take():
    board = board_of(status("a"), status("b"), status("c", Residency.COLD))
    assert board.world is not None
    view = node_view(board, board.world.nodes[NODE])
    assert (view.occupied_bytes, view.resident_models) == (20, 2)
    board.world = None
    assert node_view(board, NodeStatus(node=NODE)).occupied_bytes == 0


def test_a_forecast_is_seen_from_now():
    view = forecast_view(forecast(), NOW_S + 30)
    assert view.next_use is not None
    within_minute = next(p for p in view.next_use.probabilities if p.within_s == 60.0)
    assert within_minute.probability == pytest.approx(1 - math.exp(-1), abs=1e-3)
    assert not view.signals[0].expired
    horizon = view.signals[0].horizons[0]
    assert (horizon.skill_ratio, horizon.coverage_ratio) == (0.5, None)
    assert [q.level for q in horizon.quantiles] == [0.1, 0.5, 0.9, 0.99]
    late = forecast_view(forecast(loss=None), NOW_S + 61)
    assert late.signals[0].expired
    assert late.next_use is not None
    assert not late.next_use.valid
    assert late.signals[0].horizons[0].skill_ratio is None
    bare = ModelForecast(model=LLAMA, next_use=None, signals=())
    assert forecast_view(bare, NOW_S).next_use is None


def test_evidence_that_json_cannot_say_is_null():
    decision = Decision(
        policy="p",
        subject="llama",
        outcome=Outcome.HOLD,
        reason=Reason.NO_ROOM,
        evidence=(("gain_s", math.inf), ("usable_mb", "unknown"), ("n", 2)),
    )
    view = decision_view(decision, "5-0")
    assert [one.value for one in view.evidence] == [None, "unknown", 2]
    assert view.id == "5-0"


def test_metrics_show_what_is_and_no_more_models_than_bounded():
    clock = VirtualClock(NOW_S)
    many = [status(f"m{n:03}", arrivals=n) for n in range(MAX_MODELS + 5)]
    board = board_of(*many)
    board.take_forecasts([forecast(f"m{MAX_MODELS:03}"), forecast("m000")])
    metrics = ControlMetrics(board, EventFeed(boot="b"), MemoryEventLog(), clock)
    metrics.count("GET", "/v1/models/{model:path}", 200)
    text = render(metrics.read()).decode()
    assert "headstart_metrics_omitted_models 5.0" in text
    assert 'headstart_model_memory_bytes{model="m204"} 10.0' in text
    assert "m000" not in text  # the least busy; its forecast is left out too
    assert f'horizon="60s",model="m{MAX_MODELS:03}"' in text
    assert 'headstart_model_residency{model="m204",state="hot"} 1.0' in text
    assert 'headstart_model_residency{model="m204",state="cold"} 0.0' in text
    assert 'status="200"} 1.0' in text
    # What is not known has no sample, rather than a zero.
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert not [line for line in samples if line.startswith("headstart_sla_attainment_ratio")]
    board.world = world(status("only"))
    assert "m204" not in render(metrics.read()).decode()


def test_metrics_without_a_world():
    board = Board(default_target_s=2.0)
    board.baselines = {"localai-lru": {"cold_starts": 3.0}, "odd": {}}
    text = render(
        ControlMetrics(board, EventFeed(boot="b"), MemoryEventLog(), VirtualClock()).read()
    ).decode()
    assert 'headstart_baseline_cold_starts{policy="localai-lru"} 3.0' in text
    assert 'policy="odd"' not in text
    assert "headstart_mode_info{" not in text


def test_a_model_says_its_tier_its_group_and_when_a_schedule_wants_it():
    board = board_of()
    cold = replace(status(), residency=Residency.COLD, group="text_generation")
    plain = model_view(board, cold, NOW_S)
    assert (plain.tier, plain.weights_bytes, plain.cached_ratio) == (Tier.UNKNOWN, None, None)
    assert (plain.group, plain.scheduled_at_s) == ("text_generation", None)
    board.world = replace(
        world(),
        warmth={LLAMA: Warmth(model=LLAMA, weights_bytes=400, cached_bytes=100)},
        scheduled={LLAMA: ScheduledUse(starts_at_s=NOW_S + 60, ends_at_s=NOW_S + 120)},
    )
    view = model_view(board, cold, NOW_S)
    assert (view.tier, view.weights_bytes, view.cached_ratio) == (Tier.COLD, 400, 0.25)
    assert view.scheduled_at_s == NOW_S + 60
    assert model_view(board, replace(cold, residency=Residency.HOT), NOW_S).tier is Tier.HOT


def test_groups_are_shown_with_what_they_may_take_and_take():
    shared = {
        "late": GroupConfig(name="late", precedence=2, concurrency=1),
        "early": GroupConfig(name="early", memory_bytes=900, precedence=0),
    }
    busy = replace(status(), group="early", in_flight=2, waiting=3)
    early, late = group_views(replace(world(), models={LLAMA: busy}), shared)
    assert (early.id, early.models, early.resident_models) == ("early", 1, 1)
    assert (early.occupied_bytes, early.memory_limit_bytes) == (busy.occupied_bytes, 900)
    assert (early.in_flight, early.waiting) == (2, 3)
    assert (late.id, late.models, late.occupied_bytes, late.concurrency) == ("late", 0, 0, 1)


@pytest.mark.case("P111")
def test_how_far_readers_are_behind_the_log_is_told_where_it_is_known():
    board = Board(default_target_s=2.0)
    assert board.log_lags_s(NOW_S) == {}
    board.log_end = "15000-2"
    assert board.log_lags_s(NOW_S) == {}
    board.log_place = "12500-0"
    board.world = WorldSnapshot(taken_at_s=1.0, position="15000-1")
    assert board.log_lags_s(NOW_S) == {"control": 2.5, "controller": 0.0}
    board.world = WorldSnapshot(taken_at_s=1.0)
    assert board.log_lags_s(NOW_S) == {"control": 2.5}
