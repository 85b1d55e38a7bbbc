"""A caller of the control API, the models that it finds there, and what it told."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from contracts.messages import ToController
from tests.browser.lively import Kind
from tests.control_server import RunningControl

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


def sent(control: RunningControl) -> list[ToController]:
    _, messages = control.do(control.lively.mailbox.receive("0", block_s=0))
    return list(messages)


def check_shape(body: Any) -> None:
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert isinstance(body["error"]["message"], str)
    assert body["error"]["message"]
    assert isinstance(body["error"]["type"], str)
