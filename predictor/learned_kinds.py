"""Of what classes the objects are that hold what was learned, and which of their fields are kept.

A class of ours that learns and is not here, or has another field than it has here, is not
written: ``tests/unit/predictor/test_predictor_snapshots.py`` says so at once.
"""

from __future__ import annotations

import math

from contracts.config import PredictorConfig
from contracts.forecasts import Signal
from contracts.seen_events import SeenEvents
from predictor import evaluation, guards, history, latency_book, open_requests, windows
from predictor.engine import PredictorEngine
from predictor.models import (
    boosted,
    calendar_slots,
    count_quantiles,
    decayed_rates,
    demand,
    demand_sources,
    drift,
    experts,
    following,
    gap_hazard,
    hedge,
    intents,
    latency,
    next_use,
    pool,
    pooled_rate,
    reliability,
    river_rate,
    river_season,
    said,
    slot_profile,
)
from predictor.object_codec import Kind, fields_of
from predictor.river_numbers import KINDS as RIVERS

_ENGINE: tuple[Kind, ...] = (
    fields_of(
        PredictorEngine,
        "_config _rows _names _free _room _rates _next_use _demand _latency _served _touched "
        "_dropped _filter _newest_s _now_s _advanced_s _utc_offset_s "
        "champion forgotten rewinds",
        # What was published is said anew at once.
        _published=dict,
        _ticked_s=lambda: -math.inf,
    ),
    fields_of(PredictorConfig, "publish_s expires_s max_models lease_s time_zone without"),
    fields_of(SeenEvents, "_ids"),
    fields_of(guards.EventFilter, "_seen _newest_s _ahead_s"),
    fields_of(windows.CountWindow, "width_s buckets too_late _counts _missing _since _newest"),
    fields_of(decayed_rates.DecayedRates, "_counts _at_s _first_s"),
    fields_of(evaluation.ArrivalScores, "_sums _degraded"),
    fields_of(evaluation.UseScores, "_brier _floor _came _spread _weight _degraded"),
)
_BOOK: tuple[Kind, ...] = (
    fields_of(history.HistoryBook, "_models _stored changes too_late"),
    fields_of(history._Open, "by_width newest"),
    fields_of(history._Tally, "number arrivals input_tokens output_tokens busy_s changed"),
)
_NEXT_USE: tuple[Kind, ...] = (
    fields_of(
        next_use.NextUseForecaster,
        "_experts _pool _calibration _reliability _looked _scores _last_s _births _pool_lead "
        "_samples _sampled_s _period",
    ),
    fields_of(
        next_use._Sample,
        "made_s rows births contexts features own pooled raw foretold next_s looks done",
    ),
    fields_of(experts.Experts, "_silent _rates _gaps _hour _day _following _traffic"),
    fields_of(
        gap_hazard.GapHazard,
        "_ends _reached _gaps _vague_ends _vague_reached _prior_ends _prior_reached _hazard "
        "_cumulative _stale",
    ),
    fields_of(calendar_slots.Calendar, "slot_s slots parts memory_visits weekends"),
    fields_of(
        calendar_slots.CalendarSlots,
        "_calendar _hits _visits _all_hits _all_visits _starts _hit_now _known _slot _first "
        "_ahead _sums _mean _stale _shift",
    ),
    fields_of(following.Following, "_leaders _credits _seen _begun_s _last_s _followers _recent"),
    fields_of(pool.HazardPool, "_prior _prior_precision _weights _precision"),
    fields_of(reliability.Calibration, "_log_delays _told _came _cases _points"),
    fields_of(reliability.Reliability, "_told _came _cases"),
)
_DEMAND: tuple[Kind, ...] = (
    fields_of(
        demand.DemandForecaster,
        "_sources _river _births _scores _drift _pooled _hedge _laws _pending _due_s _river_resets",
    ),
    fields_of(demand._Pending, "made_s rows births pooled river bases said floor"),
    fields_of(said.Said, "expected roots weights mixed means"),
    fields_of(
        demand_sources.DemandSources,
        "_rates _recent _minutes _days _hours _season _boosted _intents _utc_offset_s",
    ),
    fields_of(slot_profile.Cycle, "slot_s slots memory imagined"),
    fields_of(slot_profile.SlotProfile, "_cycle _totals _visits _slot _shift"),
    fields_of(river_season.RiverSeason, "_models _learned _gap _largest _ahead _slot resets"),
    # Who starts looks for the challenger before.
    fields_of(boosted.Boosted, "_minute _said", _challenger=lambda: None),
    fields_of(intents.Intents, "_picked_s _listed_s"),
    fields_of(river_rate.RiverRate, "_largest _regressions _scaler resets"),
    fields_of(drift.DriftWatch, "_detectors drifts"),
    fields_of(pooled_rate.PooledRate, "_share _fade _prior_precision resets _weights _precision"),
    fields_of(hedge.HedgeWeights, "_start _share _weights _loss _count"),
    fields_of(
        count_quantiles.CountQuantiles,
        "_share _every _seen _came _expected _shifts _offsets _stale",
    ),
)
_LATENCY: tuple[Kind, ...] = (
    fields_of(latency_book.LatencyBook, "_pages _open _lost_resets"),
    fields_of(open_requests.OpenRequests, "_open _by_model overflowed"),
    fields_of(open_requests.OpenRequest, "model in_flight cold ttft_s"),
    fields_of(latency.ModelLatency, "_answers _services _signals _tokens"),
    fields_of(
        latency.SignalLatency,
        "_covered _degraded _floor_loss _inside _loss _recent _regression _weight",
    ),
    fields_of(latency.RecentValues, "_ordered _values"),
    fields_of(
        latency.LoadRegression,
        "_centre _errors _highest _lowest _model _ordered _scaler resets",
    ),
    Kind(Signal, lambda signal: (signal.value,), lambda values: Signal(*values)),
)

KINDS: tuple[Kind, ...] = (*_ENGINE, *_BOOK, *_NEXT_USE, *_DEMAND, *_LATENCY, *RIVERS)
