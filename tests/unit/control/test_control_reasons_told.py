"""Why a model is or is not loaded, and what would have turned a decision, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.control.board import Board
from api.control.explaining import explain_model, free_bytes
from api.control.turning import what_would_change
from api.control.views import model_view, node_view
from contracts.events import LoadCause
from contracts.forecasts import NEXT_USE_GRID_S, ForecastStatus, ModelForecast, NextUse
from contracts.ids import ModelId, NodeId
from contracts.memory import PlaceId, PlaceKind, PlaceStatus
from contracts.plan import Decision, Outcome
from contracts.reasons import Reason
from contracts.world import (
    Mode,
    ModelStatus,
    NodeStatus,
    Residency,
    WorldSnapshot,
)

A, B = ModelId("a"), ModelId("b")
NODE = NodeId("n")
GB = 1000**3
NOW_S = 1000.0


def status(residency: Residency = Residency.COLD, **changes: Any) -> ModelStatus:
    values = {"footprint_bytes": 4 * GB, "load_s": 8.0, "residency_since_s": 880.0, **changes}
    return ModelStatus(model=A, node=NODE, residency=residency, **values)


def decision(
    reason: Reason, outcome: Outcome = Outcome.CHANGE, **evidence: float | str
) -> Decision:
    return Decision(
        policy="headstart",
        subject=A,
        outcome=outcome,
        reason=reason,
        evidence=tuple(evidence.items()),
        decision_id="d7-0",
        made_at_s=970.0,
    )


def curve(*, expires_at_s: float = 1100.0) -> ModelForecast:
    use = NextUse(
        model=A,
        made_at_s=NOW_S,
        expires_at_s=expires_at_s,
        last_arrival_at_s=None,
        cumulative_hazard=tuple(0.01 * delay_s for delay_s in NEXT_USE_GRID_S),
        method="gaps",
        status=ForecastStatus.READY,
        brier=None,
        floor_brier=None,
    )
    return ModelForecast(model=A, next_use=use, signals=())


def told(
    one: ModelStatus,
    *decisions: Decision,
    forecast: ModelForecast | None = None,
    mode: Mode = Mode.ACTIVE,
    others_gb: int = 0,
    **node: Any,
) -> str:
    board = Board(default_target_s=2.0)
    values = {"alive": True, "budget_bytes": 10 * GB, **node}
    other = ModelStatus(model=B, node=NODE, residency=Residency.HOT, footprint_bytes=others_gb * GB)
    board.world = WorldSnapshot(
        taken_at_s=NOW_S,
        mode=mode,
        nodes={NODE: NodeStatus(node=NODE, **values)},
        models={A: one, B: other},
    )
    if forecast is not None:
        board.forecasts[A] = forecast
    return " ".join(explain_model(board, one, decisions, NOW_S).sentences)


@pytest.mark.case("P134")
def test_a_trickle_of_checks_that_keeps_a_model_is_told():
    used = status(Residency.HOT, used_since_load=True, last_used_at_s=NOW_S - 45.0)
    said = told(used, forecast=curve())
    assert "It was last used 45 s ago." in said
    assert "A request within a minute is 45 % likely." in said


class TestExplain:
    @pytest.mark.parametrize(
        ("one", "said"),
        [
            (
                status(Residency.HOT, load_cause=LoadCause.PREFETCH, used_since_load=True),
                "a is loaded, since 2 min: a request was expected.",
            ),
            (status(Residency.HOT), "a is loaded, since 2 min; no request has used it since."),
            (status(Residency.LOADING), "a is loading, for 2 min of about 8 s."),
            (status(Residency.LOADING, load_s=None), "a is loading, for 2 min."),
            (status(Residency.DRAINING), "a is being unloaded"),
            (status(Residency.UNLOADING), "a is being unloaded"),
            (
                status(Residency.FAILED, failure="no disk", cooldown_until_s=1010.0),
                "a is not loaded: its last load failed (no disk); it may be tried again in 10 s.",
            ),
            (status(Residency.FAILED), "a is not loaded: its last load failed."),
            (status(), "a is not loaded."),
        ],
    )
    def test_the_state_comes_first(self, one, said):
        assert told(one).startswith(said)

    def test_what_was_done_and_what_was_left_last(self):
        left = decision(Reason.NO_ROOM, Outcome.HOLD)
        done = replace(decision(Reason.LEAST_EXPECTED_LOSS), made_at_s=100.0)
        said = told(status(), left, done)
        assert "15 min ago: Unload a: of all idle models" in said
        assert "30 s ago: Wait with loading a: it does not fit" in said
        assert told(status(), done).count(" ago: ") == 1

    def test_demand_is_told_with_how_likely_a_request_is(self):
        busy = status(Residency.HOT, waiting=2, in_flight=1, last_used_at_s=995.0)
        said = told(busy, forecast=curve())
        assert "2 requests wait for it. 1 requests are in flight" in said
        assert "It was last used 5 s ago. A request within a minute is 45 % likely." in said
        assert "never used while we looked. There is no valid forecast" in told(status())
        assert "There is no valid forecast" in told(status(), forecast=curve(expires_at_s=900.0))

    @pytest.mark.parametrize(
        ("one", "node", "said"),
        [
            (status(), {"alive": False}, "Its node n does not answer."),
            (status(footprint_bytes=None), {}, "Nobody knows how much memory it needs"),
            (status(), {"budget_bytes": None}, "No memory budget is known"),
            (status(footprint_bytes=11 * GB), {}, "more than the whole budget"),
            (status(), {}, "It needs 4,000 MB and 10,000 MB of the budget are free."),
            (status(), {"others_gb": 8}, "2,000 MB are free: others would have to go for 2,000 MB"),
        ],
    )
    def test_room_is_told_for_one_that_is_not_there(self, one, node, said):
        assert said in told(one, **node)

    def test_models_on_cpus_take_nothing_of_the_budget(self):
        card = PlaceStatus(place=PlaceId("GPU-1"), kind=PlaceKind.GPU)
        assert "budget" not in told(status(on_host=True), places=(card,))
        assert "of the budget are free" in told(status(on_host=True))
        board = Board(default_target_s=2.0)
        rung = ModelStatus(
            model=B, node=NODE, residency=Residency.HOT, footprint_bytes=3 * GB, on_host=True
        )
        node = NodeStatus(node=NODE, alive=True, budget_bytes=10 * GB, places=(card,))
        board.world = WorldSnapshot(taken_at_s=NOW_S, nodes={NODE: node}, models={B: rung})
        assert free_bytes(board, node) == 10 * GB
        assert node_view(board, node).occupied_bytes == 0
        assert model_view(board, rung, NOW_S).on_host

    def test_rules_that_hold_for_it(self):
        said = told(status(pinned=True, kept_out=True), mode=Mode.OBSERVE)
        assert "It is pinned" in said
        assert "Somebody unloaded it" in said
        assert "The mode is observe: nothing is ordered." in said

    def test_numbers_that_are_not_known_are_none(self):
        board = Board(default_target_s=2.0)
        one = status(footprint_bytes=None, residency_since_s=NOW_S - 90_000.0)
        board.world = WorldSnapshot(taken_at_s=NOW_S, models={A: one})
        found = explain_model(board, one, (), NOW_S)
        values = {fact.name: fact.value for fact in found.facts}
        assert values["in_state_s"] == 90_000.0
        for name in ("probability_60s", "idle_s", "footprint_bytes", "free_bytes", "budget_bytes"):
            assert values[name] is None
        assert free_bytes(Board(default_target_s=2.0), None) is None

    def test_long_times_are_told_in_hours_and_days(self):
        old = status(Residency.HOT, residency_since_s=NOW_S - 7200.0, last_used_at_s=-400_000.0)
        said = told(old)
        assert "since 2 h" in said
        assert "last used 5 days ago" in said


class TestWhatWouldChange:
    def test_a_prefetch_that_was_done_says_by_how_much(self):
        said = what_would_change(decision(Reason.FORECAST, gain=0.5, must_beat=0.2))
        assert said == (
            "It gains 0.5 and had to beat 0.2: 0.3 less and it would not have been loaded.",
        )

    def test_one_that_was_left_says_how_likely_the_request_had_to_be(self):
        held = decision(
            Reason.GAIN_TOO_SMALL, Outcome.HOLD, gain=0.1, must_beat=0.2, probability=0.3
        )
        assert what_would_change(held) == (
            "It would gain 0.1 and has to beat 0.2: 0.1 more and it would be loaded.",
            "A request 60 % likely (now 30 %) would be enough.",
        )
        hopeless = replace(held, evidence=(("gain", 0.1), ("must_beat", 0.9), ("probability", 0.3)))
        assert "Even a certain request (now 30 %)" in what_would_change(hopeless)[1]

    def test_a_victim_says_what_would_have_spared_it(self):
        said = what_would_change(decision(Reason.LEAST_EXPECTED_LOSS, loss=0.3, probability=0.02))
        assert said[0].startswith("Its expected loss of 0.3 (2 % likely to be used) was the least")
        assert what_would_change(decision(Reason.LEAST_EXPECTED_LOSS, loss=0.3)) == ()

    def test_one_without_room_says_how_much_is_missing(self):
        short = decision(
            Reason.NO_ROOM, Outcome.HOLD, needs_mb=600, occupied_mb=500, usable_mb=1000
        )
        assert "It is 100 MB short" in what_would_change(short)[0]
        fits = decision(Reason.NO_ROOM, Outcome.HOLD, needs_mb=100, occupied_mb=500, usable_mb=1000)
        assert what_would_change(fits) == ()
        assert what_would_change(decision(Reason.NO_ROOM, Outcome.HOLD, usable_mb="unknown")) == ()

    def test_an_idle_one_says_what_would_have_spared_it(self):
        said = what_would_change(decision(Reason.LEAST_RECENTLY_USED, idle_s=40.0))
        assert said == ("A request within the last 40 s would have spared it.",)
        assert what_would_change(decision(Reason.PINNED, Outcome.HOLD, idle_s=40.0)) == (
            "Unpinning it leaves it to the policy.",
        )

    def test_what_was_only_observed_says_so(self):
        said = what_would_change(decision(Reason.DEMAND, mode="observe"))
        assert said[-1] == "The mode is observe: in active it would have been ordered."
