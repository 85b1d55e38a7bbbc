"""What a controller keeps does not grow with what it has seen: requests, loads, names."""

from __future__ import annotations

import gc
from dataclasses import replace
from types import CoroutineType, FrameType, FunctionType, ModuleType

from contracts.events import FirstTokenSent
from contracts.ids import ModelId, RequestId
from contracts.seen_events import SeenEvents
from controller.outlooks import SLACK, outlook
from tests import worlds
from tests.controller_stage import A, B, C, Stage

WARM, MORE = 70, 140
OWN = {"builtins", "collections", "contracts", "controller", "functools"}
NOISE = 70
"""Objects that come and go with the moment, of some ten thousand; one for each of ``MORE``
requests, or of the decisions and loads that they lead to, is more."""


def kept(root: object) -> int:
    """Objects that are reachable from ``root`` by what is the controller's own."""
    seen: set[int] = set()
    waiting, count = [root], 0
    while waiting:
        found = waiting.pop()
        if id(found) in seen or not is_own(found):
            continue
        seen.add(id(found))
        count += 1
        # Through its globals a function leads to everything.
        if isinstance(found, FunctionType):
            waiting.extend(found.__closure__ or ())
        else:
            waiting.extend(gc.get_referents(found))
    return count


def is_own(found: object) -> bool:
    """Whether it is no port, nor what leads to one: a task, a frame, a class.

    Nor the ids of events, of which so many are kept and no more (``test_seen_events.py``).
    """
    module = type(found).__module__.partition(".")[0]
    is_task = isinstance(found, CoroutineType | FrameType)
    is_bounded = isinstance(found, SeenEvents)
    return (
        not (is_task or is_bounded) and module in OWN and not isinstance(found, type | ModuleType)
    )


async def hold_course(stage: Stage, first: int, count: int) -> None:
    """Requests for three models of which two fit, each with all of its events."""
    for number in range(first, first + count):
        model, request = (A, B, C)[number % 3], f"r{number}"
        await stage.log(stage.received(request, model))
        await stage.want(model, request)
        await stage.beats(6.5, waiting={model: 1} if model not in stage.server.resident else {})
        assert model in stage.server.resident
        ended = replace(worlds.completed(request, model, stage.now_s), output_tokens=90)
        first_token = FirstTokenSent(
            **worlds.stamp(stage.now_s), request_id=RequestId(request), model=model, ttft_s=0.5
        )
        await stage.log(stage.dispatched(request, model, cold=True), first_token, ended)
    await stage.beats(10.0)


async def test_a_controller_keeps_no_more_after_three_times_as_many_requests():
    stage = Stage()
    await stage.start()
    await hold_course(stage, 0, WARM)
    before = kept(stage.loop())
    await hold_course(stage, WARM, MORE)
    after = kept(stage.loop())
    loads = [call for call in stage.calls() if call[1] == "loaded"]
    await stage.close()
    assert len(loads) > MORE // 2
    assert before > 500
    assert after - before < NOISE


def test_forecasts_of_names_that_are_gone_are_kept_no_longer_than_they_hold():
    world = worlds.world(worlds.model(A), now_s=100.0)
    mine = worlds.curve(A, {20.0: 0.5}, expires_s=160.0)
    known = outlook({}, [mine], world)
    for number in range(1000):
        now_s = 200.0 + number
        name = ModelId(f"made-up-{number}")
        told = worlds.curve(name, {20.0: 0.5}, made_s=now_s, expires_s=now_s + 10.0)
        known = outlook(known, [told], replace(world, taken_at_s=now_s))
        assert known[name] is told
    assert known[A] is mine
    assert len(known) <= 2 + SLACK + 1


def test_a_forecast_without_a_curve_of_a_model_that_is_gone_is_not_kept():
    world = worlds.world(worlds.model(A), now_s=100.0)
    told = [
        replace(worlds.curve(ModelId(f"gone-{number}"), {20.0: 0.5}), next_use=None)
        for number in range(2 + SLACK + 1)
    ]
    assert len(outlook({}, told[:-1], world)) == 2 + SLACK
    assert outlook({}, told, world) == {}
