"""The control API over HTTP: what it says, what it takes, and what it does about faults."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
import structlog

from contracts.config import ControlConfig
from contracts.errors import Transient
from contracts.ids import ModelId
from contracts.messages import LoadRequested, SettingsChanged, ToController, UnloadRequested
from contracts.world import Mode, Residency
from tests.browser.lively import Kind
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration

HOT, COLD, SLASHED = "qwen3-8b", "llama-70b", "org/coder:33b"
KINDS = (Kind(HOT, 20.0, 6.6, 7.0), Kind(COLD, 0.5, 41.0, 38.0), Kind(SLASHED, 1.0, 15.0, 14.0))

Reply = tuple[int, Any, aiohttp.ClientResponse]


class Caller:
    """One client session; answers are read whole."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        if body is not None:
            options["json"] = body
        from yarl import URL

        url = URL(self.url + path, encoded=True)
        async with self.session.request(method, url, **options) as response:
            raw = await response.read()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(raw) if is_json else raw, response

    async def get(self, path: str, **options: Any) -> Any:
        status, body, _ = await self("GET", path, **options)
        assert status == 200, body
        return body


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningControl]:
    control = RunningControl(kinds=KINDS).start()
    yield control
    control.stop()


@pytest.fixture
def control() -> Iterator[RunningControl]:
    """One of a test's own, that it may break."""
    control = RunningControl(kinds=KINDS, minutes=2).start()
    yield control
    control.stop()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def ask(shared: RunningControl, session: aiohttp.ClientSession) -> Caller:
    shared.do(shared.freshen())
    return Caller(session, shared.url)


def sent(control: RunningControl) -> list[ToController]:
    _, messages = control.do(control.lively.mailbox.receive("0", block_s=0))
    return list(messages)


async def test_models_are_listed_by_name_in_pages(ask: Caller):
    first = await ask.get("/v1/models?limit=2")
    assert [one["id"] for one in first["data"]] == sorted([COLD, SLASHED])
    assert (first["object"], first["has_more"], first["stale"]) == ("list", True, False)
    second = await ask.get(f"/v1/models?limit=2&after={first['last_id'].replace('/', '%2F')}")
    assert [one["id"] for one in second["data"]] == [HOT]
    assert not second["has_more"]
    model = second["data"][0]
    assert model["residency"] == "hot"
    assert model["footprint_bytes"] == 6_600_000_000
    assert (model["target_s"], model["sla"]["class"]) == (1.5, "realtime")


@pytest.mark.parametrize("name", ["org/coder:33b", "org%2Fcoder:33b", "org%2fcoder%3A33b"])
@pytest.mark.parametrize("resource", ["models", "forecasts", "slas"])
async def test_a_slash_in_a_name_is_taken_escaped_and_unescaped(ask: Caller, resource, name):
    assert (await ask.get(f"/v1/{resource}/{name}"))["id"] == SLASHED


async def test_an_unknown_model_names_the_nearest_known(ask: Caller):
    status, body, _ = await ask("GET", "/v1/models/qwen3")
    assert status == 404
    assert body["error"]["code"] == "model_not_found"
    assert f"nearest known: {HOT}" in body["error"]["message"]
    status, body, _ = await ask("POST", "/v1/models/zzzzzzz/load")
    assert status == 404
    assert "GET /v1/models" in body["error"]["message"]
    status, _, _ = await ask("GET", "/v1/models/" + "x" * 2000)
    assert status == 404


async def test_a_forecast_has_quantiles_next_use_and_its_score_against_the_floor(ask: Caller):
    page = await ask.get("/v1/forecasts")
    assert [one["model"] for one in page["data"]] == sorted([COLD, SLASHED, HOT])
    forecast = await ask.get(f"/v1/forecasts/{HOT}")
    horizons = forecast["signals"][0]["horizons"]
    assert [one["horizon_s"] for one in horizons] == [60, 300, 900, 3600]
    assert [one["level"] for one in horizons[0]["quantiles"]] == [0.1, 0.5, 0.9, 0.99]
    assert horizons[0]["loss"] < horizons[0]["floor_loss"]
    assert 0 < horizons[0]["skill_ratio"] < 1
    delays = {one["within_s"]: one["probability"] for one in forecast["next_use"]["probabilities"]}
    assert delays[5] < delays[60] <= delays[3600] <= 1
    assert forecast["next_use"]["valid"]


