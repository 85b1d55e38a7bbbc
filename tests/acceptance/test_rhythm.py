"""A caller that comes like clockwork finds its model there, though others want the memory too."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from tests.acceptance.deployment import Answer, Deployment, Event, deployed, of_kind

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

SCALE = 25.0
PERIOD_S = 60.0
ROUNDS = 14
LEARNING = 6
"""Rounds in which the rhythm may still be unknown."""

OTHERS = ("other-a", "other-b", "other-c", "other-d", "other-e")
MODELS = [
    {"name": "report", "footprint_mb": 3000, "load_s": 6, "tokens_per_s": 200},
    *({"name": name, "footprint_mb": 3000, "load_s": 4, "tokens_per_s": 200} for name in OTHERS),
]


async def come_like_clockwork(deployment: Deployment, answers: list[Answer]) -> None:
    """One request a minute, whatever became of the one before."""
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    for number in range(ROUNDS):
        await asyncio.sleep(start_s + number * PERIOD_S / SCALE - loop.time())
        answers.append(await deployment.chat("report", request_id=f"report-{number}"))


async def crowd_out(deployment: Deployment, answers: list[Answer]) -> None:
    """Two others at once after each request of the caller: their models take all the room.

    Which two and when is drawn, so that only the caller has a rhythm.
    """
    loop = asyncio.get_running_loop()
    chance = random.Random(1)
    start_s = loop.time()
    for number in range(ROUNDS - 1):
        at_s = number * PERIOD_S + chance.uniform(8.0, 20.0)
        await asyncio.sleep(start_s + at_s / SCALE - loop.time())
        both = [deployment.chat(name, service_s=5.0) for name in chance.sample(OTHERS, 2)]
        answers.extend(await asyncio.gather(*both))


def loaded_ahead(log: Sequence[Event], answers: Sequence[Answer]) -> list[int]:
    """Rounds whose model was away, was loaded again, and was there when the request came."""
    found = []
    was_loaded = False
    for event in log:
        if event["model"] != "report":
            continue
        if event["kind"] == "load_ended":
            was_loaded = True
        elif event["kind"] == "unloaded":
            was_loaded = False
        elif event["kind"] == "request_received":
            caller, _, number_text = event["request_id"].partition("-")
            if caller != "report":
                continue  # the smallest request of its kind, which warms it
            number = int(number_text)
            if was_loaded and not answers[number].is_cold:
                found.append(number)
            was_loaded = False
    return found


async def test_a_steady_callers_model_is_resident_before_most_of_its_later_requests():
    steady: list[Answer] = []
    others: list[Answer] = []
    async with deployed(
        MODELS,
        capacity_mb=6500,
        services=("gateway", "control", "predictor", "controller"),
        environ={"HEADSTART_TIME_SCALE": f"{SCALE:g}"},
    ) as deployment:
        await asyncio.gather(come_like_clockwork(deployment, steady), crowd_out(deployment, others))
        log = await deployment.events()
        decided = await deployment.control("GET", "/v1/decisions?limit=400&model=report")
        summary = await deployment.control("GET", "/v1/summary")

    assert {answer.status for answer in [*steady, *others]} == {200}
    assert of_kind(log, "unloaded", "report"), "nobody competed, so this shows nothing"
    later = [answer.is_cold for answer in steady[LEARNING:]]
    assert later.count(False) > len(later) / 2, [answer.is_cold for answer in steady]
    assert loaded_ahead(log, steady), "never was it loaded ahead of its request"
    ahead = [d for d in decided.json["data"] if d["reason"] == "forecast"]
    assert ahead
    assert {e["name"] for e in ahead[0]["evidence"]} >= {"probability", "load_s", "must_beat"}
    assert summary.json["prefetches"]["used"] >= 1
