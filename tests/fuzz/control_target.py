"""The control API by its own description: whatever it says that it takes, and all else."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import FailureGroup

from adapters.clock import ScaledClock
from api.control.app import create_app
from contracts.config import ControlConfig
from tests.browser.lively import KINDS, Lively
from tests.control_server import RunningControl
from tests.fuzz.target import Check, Target

ADMIN_KEY = "an-admin-key-of-a-test"
MODELS = [kind.name for kind in KINDS[:3]]
ENDLESS = "/v1/events"
# What these say about each other is no schema's: a file of this name, one of two fields, a path.
BEYOND_SCHEMAS = {"POST /v1/files", "POST /v1/feedback", "POST /v1/background/{path}"}
NOT_READY = {"GET /readyz"}


@dataclass(frozen=True)
class Sent:
    """One request as it went out."""

    operation: str
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    is_wrong: bool


@cache
def schema() -> Any:
    load_all_checks()
    clock = ScaledClock()
    app = create_app(ControlConfig(), Lively(clock, kinds=KINDS[:3]).ports(), clock)
    return schemathesis.openapi.from_dict(app.openapi())


@cache
def operations() -> list[Any]:
    found = [result.ok() for result in schema().get_all_operations()]
    return [one for one in found if one.path != ENDLESS]


def _cases() -> st.SearchStrategy[Any]:
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    ways = [(one, mode) for one in operations() for mode in modes if _can(one, mode)]
    return st.sampled_from(ways).flatmap(_case)


def _can(operation: Any, mode: Any) -> bool:
    """Nothing can be wrong about a request that takes nothing."""
    takes = [*operation.query, *operation.headers, *operation.body]
    return mode is schemathesis.GenerationMode.POSITIVE or bool(takes)


def _case(way: tuple[Any, Any]) -> st.SearchStrategy[Any]:
    operation, mode = way
    named = st.tuples(operation.as_strategy(generation_mode=mode), st.sampled_from([None, *MODELS]))
    return named.map(lambda both: (_of_known(*both), mode.value == "negative"))


def _of_known(case: Any, model: str | None) -> Any:
    if model is not None and "model" in (case.path_parameters or {}):
        case.path_parameters["model"] = model.replace("/", "%2F")
    return case


class Caller:
    """Sends requests to a server, and looks whether the answers are what was promised."""

    def __init__(self, url: str, key: str | None) -> None:
        self._url = url
        self._session = requests.Session()
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def check(self, tried: Any) -> None:
        if isinstance(tried, Sent):
            self._replay(tried)
            return
        case, is_wrong = tried
        answer = case.call(
            base_url=self._url, session=self._session, headers=self._headers, timeout=20
        )
        label = case.operation.label
        left_out = {"positive_data_acceptance"} if label in BEYOND_SCHEMAS else set()
        left_out |= {"not_a_server_error"} if label in NOT_READY else set()
        checks = [CHECKS.get_one(n) for n in CHECKS.get_all_names() if n not in left_out]
        try:
            case.validate_response(answer, checks=checks, headers=self._headers)
        except FailureGroup as found:
            raise AssertionError(
                "; ".join(map(str, found.exceptions)) + f": {answer.text}"
            ) from None
        _shaped(answer.status_code, answer.content)
        assert is_wrong or answer.status_code != 422 or label in BEYOND_SCHEMAS

    def _replay(self, sent: Sent) -> None:
        request = requests.Request(
            sent.method, self._url, headers={**sent.headers, **self._headers}, data=sent.body
        ).prepare()
        request.url = self._url + sent.target
        answer = self._session.send(request, timeout=20)
        _shaped(answer.status_code, answer.content)
        assert not sent.is_wrong or answer.status_code >= 400
        found = [one for one in operations() if one.label == sent.operation]
        for operation in found:
            operation.validate_response(answer)


def _shaped(status: int, content: bytes) -> None:
    assert status < 500 or b'"not_ready"' in content, content
    if status >= 400 and b'"ready"' not in content:
        error = json.loads(content)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]


def freeze(tried: Any) -> bytes:
    case, is_wrong = tried
    prepared = case.as_transport_kwargs(base_url="http://x")
    request = requests.Request(**{k: v for k, v in prepared.items() if k != "timeout"}).prepare()
    return json.dumps(
        {
            "operation": case.operation.label,
            "method": request.method,
            "target": str(request.path_url),
            "headers": {
                name: value
                for name, value in request.headers.items()
                if name.lower() in ("content-type", "x-headstart-class", "x-headstart-webhook")
            },
            "body": base64.b64encode(_bytes(request.body)).decode(),
            "is_wrong": is_wrong,
        },
        indent=1,
    ).encode()


def _bytes(body: object) -> bytes:
    if isinstance(body, str):
        return body.encode()
    return body if isinstance(body, bytes) else b""


def thaw(data: bytes) -> Sent:
    said = json.loads(data)
    return Sent(**{**said, "body": base64.b64decode(said["body"])})


def _served(key: str | None) -> Any:
    @contextmanager
    def serve() -> Iterator[Check]:
        running = RunningControl(config=ControlConfig(admin_key=key)).start()
        running.live()
        try:
            yield Caller(running.url, key).check
        finally:
            running.stop()

    return serve


CONTROL = Target(
    "control", st.deferred(_cases), prepare=_served(ADMIN_KEY), freeze=freeze, thaw=thaw, short=20
)
CONTROL_OPEN = Target(
    "control-open", st.deferred(_cases), prepare=_served(None), freeze=freeze, thaw=thaw, short=10
)
