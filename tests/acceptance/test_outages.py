"""Parts of Headstart die while a model loads: no caller notices, and it mends by itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from tests.acceptance.deployment import Answer, Deployment, deployed, of_kind

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

LOAD_S = 22.0
"""LocalAI's start of a process, and the weights: long enough for an outage to begin and end."""

RESIDENT = ("warm-a", "warm-b")
PAUSE_S = 0.1
MODELS = [
    *({"name": name, "footprint_mb": 100, "load_s": 1} for name in RESIDENT),
    *(
        {"name": f"cold-{number}", "footprint_mb": 100, "load_s": LOAD_S - 2}
        for number in range(20)
    ),
    *({"name": f"quick-{number}", "footprint_mb": 100, "load_s": 1} for number in range(20)),
]
fresh = itertools.count()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site() -> AsyncIterator[Deployment]:
    """Everything but workers, with two models resident."""
    async with deployed(
        MODELS,
        capacity_mb=20_000,
        services=("gateway", "control", "predictor", "controller"),
        # Only what was asked for is loaded, so that the log shows one load for one wish.
        environ={"HEADSTART_OPTIMIZATION__PREFETCH_ENABLED": "false"},
    ) as deployment:
        for model in RESIDENT:
            await is_warm(deployment, model)
        yield deployment


async def is_warm(deployment: Deployment, model: str) -> None:
    """It is loaded, and the gateway has been told: without Redis it will not hear of it."""

    async def so() -> bool:
        answer = await deployment.chat(model)
        assert answer.status == 200, answer.text
        return not answer.is_cold

    await deployment.until(so, f"{model} is resident and known to be")