async def test_history_shows_what_came_beside_what_had_been_forecast(ask: Caller):
    history = await ask.get(f"/v1/models/{HOT}/history?minutes=3")
    ended = [one for one in history["data"] if one["end_s"] <= history["now_s"]]
    assert len(ended) == 3
    assert all(one["count"] is not None for one in ended)
    assert sum(one["count"] for one in ended) > 0
    assert any(one["quantiles"] for one in ended)
    current = next(one for one in history["data"] if one["end_s"] > history["now_s"])
    assert current["count"] is None
    longer = await ask.get(f"/v1/models/{HOT}/history?minutes=3&horizon_s=3600")
    assert longer["data"][-1]["end_s"] > longer["now_s"] + 3000
    status, body, _ = await ask("GET", f"/v1/models/{HOT}/history?horizon_s=61")
    assert (status, body["error"]["param"]) == (422, "horizon_s")
    assert "60, 300, 900, 3600" in body["error"]["message"]


async def test_decisions_come_newest_first_with_reasons_and_pages(ask: Caller):
    page = await ask.get("/v1/decisions?limit=10")
    times = [one["made_at_s"] for one in page["data"]]
    assert times == sorted(times, reverse=True)
    assert page["has_more"]
    following = await ask.get(f"/v1/decisions?limit=500&after={page['last_id']}")
    assert len(following["data"]) == 30
    assert not following["has_more"]
    one = page["data"][0]
    assert one["sentence"].endswith(f"{one['explanation']}.")
    again = await ask.get(f"/v1/decisions/{one['id']}")
    assert again["evidence"] == one["evidence"]
    about = await ask.get(f"/v1/decisions?model={COLD}")
    assert {decision["subject"] for decision in about["data"]} == {COLD}
    status, body, _ = await ask("GET", "/v1/decisions/nope")
    assert (status, body["error"]["code"]) == (404, "decision_not_found")


async def test_queues_nodes_comparisons_jobs_and_the_summary(ask: Caller):
    queues = await ask.get("/v1/queues")
    assert {one["id"]: one["waiting"] for one in queues["data"]}["background"] == 17
    (node,) = (await ask.get("/v1/nodes"))["data"]
    assert node["occupied_bytes"] == 6_600_000_000 + 15_000_000_000
    (comparison,) = (await ask.get("/v1/comparisons"))["data"]
    assert comparison["policy"] == "localai-lru"
    expected = comparison["cold_starts"] - comparison["our_cold_starts"]
    assert comparison["avoided_cold_starts"] == expected
    jobs = await ask.get("/v1/jobs")
    assert jobs["data"][0]["counts"] == {"started": 1, "queued": 13}
    assert (await ask.get("/v1/jobs/b0"))["status"]["state"] == "started"
    assert (await ask("GET", "/v1/jobs/nope"))[0] == 404
    summary = await ask.get("/v1/summary")
    assert summary["prefetches"] == {"started": 61, "used": 44, "wasted": 12}
    assert summary["comparison"] == comparison
    assert summary["judged"] > 0
    assert 0 < summary["attainment_ratio"] <= 1


