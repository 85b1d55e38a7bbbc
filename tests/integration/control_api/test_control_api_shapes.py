"""The words of the control API: the one shape of errors, OpenAPI, pages and metrics."""

from __future__ import annotations

import json

import pytest
import structlog

from contracts.world import Residency
from tests.control_server import RunningControl
from tests.integration.control_api.control_caller import HOT, Caller, check_shape

pytestmark = pytest.mark.integration

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