class Regulars:
    """Callers of resident models who come again and again."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    @asynccontextmanager
    async def around(self, deployment: Deployment) -> AsyncIterator[Regulars]:
        """They come for as long as the block runs; then all of them have been answered."""
        enough = asyncio.Event()

        async def come(model: str) -> None:
            while not enough.is_set():
                self.answers.append(await deployment.chat(model))
                await asyncio.sleep(PAUSE_S)

        async with asyncio.TaskGroup() as group:
            for model in RESIDENT:
                group.create_task(come(model))
            try:
                yield self
            finally:
                enough.set()

    def all_were_served(self) -> None:
        bad = [(a.status, a.text[:300]) for a in self.answers if a.status != 200]
        assert not bad
        assert not any(answer.is_cold for answer in self.answers)


async def is_loading(deployment: Deployment, model: str) -> None:
    async def so() -> bool:
        return await deployment.residency(model) == "loading"

    await deployment.until(so, f"{model} is loading")


async def works_again(deployment: Deployment) -> None:
    """A controller leads, forecasts are fresh, and a cold model is loaded by the controller."""
    await deployment.until(deployment.leads, "controller and predictor speak again")
    moment_s = (await deployment.state())["at_s"]

    async def is_forecast() -> bool:
        answer = await deployment.control("GET", "/v1/forecasts/warm-a")
        return answer.status == 200 and answer.json["next_use"]["made_at_s"] > moment_s

    await deployment.until(is_forecast, "forecasts are made again")
    start = await deployment.mark()
    model = f"quick-{next(fresh)}"
    answer = await deployment.chat(model)
    assert answer.status == 200, answer.text
    assert answer.headers["X-Headstart-Decision"] == "demand", "loaded by the controller"
    assert len(of_kind(await deployment.events(start), "load_started", model)) == 1


async def test_redis_is_away_for_twenty_seconds_during_a_load(site: Deployment):
    model = f"cold-{next(fresh)}"
    async with Regulars().around(site) as regulars:
        waiting = asyncio.create_task(site.chat(model))
        await is_loading(site, model)
        await site.stack.hold("redis")
        await asyncio.sleep(2.0)  # the outage itself: 20 s of the stack's clock
        await site.stack.release("redis")
        answer = await waiting
        assert answer.status == 200, answer.text
        await works_again(site)
    regulars.all_were_served()


async def test_a_cold_model_is_asked_for_while_redis_is_away(site: Deployment):
    model = f"cold-{next(fresh)}"
    async with Regulars().around(site) as regulars:
        await site.stack.hold("redis")
        try:
            answer = await site.chat(model)
            assert answer.status == 200, answer.text
            assert answer.headers["X-Headstart-Decision"] == "no_controller"
        finally:
            await site.stack.release("redis")
        await works_again(site)
    regulars.all_were_served()


async def test_the_redis_process_is_killed_during_a_load(site: Deployment):
    model = f"cold-{next(fresh)}"
    async with Regulars().around(site) as regulars:
        waiting = asyncio.create_task(site.chat(model))
        await is_loading(site, model)
        site.stack.kill("redis")
        answer = await waiting
        assert answer.status == 200, answer.text
        await works_again(site)
    regulars.all_were_served()


async def test_the_predictor_is_killed_during_a_load(site: Deployment):
    model = f"cold-{next(fresh)}"
    killed = site.stack.restarts("predictor")
    start = await site.mark()
    async with Regulars().around(site) as regulars:
        waiting = asyncio.create_task(site.chat(model))
        await is_loading(site, model)
        site.stack.kill("predictor")
        answer = await waiting
        assert answer.status == 200, answer.text
        await works_again(site)
    regulars.all_were_served()
    assert site.stack.restarts("predictor") == killed + 1
    assert len(of_kind(await site.events(start), "load_started", model)) == 1


async def test_the_controller_is_killed_during_a_load(site: Deployment):
    model = f"cold-{next(fresh)}"
    killed = site.stack.restarts("controller")
    start = await site.mark()
    async with Regulars().around(site) as regulars:
        waiting = asyncio.create_task(site.chat(model))
        await is_loading(site, model)
        site.stack.kill("controller")
        answer = await waiting
        assert answer.status == 200, answer.text
        assert answer.is_cold
        await works_again(site)
    regulars.all_were_served()
    assert site.stack.restarts("controller") == killed + 1
    log = await site.events(start)
    assert of_kind(log, "load_cancelled", model), "LocalAI ends a load whose caller is gone"
    assert len(of_kind(log, "request_received", model)) == 1, "sent once, when it was there"


async def test_the_controller_is_down_for_long_and_the_gateway_loads_alone(site: Deployment):
    model = f"cold-{next(fresh)}"
    async with Regulars().around(site) as regulars:
        await site.stack.hold("controller")
        try:
            answer = await site.chat(model)
            assert answer.status == 200, answer.text
            assert answer.headers["X-Headstart-Decision"] == "no_controller"
        finally:
            await site.stack.release("controller")
        await works_again(site)

        async def adopted() -> bool:
            return (await site.model(model)).get("residency") == "hot"

        await site.until(adopted, f"the new controller knows that {model} is resident")
    regulars.all_were_served()


async def test_the_control_api_is_killed_and_traffic_never_notices(site: Deployment):
    async with Regulars().around(site) as regulars:
        site.stack.kill("control")
        model = f"cold-{next(fresh)}"
        answer = await site.chat(model)
        assert answer.status == 200, answer.text
        await works_again(site)
    regulars.all_were_served()


async def test_the_gateway_is_killed_in_the_middle_of_a_load_and_the_load_goes_on(
    site: Deployment,
):
    model = f"cold-{next(fresh)}"
    start = await site.mark()
    waiting = asyncio.create_task(site.chat(model))
    await is_loading(site, model)
    site.stack.kill("gateway")
    assert (await waiting).status is None, "whoever waited at it is cut off"

    async def serves() -> bool:
        return (await site.chat("warm-a")).status == 200

    await site.until(serves, "the gateway is back")
    answer = await site.chat(model)
    assert answer.status == 200, answer.text
    loads = [e["kind"] for e in await site.events(start) if e["model"] == model]
    assert loads.count("load_started") == 1
    assert "load_cancelled" not in loads
    await works_again(site)


async def test_localai_itself_dies_and_comes_back_empty(site: Deployment):
    site.stack.kill("emulator")

    async def served() -> bool:
        answer = await site.chat("warm-a")
        assert answer.status in (200, 502, 503), answer.text
        if answer.status != 200:
            assert answer.error_type in ("upstream_error", "no_backend", "model_cooldown")
        return answer.status == 200

    await site.until(served, "warm-a is served again")
    for model in RESIDENT:
        answer = await site.chat(model)
        assert answer.status == 200, answer.text
    await works_again(site)
