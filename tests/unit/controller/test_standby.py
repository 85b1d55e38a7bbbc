"""Models that come back whenever nothing else needs the memory."""

from __future__ import annotations

import pytest

from contracts.config import PlannerConfig
from contracts.events import LoadCause, ModelLoaded, ModelUnloaded
from contracts.plan import LoadModel, PlannerState, UnloadModel
from contracts.reasons import Reason
from contracts.world import GpuYield, Residency
from controller.planner import plan
from tests.controller_stage import Stage
from tests.worlds import A, B, config, model, world

HOT, COLD = Residency.HOT, Residency.COLD


def orders(w, **fields):
    settings: PlannerConfig = config(standby=frozenset({A}), prefetch=False, **fields)
    return plan(world=w, forecasts={}, state=PlannerState(), config=settings).plan


def loads(w, **fields):
    return [one.model for one in orders(w, **fields).actions if isinstance(one, LoadModel)]


class TestWhenItComes:
    def test_as_soon_as_there_is_room(self):
        found = orders(world(model(A, since_s=40.0), model(B, HOT)))
        (load,) = found.actions
        assert isinstance(load, LoadModel)
        assert (load.model, load.cause, load.reason) == (A, LoadCause.OPERATOR, Reason.STANDBY)
        assert found.decisions[-1].evidence == (("away_s", 60.0),)

    def test_nobody_goes_for_it(self):
        assert loads(world(model(A, mb=20), model(B, HOT, mb=20))) == []

    def test_who_waits_comes_first(self):
        w = world(model(A), model(B, waiting=1, wanted_since_s=99.0))
        assert loads(w) == [B]

    def test_not_beside_a_load_or_a_drain(self):
        assert loads(world(model(A), model(B, Residency.LOADING))) == []
        assert loads(world(model(A), model(B, Residency.DRAINING))) == []

    def test_not_over_localais_own_limit(self):
        assert loads(world(model(A), model(B, HOT), model_limit=1)) == []

    def test_not_while_the_gpu_is_handed_over(self):
        handed = GpuYield(since_s=0.0, note="a game")
        assert loads(world(model(A), gpu_yield=handed)) == []

    def test_an_operators_word_stands_over_it(self):
        assert loads(world(model(A, kept_out=True))) == []

    @pytest.mark.parametrize(("until_s", "expected"), [(110.0, []), (90.0, [A]), (None, [A])])
    def test_a_load_that_failed_is_tried_again_when_it_may_be(self, until_s, expected):
        failed = model(A, Residency.FAILED, cooldown_until_s=until_s)
        assert loads(world(failed)) == expected

    def test_one_that_is_there_stays_there(self):
        assert loads(world(model(A, HOT))) == []
        idle = world(model(A, HOT, used_s=0.0), now_s=10_000.0)
        assert orders(idle, policy="idle-timeout").actions == ()

    def test_others_expire_beside_it(self):
        w = world(model(A, HOT, used_s=0.0), model(B, HOT, used_s=0.0), now_s=10_000.0)
        (going,) = orders(w, policy="idle-timeout").actions
        assert isinstance(going, UnloadModel)
        assert going.model == B

    def test_it_gives_way_to_what_is_asked_for(self):
        w = world(model(A, HOT, mb=20), model(B, mb=20, waiting=1, wanted_since_s=99.0))
        assert [one.model for one in orders(w).actions] == [A, B]

    def test_where_none_is_named_nothing_comes(self):
        plain = config(prefetch=False)
        found = plan(world=world(model(A)), forecasts={}, state=PlannerState(), config=plain)
        assert found.plan.actions == ()


@pytest.mark.case("P043")
async def test_when_the_model_that_was_used_expires_the_usual_one_is_back():
    stage = Stage(
        policy="idle-timeout", idle_timeout_s=60.0, prefetch=False, standby=frozenset({A})
    )
    stage.server.footprint_bytes.update({A: 20 * 1024**2, B: 20 * 1024**2})
    await stage.start()
    try:
        await stage.beats(10.0)
        assert stage.server.resident == {A}  # at the start already
        await stage.want(B)
        await stage.beats(8.0, waiting={B: 1})
        assert stage.server.resident == {B}
        await stage.beats(40.0)
        assert stage.server.resident == {B}
        await stage.beats(40.0)
        assert stage.server.resident == {A}
        told = [
            (type(event).__name__, event.model)
            for event in await stage.happened()
            if isinstance(event, ModelLoaded | ModelUnloaded)
        ]
        assert told[-2:] == [("ModelUnloaded", B), ("ModelLoaded", A)]
        gone, back = (
            next(at_s for at_s, what, model in reversed(stage.calls()) if (what, model) == wanted)
            for wanted in (("unloaded", B), ("load_started", A))
        )
        assert back - gone <= stage.config.planner.tick_s
    finally:
        await stage.close()