async def test_a_target_is_set_read_and_deleted(control: RunningControl, session):
    ask = Caller(session, control.url)
    body = {"target_s": 3.5, "percentile": 99, "class": "batch", "weight": 2}
    status, answer, _ = await ask("PUT", f"/v1/slas/{COLD}", body)
    assert status == 200
    assert {key: answer[key] for key in body} == body
    assert (await ask.get(f"/v1/slas/{COLD}"))["target_s"] == 3.5
    assert COLD in [one["id"] for one in (await ask.get("/v1/slas"))["data"]]
    assert (await ask.get(f"/v1/models/{COLD}"))["target_s"] == 3.5
    assert any(isinstance(message, SettingsChanged) for message in sent(control))
    status, answer, _ = await ask("DELETE", f"/v1/slas/{COLD}")
    assert (status, answer) == (200, {"id": COLD, "object": "sla.deleted", "deleted": True})
    assert (await ask("DELETE", f"/v1/slas/{COLD}"))[0] == 404
    status, body, _ = await ask("GET", f"/v1/slas/{COLD}")
    assert (status, body["error"]["code"]) == (404, "no_sla")


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"target_s": 0}, "target_s", ["target_s is 0", "greater than 0"]),
        ({"target_s": 1, "percentile": 120}, "percentile", ["120", "99.99"]),
        ({"target_s": 1, "class": "urgent"}, "class", ["'urgent'", "'realtime'", "'batch'"]),
        ({"target_s": 1, "weight": -1}, "weight", ["weight is -1"]),
        ({"target_s": "soon"}, "target_s", ["'soon'", "number"]),
        ({"target_s": 1, "targt": 2}, "targt", ["targt is not a field"]),
        ({}, "target_s", ["target_s is missing"]),
    ],
)
async def test_a_wrong_value_names_field_value_and_what_is_allowed(ask: Caller, body, param, words):
    status, answer, _ = await ask("PUT", f"/v1/slas/{HOT}", body)
    assert (status, answer["error"]["param"]) == (422, param)
    assert all(word in answer["error"]["message"] for word in words), answer


async def test_bodies_that_are_no_json_or_too_large(ask: Caller):
    headers = {"Content-Type": "application/json"}
    path = f"/v1/slas/{HOT}"
    status, answer, _ = await ask("PUT", path, data=b'{"target_s": ', headers=headers)
    assert (status, "not JSON" in answer["error"]["message"]) == (422, True)
    status, answer, _ = await ask("PUT", path, data=b"x" * 70_000, headers=headers)
    assert (status, answer["error"]["code"]) == (413, "body_too_large")
    status, answer, _ = await ask("PUT", path, data=b'{"target_s": NaN}', headers=headers)
    assert status == 422


async def test_loads_and_unloads_are_told_to_the_controller(control: RunningControl, session):
    ask = Caller(session, control.url)
    status, answer, _ = await ask("POST", f"/v1/models/{COLD}/load")
    assert (status, answer["status"]) == (202, "accepted")
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/load")
    assert (status, answer["status"]) == (200, "already")
    status, answer, _ = await ask("POST", f"/v1/models/{SLASHED}/load")
    assert (status, answer["message"]) == (200, "it is loading already")
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/unload")
    assert (status, answer["status"]) == (202, "accepted")
    status, answer, _ = await ask("POST", f"/v1/models/{COLD}/unload")
    assert (status, answer["status"]) == (200, "already")
    asked = [m.model for m in sent(control) if isinstance(m, LoadRequested)]
    assert asked == [COLD]
    assert [m.model for m in sent(control) if isinstance(m, UnloadRequested)] == [HOT]


async def test_while_observing_a_load_is_refused_since_nobody_would_do_it(
    control: RunningControl, session
):
    ask = Caller(session, control.url)
    await ask("PUT", "/v1/mode", {"mode": "observe"})
    told = len(sent(control))
    for path in (f"/v1/models/{COLD}/load", f"/v1/models/{HOT}/unload"):
        status, answer, _ = await ask("POST", path)
        assert (status, answer["error"]["code"]) == (409, "observe_only")
        assert "set the mode to active" in answer["error"]["message"]
    assert (await ask("POST", f"/v1/models/{HOT}/load"))[0] == 200  # nothing would be done
    assert len(sent(control)) == told
    await ask("PUT", "/v1/mode", {"mode": "active"})
    assert (await ask("POST", f"/v1/models/{COLD}/load"))[0] == 202


async def test_a_pin_is_kept_told_and_guards_against_an_unload(control: RunningControl, session):
    ask = Caller(session, control.url)
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/pin")
    assert (status, answer["status"]) == (200, "done")
    assert control.do(control.lively.settings.pins()) == {HOT}
    assert (await ask.get(f"/v1/models/{HOT}"))["pinned"]
    assert (await ask("POST", f"/v1/models/{HOT}/pin"))[1]["status"] == "already"
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/unload")
    assert (status, answer["error"]["code"]) == (409, "model_pinned")
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/unpin")
    assert (status, answer["status"]) == (200, "done")
    assert control.do(control.lively.settings.pins()) == frozenset()
    assert not (await ask.get(f"/v1/models/{HOT}"))["pinned"]


