"""The machine's clock is set, or it slept: what has passed is what has passed."""

from __future__ import annotations

import pytest

from contracts.config import WarmConfig
from contracts.messages import GatewayBeat
from contracts.plan import Ghost, Guard, PlannerState, Wave
from contracts.world import Residency, ScheduledUse
from controller.clock_steps import LEAST_STEP_S, ClockSteps, moved
from controller.roster import Roster
from tests.controller_stage import GATEWAY, A, B, Stage
from tests.worlds import NODE, curve, model, world


def test_a_step_is_the_difference_of_the_two_clocks():
    steps = ClockSteps()
    assert steps.step_s(1000.0, 5.0) == 0.0
    assert steps.step_s(1010.0, 15.0) == 0.0
    assert steps.step_s(1010.0 + LEAST_STEP_S / 2, 15.0) == 0.0  # adjusted, not set
    assert steps.step_s(4611.0, 16.0) == pytest.approx(3599.0)
    assert steps.step_s(4612.0, 17.0) == 0.0
    assert steps.step_s(1012.0, 17.0) == -3600.0


def test_a_fast_clock_is_read_less_exactly():
    steps = ClockSteps(scale=30.0)
    steps.step_s(1000.0, 5.0)
    assert steps.step_s(1003.0, 5.0) == 0.0
    assert steps.step_s(1103.0, 5.0) == 100.0


def test_what_is_remembered_moves_by_it():
    steps = ClockSteps()
    w = world(model(A, used_s=90.0))
    assert steps.settled(100.0, 1.0, (w, 7)) == (w, 7)
    after, seven = steps.settled(3702.0, 3.0, (w, 7))
    assert seven == 7
    assert after.models[A].last_used_at_s == 90.0 + 3600.0


def test_moments_move_and_lengths_of_time_stay():
    w = world(
        model(
            A, Residency.HOT, used_s=90.0, since_s=10.0, load_s=8.0, waiting=1, wanted_since_s=99
        ),
        scheduled={A: ScheduledUse(starts_at_s=5.0, ends_at_s=6.0)},
    )
    after = moved(w, 100.0)
    status = after.models[A]
    assert (status.residency_since_s, status.last_used_at_s, status.load_s) == (110.0, 190.0, 8.0)
    assert (status.wanted_since_s, status.cooldown_until_s) == (199.0, None)
    assert after.taken_at_s == w.taken_at_s + 100.0
    assert [r.received_at_s for r in after.requests.values()] == [199.0]
    assert after.scheduled[A].ends_at_s == 106.0
    assert after.nodes[NODE].memory_total_bytes == w.nodes[NODE].memory_total_bytes


def test_states_forecasts_and_beats_move_as_well():
    state = PlannerState(
        priced_at_s=1.0,
        waves={A: Wave(begun_s=2.0, requests=3)},
        guards={NODE: Guard(ghosts={"lru": Ghost(ready_at_s={A: 4.0}, load_ends_s=(5.0,))})},
    )
    after = moved(state, 10.0)
    ghost = after.guards[NODE].ghosts["lru"]
    assert (after.priced_at_s, after.waves[A].begun_s) == (11.0, 12.0)
    assert (dict(ghost.ready_at_s), ghost.load_ends_s) == ({A: 14.0}, (15.0,))
    told = moved({A: curve(A, {20.0: 1.0})}, 10.0)[A].next_use
    assert told is not None
    assert (told.made_at_s, told.expires_at_s) == (110.0, 170.0)
    roster = moved(Roster().heard(GatewayBeat(gateway=GATEWAY, at_s=7.0)), 10.0)
    assert roster.beats[GATEWAY].at_s == 17.0


def test_what_holds_no_moment_is_left_as_it_is():
    config, empty = WarmConfig(), {A: 1}
    assert moved(config, 5.0) is config
    assert moved(empty, 5.0) is empty
    assert moved("text", 5.0) == "text"


@pytest.mark.case("P136")
@pytest.mark.parametrize("step_s", [-3600.0, 7200.0], ids=["set back", "set on, or slept"])
async def test_no_model_goes_since_the_clock_was_set(step_s: float):
    stage = Stage(policy="idle-timeout", idle_timeout_s=60.0)
    stage.server.resident = {A}
    await stage.start()
    await stage.beats(10.0)
    stage.clock._epoch_s += step_s
    await stage.beats(10.0)
    assert stage.server.resident == {A}
    await stage.want(B)
    await stage.beats(8.0, waiting={B: 1})
    assert stage.server.resident == {A, B}
    # Idle for as long as it may be, by the clock that never steps.
    await stage.beats(62.0)
    assert A not in stage.server.resident
    await stage.close()
