"""Who leaves in the middle of a body is no error of ours."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from api.control.guard import Guard


async def reads_all(scope: Scope, receive: Receive, send: Send) -> None:
    await Request(scope, receive).body()
    raise AssertionError("the body never came to its end")


async def test_a_caller_that_leaves_in_the_middle_of_its_body_is_no_error():
    messages = iter(
        [
            {"type": "http.request", "body": b'{"model": ', "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/background/v1/chat/completions"}
    counted: list[Any] = []
    guard = Guard(reads_all, _Counting(counted))  # type: ignore[arg-type] # its one method
    with capture_logs() as said:
        await guard(scope, receive, send)
    assert [line["event"] for line in said if line["log_level"] != "debug"] == []
    assert (sent, counted) == ([], [])


class _Counting:
    def __init__(self, counted: list[Any]) -> None:
        self._counted = counted

    def count(self, *what: Any) -> None:
        self._counted.append(what)