async def test_a_pin_of_the_configuration_is_not_undone_here(control: RunningControl, session):
    ask = Caller(session, control.url)
    control.lively.set(ModelId(HOT), pinned=True)
    control.do(control.lively.snapshots.put_world(control.lively.world))
    control.do(control.refresh())
    status, answer, _ = await ask("POST", f"/v1/models/{HOT}/unpin")
    assert (status, answer["error"]["code"]) == (409, "pinned_by_configuration")


async def test_the_mode_is_read_and_set(control: RunningControl, session):
    ask = Caller(session, control.url)
    assert (await ask.get("/v1/mode"))["mode"] == "active"
    status, answer, _ = await ask("PUT", "/v1/mode", {"mode": "observe"})
    assert (status, answer["wanted"]) == (200, "observe")
    assert control.do(control.lively.settings.mode()) is Mode.OBSERVE
    status, answer, _ = await ask("PUT", "/v1/mode", {"mode": "turbo"})
    assert (status, answer["error"]["param"]) == (422, "mode")
    assert "'observe'" in answer["error"]["message"]


async def test_while_redis_is_away_the_last_world_is_served_as_stale(
    control: RunningControl, session
):
    ask = Caller(session, control.url)
    lively = control.lively
    fault = Transient("ConnectionError: redis.internal:6379 refused")
    for port in (lively.snapshots, lively.settings, lively.decisions, lively.events,
                 lively.forecasts, lively.mailbox, lively.jobs):  # fmt: skip
        port.fault = fault
    control.do(_until(lambda: control.room.board.store_fault is not None))
    assert (await ask.get("/v1/models"))["stale"]
    assert (await ask.get(f"/v1/models/{HOT}"))["stale"]
    assert (await ask.get("/v1/forecasts"))["stale"]
    assert (await ask.get("/v1/nodes"))["stale"]
    summary = await ask.get("/v1/summary")
    assert (summary["stale"], summary["mode"]) == (True, "active")
    for method, path in (
        ("GET", "/v1/decisions"),
        ("GET", "/v1/jobs"),
        ("PUT", "/v1/mode"),
        ("POST", f"/v1/models/{HOT}/pin"),
        ("POST", f"/v1/models/{COLD}/load"),
    ):
        body = {"mode": "active"} if method == "PUT" else None
        status, answer, response = await ask(method, path, body)
        assert status == 503, path
        assert "Redis" in answer["error"]["message"]
        assert "redis.internal" not in answer["error"]["message"]
        assert int(response.headers["Retry-After"]) >= 1
    status, answer, _ = await ask("GET", "/readyz")
    assert (status, answer["ready"]) == (503, False)
    assert "redis: it does not answer" in answer["error"]["message"]
    assert (await ask("GET", "/healthz"))[0] == 200
    for port in (lively.snapshots, lively.settings, lively.decisions, lively.events,
                 lively.forecasts, lively.mailbox, lively.jobs):  # fmt: skip
        port.fault = None
    control.do(_until(lambda: not control.room.followers.faults))
    assert not (await ask.get("/v1/models"))["stale"]
    assert (await ask("GET", "/readyz"))[0] == 200


async def test_before_anything_was_published(session):
    control = RunningControl(seeded=False).start()
    try:
        ask = Caller(session, control.url)
        for path in ("/v1/models", "/v1/nodes", "/v1/queues", "/v1/mode"):
            status, answer, _ = await ask("GET", path)
            assert (status, answer["error"]["code"]) == (503, "no_snapshot")
        for path in ("/v1/forecasts", "/v1/slas", "/v1/comparisons", "/v1/decisions"):
            assert (await ask.get(path))["data"] == []
        # A target may be set before any model is known.
        assert (await ask("PUT", "/v1/slas/soon-there", {"target_s": 1}))[0] == 200
        status, answer, _ = await ask("GET", "/readyz")
        assert "controller: no snapshot was ever seen" in answer["error"]["message"]
        assert "predictor: no forecast was ever seen" in answer["error"]["message"]
        assert (await ask("GET", "/metrics"))[0] == 200
    finally:
        control.stop()


