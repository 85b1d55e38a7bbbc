"""The gateway as background jobs call it: answers kept whole, refusals told apart."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest
from aiohttp import web

from adapters.gateway_client import HttpGateway
from contracts.errors import Permanent, Transient

pytestmark = pytest.mark.integration

Connect: TypeAlias = Callable[..., HttpGateway]


class Page:
    """One answer for all, and what was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.status, self.body, self.headers = 200, b'{"ok":true}', {"Content-Type": "text/x"}
        self.asked: list[tuple[str, bytes, dict[str, str]]] = []
        self.gate: asyncio.Event | None = None
        self.came, self.left = asyncio.Event(), asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path_qs, await request.read(), dict(request.headers)))
        self.came.set()
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    page = Page()
    app = web.Application()
    app.router.add_post("/{path:.*}", page.handle)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    page.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield page
    await runner.cleanup()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes clients, and closes them at the end."""
    async with AsyncExitStack() as stack:

        def make(url: str, **options: Any) -> HttpGateway:
            client = HttpGateway(url, **options)
            stack.push_async_callback(client.close)
            return client

        yield make


async def test_the_request_goes_as_it_is_and_the_answer_comes_whole(connect: Connect, page: Page):
    page.body = bytes(range(256)) * 1000
    answer = await connect(page.url + "/", key="k-1").post(
        "/v1/audio/speech", b'{"input":"gr\xc3\xbcn"}', {"X-Headstart-Class": "batch"}
    )
    assert (answer.status, answer.content_type, answer.body) == (200, "text/x", page.body)
    path, body, headers = page.asked[0]
    assert (path, body) == ("/v1/audio/speech", b'{"input":"gr\xc3\xbcn"}')
    assert headers["X-Headstart-Class"] == "batch"
    assert headers["Authorization"] == "Bearer k-1"
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "retry_after", "after_s"),
    [
        (429, "7", 7.0),
        (503, "1", 1.0),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", None),
        (500, None, None),
        (502, None, None),
        (504, None, None),
        (408, None, None),
    ],
)
async def test_what_may_pass_is_transient_with_the_time_to_come_back(
    connect: Connect, page: Page, status: int, retry_after: str | None, after_s: float | None
):
    page.status = status
    page.body = b'{"error":{"message":"try later","type":"queue_full"}}'
    page.headers = {} if retry_after is None else {"Retry-After": retry_after}
    with pytest.raises(Transient, match=f"{status}: queue_full: try later") as error:
        await connect(page.url).post("/v1/x", b"{}", {})
    assert error.value.retry_after_s == after_s


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error":{"message":"no such model","type":""}}', "404: no such model"),
        (b'{"error":"text alone"}', "404: text alone"),
        (b'{"success":false}', "404: {'success': False}"),
        (b"[1]", r"404: \[1\]"),
        (b"not json", "404: not json"),
        (b"", "404: no message"),
        (b"x" * 5000, "404: x{300}$"),
    ],
)
async def test_what_will_not_pass_is_permanent_with_what_the_answer_says(
    connect: Connect, page: Page, body: bytes, said: str
):
    page.status, page.body = 404, body
    with pytest.raises(Permanent, match=said):
        await connect(page.url).post("/v1/x", b"{}", {})


async def test_an_answer_that_is_too_long_to_keep_is_refused(connect: Connect, page: Page):
    page.body = b"x" * 1001
    with pytest.raises(Permanent, match="more than 1000 bytes"):
        await connect(page.url, answer_max_bytes=1000).post("/v1/x", b"{}", {})
    page.body = b"x" * 1000
    assert (await connect(page.url, answer_max_bytes=1000).post("/v1/x", b"{}", {})).body


async def test_a_gateway_that_is_away_or_breaks_off_is_transient(connect: Connect, page: Page):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Transient, match="does not answer"):
        await connect(f"http://127.0.0.1:{port}").post("/v1/x", b"{}", {})
    page.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(Transient, match="does not answer"):
        await connect(page.url).post("/v1/x", b"{}", {})


async def test_cancelling_closes_the_connection_so_that_the_work_ends(connect: Connect, page: Page):
    page.gate = asyncio.Event()
    call = asyncio.create_task(connect(page.url).post("/v1/x", b"{}", {}))
    await page.came.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    async with asyncio.timeout(5.0):
        await page.left.wait()
