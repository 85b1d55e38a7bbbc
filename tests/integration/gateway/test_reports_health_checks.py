"""Field report on monitoring that sends a test prompt to every model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from structlog.testing import capture_logs

from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway

pytestmark = pytest.mark.integration

NAMES = tuple(f"m{number}" for number in range(6))
MODELS = tuple({"name": name, "load_s": 1.0, "answer_tokens": 2} for name in NAMES)
AGENT = {"User-Agent": "litellm/1.80 (health check)"}
CHAT = "/v1/chat/completions"


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS, exact_load_times=True) as running:
        yield running


@pytest.fixture
def gateway(emulator: RunningEmulator) -> Iterator[RunningGateway]:
    patterns = ("litellm*health*",)
    with RunningGateway(
        emulator.url, health_check_agents=patterns, min_load_budget_s=900.0
    ) as running:
        cold = dict.fromkeys(NAMES, Residency.COLD)
        running.routes(cold | {"m0": Residency.HOT, "m1": Residency.HOT})
        yield running


@pytest.fixture
async def http(gateway: RunningGateway) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(gateway.url) as session:
        yield session


def body(model: str, **more: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "ping"}]
    return {"model": model, "messages": messages, "max_tokens": 1, **more}


@pytest.mark.case("P045", "P134")
async def test_named_checks_are_answered_by_what_is_resident_and_load_nothing(
    http, gateway, emulator
):
    for _ in range(3):
        for name in NAMES:
            async with http.post(CHAT, json=body(name), headers=AGENT) as answer:
                said = await answer.json()
                assert answer.headers["x-request-id"]
                assert answer.headers["x-headstart-model"] == name
                if name in ("m0", "m1"):
                    assert answer.status == 200
                    assert said["model"] == name
                    continue
                assert answer.status == 503
                assert said["error"]["type"] == "model_loading"
                assert said["loading"]["state"] == "cold"
                assert int(answer.headers["retry-after"]) >= 1
    assert gateway.told() == [], "no demand, no use: nothing that anybody could learn from"
    loaded = {event["model"] for event in emulator.events("load_started")}
    assert loaded <= {"m0", "m1"}
    assert not gateway.service.in_flight()
    async with http.get("/headstart/metrics") as answer:
        page = await answer.text()
    assert 'headstart_gateway_health_checks_total{result="forwarded"} 6.0' in page
    assert 'headstart_gateway_health_checks_total{result="not_resident"} 12.0' in page


@pytest.mark.case("P045")
async def test_a_check_of_another_dialect_and_one_that_streams(http):
    async with http.post("/v1/messages", json=body("m2"), headers=AGENT) as answer:
        assert answer.status == 503
        assert (await answer.json())["type"] == "error"
    async with http.post(CHAT, json=body("m0", stream=True), headers=AGENT) as answer:
        assert (await answer.read()).endswith(b"data: [DONE]\n\n")
    async with http.post(CHAT, json=body("nobody-knows"), headers=AGENT) as answer:
        assert answer.status == 404


@pytest.mark.case("P045")
async def test_everybody_else_is_demand(http, gateway):
    async with http.post(CHAT, json=body("m2")) as answer:
        assert answer.status == 200
    assert gateway.told()


@pytest.mark.case("P045")
async def test_without_a_rule_a_check_is_told_once_in_the_log(emulator):
    with RunningGateway(emulator.url) as gateway, capture_logs() as logs:
        gateway.routes(dict.fromkeys(NAMES, Residency.HOT))
        async with aiohttp.ClientSession(gateway.url) as http:
            for _ in range(3):
                for agent in (AGENT, {"User-Agent": "OpenAI/Python 3.57"}):
                    async with http.post(CHAT, json=body("m0"), headers=agent) as answer:
                        assert answer.status == 200
        (line,) = [entry for entry in logs if entry["event"] == "inference_by_health_check"]
        assert line["agent"] == AGENT["User-Agent"]
        assert "health_check_agents" in line["instead"]
