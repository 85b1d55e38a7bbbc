"""What is no number, and ids with slashes: refused in words that say what is wrong."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.control_server import RunningControl

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", name="control")
def _control() -> Iterator[RunningControl]:
    running = RunningControl().start()
    yield running
    running.stop()


def ask(control: RunningControl, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    request = urllib.request.Request(
        control.url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


@pytest.mark.parametrize("value", [True, False, "1", [1], {}])
@pytest.mark.parametrize(
    ("method", "path", "field", "rest"),
    [
        ("PUT", "/v1/slas/{}", "target_s", {}),
        ("PUT", "/v1/slas/{}", "percentile", {"target_s": 1}),
        ("PUT", "/v1/slas/{}", "weight", {"target_s": 1}),
        ("POST", "/v1/gpu/yield", "minutes", {}),
        ("POST", "/v1/gpu/yield", "keep_mb", {}),
        ("POST", "/v1/feedback", "score", {"request_id": "x"}),
    ],
)
def test_what_is_no_number_is_refused(control, method, path, field, rest, value):
    model = control.lively.kinds[0].name
    status, error = ask(control, method, path.format(model), {**rest, field: value})
    assert (status, error["param"]) == (422, field)
    assert error["message"].startswith(f"{field} is {value!r}: ")


@pytest.mark.parametrize("job_id", ["a%2Fb", "a/b", "..%2F..", "%2F", "%00", "a" * 5_000])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs/{}"),
        ("POST", "/v1/jobs/{}/retry"),
        ("POST", "/v1/jobs/{}/cancel"),
        ("GET", "/v1/background/{}"),
        ("GET", "/v1/background/{}/result"),
        ("POST", "/v1/background/{}/cancel"),
    ],
)
def test_no_job_has_an_odd_id(control, method, path, job_id):
    status, error = ask(control, method, path.format(job_id))
    assert (status, error["code"]) == (404, "job_not_found")


def test_no_chore_has_an_odd_name(control):
    status, error = ask(control, "POST", "/v1/jobs/maintenance/a%2Fb")
    assert (status, error["code"]) == (404, "chore_not_found")


@pytest.mark.parametrize("after", ["%D9%A3", "1-%D9%A3", "1-", "-1", "1_0"])
def test_a_cursor_is_made_of_plain_digits(control, after):
    assert ask(control, "GET", f"/v1/decisions?after={after}")[0] == 422