async def test_before_anything_was_read_from_a_store_that_is_away(session):
    control = RunningControl(seeded=False).start()
    try:
        ask = Caller(session, control.url)
        for port in (control.lively.snapshots, control.lively.forecasts):
            port.fault = Transient("away")
        control.do(_until(lambda: control.room.board.store_fault is not None))
        for path in (
            "/v1/models",
            "/v1/models/llama",
            "/v1/forecasts",
            "/v1/forecasts/llama",
            "/v1/slas",
            "/v1/comparisons",
        ):
            status, answer, _ = await ask("GET", path)
            assert (status, answer["error"]["code"]) == (503, "store_unavailable"), path
    finally:
        control.stop()


async def test_a_model_that_is_only_known_by_its_target(session):
    control = RunningControl(seeded=False).start()
    try:
        ask = Caller(session, control.url)
        assert (await ask("PUT", "/v1/slas/planned", {"target_s": 1}))[0] == 200
        status, answer, _ = await ask("GET", "/v1/forecasts/planned")
        assert (status, answer["error"]["code"]) == (404, "no_forecast")
        control.do(control.freshen())
        status, answer, _ = await ask("GET", "/v1/models/planned")
        assert (status, answer["error"]["code"]) == (404, "model_not_found")
    finally:
        control.stop()


async def test_without_a_controller_a_load_is_refused_and_not_lost(
    control: RunningControl, session
):
    ask = Caller(session, control.url)
    from dataclasses import replace

    world = replace(control.lively.world, taken_at_s=control.lively.world.taken_at_s - 100)
    control.do(control.lively.snapshots.put_world(world))
    control.do(control.refresh())
    status, answer, _ = await ask("POST", f"/v1/models/{COLD}/load")
    assert (status, answer["error"]["code"]) == (503, "no_controller")
    assert "s old" in answer["error"]["message"]
    assert (await ask("GET", "/readyz"))[0] == 503


async def test_no_job_queue(session):
    control = RunningControl(kinds=KINDS, minutes=1, jobs=False).start()
    try:
        status, answer, _ = await Caller(session, control.url)("GET", "/v1/jobs")
        assert (status, answer["error"]["code"]) == (503, "no_job_queue")
    finally:
        control.stop()


async def test_with_a_key_writes_need_it_and_reads_do_not(session):
    config = ControlConfig(admin_key="geheim")
    control = RunningControl(config=config, kinds=KINDS, minutes=1).start()
    try:
        ask = Caller(session, control.url)
        status, answer, response = await ask("POST", f"/v1/models/{HOT}/pin")
        assert (status, response.headers["WWW-Authenticate"]) == (401, "Bearer")
        # A job's result is somebody's answer: reads are open, this one is not.
        assert (await Caller(session, control.url)("GET", "/v1/jobs"))[0] == 200
        assert (await Caller(session, control.url)("GET", "/v1/jobs/b0"))[0] == 401
        assert answer["error"]["code"] == "invalid_api_key"
        right = {"Authorization": "Bearer geheim"}
        assert (await ask("POST", f"/v1/models/{HOT}/pin", headers=right))[0] == 200
        await ask.get("/v1/models")
    finally:
        control.stop()


async def test_closed_reads_close_all_but_health_and_the_page(session):
    config = ControlConfig(admin_key="geheim", open_reads=False)
    control = RunningControl(config=config, kinds=KINDS, minutes=1).start()
    try:
        ask = Caller(session, control.url)
        spec = await ask.get("/openapi.json")
        for path, operations in spec["paths"].items():
            if "{" in path or path in ("/healthz", "/readyz"):
                continue
            method = "GET" if "get" in operations else "POST"
            body = None if method == "GET" else {"request_id": "r1", "rating": "good"}
            assert (await ask(method, path, body))[0] == 401, path
        for path in ("/healthz", "/readyz", "/", "/docs", "/static/app.js"):
            assert (await ask("GET", path))[0] == 200, path
    finally:
        control.stop()


