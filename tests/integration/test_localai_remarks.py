"""What `headstart up` says about a LocalAI that it cannot use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from cli.ports import free_port
from cli.up import _remark
from contracts.config import NodeConfig
from contracts.ids import NodeId

pytestmark = pytest.mark.integration


@asynccontextmanager
async def localai(key: str | None, *, ready: bool = True) -> AsyncIterator[str]:
    """As LocalAI does: whether it is ready is told to anybody, its models only with the key."""

    async def readyz(request: web.Request) -> web.Response:
        return web.Response(status=200 if ready else 503)

    async def models(request: web.Request) -> web.Response:
        given = request.headers.get("Authorization")
        return web.Response(status=200 if key is None or given == f"Bearer {key}" else 401)

    app = web.Application()
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("asks_for", "given", "remark"),
    [
        (None, None, ""),
        (None, "needless", ""),
        ("secret", "secret", ""),
        ("secret", None, "asks for a key: set localai.api_key"),
        ("secret", "other", "does not take the key"),
    ],
)
async def test_a_key_that_is_missing_or_wrong_is_said(
    asks_for: str | None, given: str | None, remark: str
) -> None:
    async with localai(asks_for) as url:
        said = await _remark(NodeConfig(node=NodeId("n"), url=url, api_key=given))
    assert remark in said
    assert bool(said) == bool(remark)


async def test_one_that_is_not_ready_or_not_there_does_not_answer_yet() -> None:
    async with localai(None, ready=False) as url:
        assert "not answer yet" in await _remark(NodeConfig(node=NodeId("n"), url=url))
    assert "not answer yet" in await _remark(NodeConfig(node=NodeId("n"), url=url))
