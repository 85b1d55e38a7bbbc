"""Two models of which one fits, asked for in turn: nobody gets an empty error, or any."""

from __future__ import annotations

import asyncio

import pytest

from tests.acceptance.deployment import TIME_SCALE, Answer, Deployment, deployed, of_kind

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

ROUNDS = 50
PAIR = [
    {"name": name, "footprint_mb": 600, "load_s": 0.5, "tokens_per_s": 500, "answer_tokens": 2}
    for name in ("one", "two")
]


@pytest.mark.case("P037")
async def test_each_is_answered_every_time():
    async with deployed(
        PAIR,
        capacity_mb=1000,
        services=("gateway", "controller"),
        emulator_args=("--exact-load-times",),
    ) as deployment:
        mark = await deployment.mark()
        answers = [answer for _ in range(ROUNDS) for answer in await _one_round(deployment)]
        events = await deployment.events(after=mark)
    told = [answer.text for answer in answers if answer.status != 200]
    assert told == []
    assert len(answers) == 2 * ROUNDS
    assert of_kind(events, "load_failed") == []
    # One after the other: each of them had to be loaded again and again.
    assert len(of_kind(events, "load_ended")) >= ROUNDS


async def _one_round(deployment: Deployment) -> list[Answer]:
    first = asyncio.ensure_future(deployment.chat("one", service_s=0.1))
    await asyncio.sleep(0.05 / TIME_SCALE)
    second = await deployment.chat("two", service_s=0.1)
    return [await first, second]