async def test_another_sites_page_cannot_write(ask: Caller):
    for headers in (
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
        {"X-Forwarded-For": "10.1.1.1"},
    ):
        status, answer, response = await ask("POST", f"/v1/models/{HOT}/pin", headers=headers)
        assert (status, answer["error"]["code"]) == (403, "local_only"), headers
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_every_answer_carries_the_headers_that_guard_a_browser(ask: Caller):
    for path in ("/", "/v1/models", "/nope", "/v1/models/nope", "/docs", "/metrics"):
        _, _, response = await ask("GET", path)
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["X-Frame-Options"] == "DENY"
        assert response.headers["Referrer-Policy"] == "no-referrer"


ALL_ERRORS = [
    ("GET", "/nope", 404),
    ("GET", "/v1/", 404),
    ("GET", "/v1/models/", 404),
    ("GET", "/static/nope.js", 404),
    ("GET", "/static/..%2f..%2fcontrol%2fapp.py", 404),
    ("GET", "/vendor/LICENSES.txt/x", 404),
    ("POST", "/v1/models", 405),
    ("DELETE", "/healthz", 405),
    ("PATCH", "/v1/mode", 405),
    ("GET", "/v1/models?limit=0", 422),
    ("GET", "/v1/models?limit=many", 422),
    ("GET", "/v1/decisions?after=x", 422),
    ("PUT", "/v1/mode", 422),
]


@pytest.mark.parametrize(("method", "path", "expected"), ALL_ERRORS)
async def test_errors_have_the_one_shape(ask: Caller, method, path, expected):
    status, body, response = await ask(method, path)
    assert status == expected
    check_shape(body)
    if expected == 405:
        assert response.headers["Allow"]


async def test_every_documented_route_answers_errors_in_the_one_shape(ask: Caller):
    spec = await ask.get("/openapi.json")
    tried = 0
    for path, operations in spec["paths"].items():
        real = path.replace("{model}", "unknown-model").replace("{decision_id}", "x")
        real = real.replace("{job_id}", "x")
        for method in ("PATCH", "GET", "PUT", "POST", "DELETE"):
            if method.lower() in operations and "{" not in path and method == "GET":
                continue  # lists answer; their errors are tried above
            status, body, _ = await ask(method, real)
            if status == 200:
                continue
            assert status in (400, 404, 405, 409, 422), (method, real, status)
            check_shape(body)
            tried += 1
    assert tried > 60


def check_shape(body: Any) -> None:
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert isinstance(body["error"]["message"], str)
    assert body["error"]["message"]
    assert isinstance(body["error"]["type"], str)


async def test_a_bug_of_ours_has_the_one_shape_too(control: RunningControl, session):
    def broken() -> object:
        raise RuntimeError("secret detail")

    control.room.world = broken  # type: ignore[method-assign,assignment]  # a bug, on purpose
    with structlog.testing.capture_logs() as logged:
        status, body, _ = await Caller(session, control.url)("GET", "/v1/models")
    assert status == 500
    assert "control.unhandled_error" in [line["event"] for line in logged]
    check_shape(body)
    assert "secret detail" not in json.dumps(body)


