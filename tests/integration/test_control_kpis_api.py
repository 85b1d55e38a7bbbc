"""Key figures, panels, heat, single requests, feedback and explanations over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from contracts.config import ControlConfig, GatewayConfig
from contracts.ids import ModelId
from tests.browser.lively import KINDS
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration

MODEL = KINDS[0].name


@pytest.fixture(scope="module")
def control() -> Iterator[RunningControl]:
    control = RunningControl(kinds=KINDS[:4], minutes=60).start()
    yield control
    control.stop()


@pytest_asyncio.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


class Asker:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url

    async def __call__(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.url + path, **options) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        status, body = await self("GET", path)
        assert status == 200, body
        return body


@pytest_asyncio.fixture
async def ask(session: aiohttp.ClientSession, control: RunningControl) -> Asker:
    asker = Asker(session, control.url)
    async with asyncio.timeout(10):
        # The log is read while callers are answered.
        while len(control.room.board.kpis.journeys) < control.lively.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return asker


async def test_kpis_add_up(ask: Asker, control: RunningControl):
    view = await ask.get("/v1/kpis?window=24h")
    total = view["total"]
    assert total["requests"] == control.lively.requests
    assert sum(one["requests"] for one in view["by_class"].values()) == total["requests"]
    assert sum(one["traffic"]["requests"] for one in view["models"]) == total["requests"]
    assert total["cold"] == control.lively.cold
    assert total["success_ratio"] == 1.0
    assert 0.5 < total["apdex"] < 1.0
    assert 0.5 < total["satisfaction_ratio"] <= 1.0
    first = total["first_content"]
    assert first["p50_s"] < first["p95_s"] < first["greatest_s"]
    assert view["cost"]["tokens_per_gb_hour"] > 0
    assert view["cost"]["energy_j"] > 0
    assert view["loads"]["loads"] == sum(view["loads"]["by_cause"].values()) > 0
    assert view["deciding"]["runs"] == 4210
    assert view["cold_starts_avoided"] is not None
    assert view["compared_with"] == "localai-lru"


async def test_kpis_of_one_model_have_its_budget(ask: Asker):
    view = await ask.get(f"/v1/kpis?window=7d&model={MODEL}")
    (only,) = view["models"]
    budget = only["budget"]
    assert (only["model"], budget["target_s"], budget["percentile"]) == (MODEL, 1.5, 95.0)
    assert budget["remaining_ratio"] == pytest.approx(
        1 - budget["missed"] / (budget["judged"] * budget["allowed_ratio"])
    )
    assert (await ask("GET", "/v1/kpis?model=nobody"))[0] == 404
    assert (await ask("GET", "/v1/kpis?window=1y"))[0] == 422


async def test_the_six_panels_have_their_thresholds_and_values(ask: Asker):
    view = await ask.get("/v1/panels?window=1h")
    thresholds = {panel["title"]: panel["threshold"] for panel in view["data"]}
    assert thresholds == {
        "GPU Utilization": 85,
        "VRAM Usage": 90,
        "CPU Load": 4.0,
        "Queue Lengths": None,
        "Model Load Times": None,
        "Scheduling Decisions": None,
    }
    for panel in view["data"][:3]:
        values = panel["series"][0]["values"]
        assert len(values) == 60
        assert sum(value is not None for value in values) > 50
    assert (await ask.get("/v1/panels?window=7d"))["step_s"] == 900


async def test_heat_shows_requests_and_residency_of_each_model(ask: Asker, control: RunningControl):
    view = await ask.get("/v1/heat?window=24h")
    assert len(view["data"]) == 4
    assert sum(sum(row["arrivals"]) for row in view["data"]) == control.lively.requests
    assert any(max(row["resident_ratio"]) == 1.0 for row in view["data"])
    assert {len(row["arrivals"]) for row in view["data"]} == {96}
    assert (await ask.get("/v1/heat?window=7d"))["step_s"] == 3600


async def test_a_request_says_where_its_time_went(ask: Asker):
    listed = await ask.get("/v1/requests?order=slowest&limit=3")
    slow = listed["data"][0]
    assert listed["has_more"]
    found = await ask.get(f"/v1/requests/{slow['id']}")
    assert sum(phase["seconds"] for phase in found["phases"]) == pytest.approx(
        found["duration_s"], abs=0.01
    )
    assert "Most of its time" in found["sentence"]
    assert "client" not in found
    newest = await ask.get(f"/v1/requests?model={MODEL}")
    assert {one["model"] for one in newest["data"]} == {MODEL}
    status, answer = await ask("GET", "/v1/requests/nobody")
    assert (status, answer["error"]["code"]) == (404, "request_not_found")


async def test_feedback_is_kept_in_the_log_and_shown(ask: Asker, control: RunningControl):
    name = (await ask.get("/v1/requests?limit=1"))["data"][0]["id"]
    for body, score in (({"rating": "bad"}, 0.0), ({"score": 0.75}, 0.75)):
        status, answer = await ask("POST", "/v1/feedback", json={"request_id": name, **body})
        assert (status, answer["score"]) == (201, score)
    async with asyncio.timeout(10):
        while (await ask.get(f"/v1/requests/{name}"))["feedback"] != 0.75:  # noqa: ASYNC110 - the log is followed
            await asyncio.sleep(0.01)
    for body, wanted in (
        ({"request_id": name}, 422),
        ({"request_id": name, "score": 7}, 422),
        ({"request_id": name, "rating": "good", "comment": "words"}, 422),
        ({"request_id": "nobody", "rating": "good"}, 404),
    ):
        assert (await ask("POST", "/v1/feedback", json=body))[0] == wanted


async def test_why_a_model_is_loaded_is_told(ask: Asker):
    view = await ask.get(f"/v1/explain/{MODEL}")
    assert view["sentences"][0].startswith(f"{MODEL} is loaded")
    assert {"probability_60s", "free_bytes"} <= {fact["name"] for fact in view["facts"]}
    assert (await ask("GET", "/v1/explain/nobody"))[0] == 404


async def test_a_decision_says_what_would_have_changed_it_and_what_else_was_decided(
    ask: Asker, control: RunningControl
):
    decisions = (await ask.get("/v1/decisions?limit=40"))["data"]
    assert any(one["would_change"] for one in decisions)
    found = await ask.get(f"/v1/decisions/{decisions[0]['id']}")
    assert found["beside"] == []


async def test_settings_are_told_as_they_are_given(ask: Asker, control: RunningControl):
    control.room.settings = lambda: [("control.port", 8090, "default")]
    (one,) = (await ask.get("/v1/settings"))["data"]
    assert one == {"id": "control.port", "value": 8090, "origin": "default"}


async def test_who_has_no_key_of_the_gateway_gives_no_feedback(session: aiohttp.ClientSession):
    config = ControlConfig(admin_key="geheim")
    control = RunningControl(
        config=config, kinds=KINDS[:1], minutes=1, gateway=GatewayConfig(keys=("sk-1",))
    ).start()
    try:
        ask = Asker(session, control.url)
        body = {"request_id": "r1", "rating": "good"}
        assert (await ask("POST", "/v1/feedback", json=body))[0] == 401
        key = {"Authorization": "Bearer sk-1"}
        assert (await ask("POST", "/v1/feedback", json=body, headers=key))[0] in (201, 404)
        assert ModelId(KINDS[0].name) in control.room.board.known_models()
    finally:
        control.stop()


async def test_long_answers_go_packed_to_who_takes_them_so(
    session: aiohttp.ClientSession, control: RunningControl
):
    for taken, wanted in (("gzip", "gzip"), ("identity", None)):
        headers = {"Accept-Encoding": taken}
        async with session.get(f"{control.url}/v1/kpis", headers=headers) as answer:
            assert answer.headers.get("Content-Encoding") == wanted
            assert (await answer.json())["object"] == "kpis"
        async with session.get(f"{control.url}/static/app.js", headers=headers) as answer:
            assert answer.headers.get("Content-Encoding") == wanted
            assert (await answer.text()).startswith("// Starts the page")
