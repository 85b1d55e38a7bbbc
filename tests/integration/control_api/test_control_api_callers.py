"""Who may call the control API, and what guards the browser that does."""

from __future__ import annotations

import pytest

from contracts.config import ControlConfig
from tests.control_server import RunningControl
from tests.integration.control_api.control_caller import HOT, KINDS, Caller

pytestmark = pytest.mark.integration


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