async def test_openapi_documents_every_route_with_its_errors(ask: Caller):
    spec = await ask.get("/openapi.json")
    documented = {(method.upper(), path) for path, item in spec["paths"].items() for method in item}
    assert {
        ("GET", "/v1/models"),
        ("GET", "/v1/models/{model}"),
        ("GET", "/v1/models/{model}/profile"),
        ("DELETE", "/v1/models/{model}/profile"),
        ("GET", "/v1/models/{model}/history"),
        ("POST", "/v1/models/{model}/load"),
        ("POST", "/v1/models/{model}/unload"),
        ("POST", "/v1/models/{model}/pin"),
        ("POST", "/v1/models/{model}/unpin"),
        ("GET", "/v1/forecasts"),
        ("GET", "/v1/forecasts/{model}"),
        ("GET", "/v1/backtests"),
        ("GET", "/v1/slas"),
        ("GET", "/v1/slas/{model}"),
        ("PUT", "/v1/slas/{model}"),
        ("DELETE", "/v1/slas/{model}"),
        ("GET", "/v1/decisions"),
        ("GET", "/v1/decisions/{decision_id}"),
        ("GET", "/v1/mode"),
        ("PUT", "/v1/mode"),
        ("GET", "/v1/queues"),
        ("GET", "/v1/groups"),
        ("GET", "/v1/nodes"),
        ("GET", "/v1/predictors"),
        ("GET", "/v1/autoscale"),
        ("GET", "/v1/autoscale/{target}"),
        ("GET", "/v1/gpu"),
        ("POST", "/v1/gpu/yield"),
        ("POST", "/v1/gpu/resume"),
        ("GET", "/v1/kpis"),
        ("GET", "/v1/panels"),
        ("GET", "/v1/heat"),
        ("GET", "/v1/requests"),
        ("GET", "/v1/requests/{request_id}"),
        ("GET", "/v1/explain/{model}"),
        ("GET", "/v1/settings"),
        ("POST", "/v1/feedback"),
        ("GET", "/v1/comparisons"),
        ("GET", "/v1/policies"),
        ("GET", "/v1/jobs"),
        ("GET", "/v1/jobs/{job_id}"),
        ("GET", "/v1/jobs/failed"),
        ("POST", "/v1/jobs/maintenance/{kind}"),
        ("POST", "/v1/jobs/{job_id}/retry"),
        ("POST", "/v1/jobs/{job_id}/cancel"),
        ("POST", "/v1/files"),
        ("GET", "/v1/files"),
        ("GET", "/v1/files/{file_id}"),
        ("DELETE", "/v1/files/{file_id}"),
        ("GET", "/v1/files/{file_id}/content"),
        ("POST", "/v1/batches"),
        ("GET", "/v1/batches"),
        ("GET", "/v1/batches/{batch_id}"),
        ("POST", "/v1/batches/{batch_id}/cancel"),
        ("POST", "/v1/background/{path}"),
        ("GET", "/v1/background/{job_id}"),
        ("GET", "/v1/background/{job_id}/result"),
        ("POST", "/v1/background/{job_id}/cancel"),
        ("GET", "/v1/events"),
        ("GET", "/v1/summary"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
    } == documented
    for path, item in spec["paths"].items():
        for operation in item.values():
            assert operation["description"], path
            assert {"401", "404", "422", "503"} <= set(operation["responses"])
    body = spec["components"]["schemas"]["SlaBody"]["properties"]
    assert set(body) == {"target_s", "percentile", "class", "weight"}


async def test_the_documentation_page_loads_nothing_from_elsewhere(ask: Caller):
    for path in ("/", "/docs"):
        _, raw, response = await ask("GET", path)
        assert response.content_type == "text/html"
        assert b"http://" not in raw
        assert b"https://" not in raw
    assert (await ask("HEAD", "/"))[0] == 200
    assert (await ask("GET", "/favicon.ico"))[2].content_type == "image/svg+xml"


async def test_files_are_not_sent_again_while_they_are_the_same(ask: Caller):
    _, _, first = await ask("GET", "/static/app.css")
    status, raw, _ = await ask(
        "GET", "/static/app.css", headers={"If-None-Match": first.headers["ETag"]}
    )
    assert (status, raw) == (304, b"")


async def test_metrics_name_routes_and_never_paths(ask: Caller):
    await ask("GET", f"/v1/models/{HOT}")
    await ask("GET", "/v1/models/some-unknown-name")
    _, raw, response = await ask("GET", "/metrics")
    text = raw.decode()
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    assert 'route="/v1/models/{model:path}"' in text
    assert "some-unknown-name" not in text
    for line in (
        'headstart_model_residency{model="qwen3-8b",state="hot"} 1.0',
        'headstart_prefetches_total{result="wasted"} 12.0',
        'headstart_mode_info{mode="active"} 1.0',
        'headstart_node_memory_budget_bytes{node="localai"} 3.8e+10',
        "headstart_store_up 1.0",
    ):
        assert line in text, line
    assert "headstart_cold_starts_total" in text
    assert "headstart_forecast_floor_pinball_loss_requests" in text


async def test_residency_words_are_those_of_the_contract(ask: Caller):
    spec = await ask.get("/openapi.json")
    words = spec["components"]["schemas"]["Residency"]["enum"]
    assert words == [one.value for one in Residency]


async def _until(holds: Any) -> None:
    import asyncio

    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never became so")
