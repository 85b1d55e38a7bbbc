"""Webhooks over real sockets: told, refused, and never into our own network by a name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from adapters.webhooks import HttpNotifier
from contracts.errors import Permanent, Transient

pytestmark = pytest.mark.integration


class Ear:
    """A caller's server."""

    def __init__(self) -> None:
        self.status = 200
        self.heard: list[tuple[bytes, str | None]] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.heard.append((await request.read(), request.headers.get("X-Sign")))
        return web.Response(status=self.status, headers={"Location": "/elsewhere"})


@pytest.fixture
async def ear() -> AsyncIterator[Ear]:
    ear = Ear()
    app = web.Application()
    app.router.add_post("/{path:.*}", ear.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ear.url = f"http://localhost:{runner.addresses[0][1]}/hook"
    yield ear
    await runner.cleanup()


async def test_what_is_told_arrives(ear: Ear):
    await HttpNotifier(allow_private=True).notify(ear.url, b"{}", {"X-Sign": "s"})
    assert ear.heard == [(b"{}", "s")]


@pytest.mark.parametrize(
    ("status", "error"),
    [(500, Transient), (429, Transient), (404, Permanent), (302, Permanent), (410, Permanent)],
)
async def test_what_is_not_taken_is_told_apart(ear: Ear, status: int, error: type[Exception]):
    ear.status = status
    with pytest.raises(error, match=str(status)):
        await HttpNotifier(allow_private=True).notify(ear.url, b"{}", {})
    assert len(ear.heard) == 1, "redirects are not followed"


async def test_a_name_that_leads_to_this_machine_is_not_called(ear: Ear):
    with pytest.raises(Permanent, match="no public address"):
        await HttpNotifier().notify(ear.url, b"{}", {})
    assert ear.heard == []


async def test_a_server_that_is_away_may_come_back():
    with pytest.raises(Transient, match="did not answer"):
        await HttpNotifier(allow_private=True).notify("http://127.0.0.1:9/", b"{}", {})
