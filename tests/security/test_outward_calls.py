"""Addresses that callers name: our workers call the internet, and nothing of our own network."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from adapters.public_addresses import is_public
from adapters.webhooks import HttpNotifier, check_webhook
from contracts.errors import Invalid, Permanent, Transient

pytestmark = pytest.mark.integration

LITERALS = [
    "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
    "0.0.0.0", "255.255.255.255", "224.0.0.1", "240.0.0.1", "198.18.0.1",
    "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[fe80::1]",
    "[fe80::1%25lo]", "[fc00::1]", "[fec0::1]", "[ff02::1]", "[64:ff9b::7f00:1]",
    "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::a00:1]", "[2002:7f00:1::]", "[2002:a9fe:a9fe::1]",
    "[2001:0:7f00:1::]", "[::ffff:0:127.0.0.1]",
    # What one parser of URLs takes for a name and another for an address.
    "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "\u2460\u2461\u2466.0.0.1",
]  # fmt: skip

NAMES = ["2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "127.1", "0", "localhost",
         "localhost.", "127.0.0.1."]  # fmt: skip


class Ear:
    """A server inside, that must not hear anything."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.port = 0
        self.location = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.heard.append(request.path)
        return web.Response(status=307 if self.location else 200, headers={"Location": "/inside"})


@pytest.fixture
async def ear() -> AsyncIterator[Ear]:
    ear = Ear()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", ear.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ear.port = runner.addresses[0][1]
    yield ear
    await runner.cleanup()


@pytest.mark.parametrize("host", LITERALS)
async def test_an_address_inside_is_called_in_no_spelling(ear: Ear, host: str):
    with pytest.raises((Invalid, Permanent), match=r"no public address|no URL"):
        await HttpNotifier().notify(f"http://{host}:{ear.port}/hook", b"{}", {})
    assert ear.heard == []


@pytest.mark.parametrize("host", NAMES)
async def test_nor_is_one_that_the_system_reads_as_a_number(ear: Ear, host: str):
    # Not every system's resolver takes it, and then there is nobody to call.
    with pytest.raises((Permanent, Transient)):
        await HttpNotifier().notify(f"http://{host}:{ear.port}/hook", b"{}", {})
    assert ear.heard == []


async def test_a_name_that_changes_its_mind_is_judged_by_what_is_connected_to(
    ear: Ear, monkeypatch: pytest.MonkeyPatch
):
    answers = ["93.184.216.34", "127.0.0.1"]

    async def resolve(_self: Any, host: str, port: int = 0, family: Any = None) -> Any:
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            {
                "hostname": host,
                "host": found,
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": 0,
            }
        ]

    monkeypatch.setattr(aiohttp.ThreadedResolver, "resolve", resolve)
    url = f"http://rebinding.example:{ear.port}/hook"
    check_webhook(url, allow_private=False)
    answers.pop(0)
    with pytest.raises(Permanent, match="no public address"):
        await HttpNotifier().notify(url, b"{}", {})
    assert ear.heard == []


async def test_a_redirect_is_not_followed(ear: Ear):
    ear.location = "/inside"
    with pytest.raises(Permanent, match="307"):
        await HttpNotifier(allow_private=True).notify(
            f"http://127.0.0.1:{ear.port}/hook", b"{}", {}
        )
    assert ear.heard == ["/hook"]


async def test_a_proxy_of_the_environment_is_not_asked(ear: Ear, monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{ear.port}")
    with pytest.raises(Permanent):
        await HttpNotifier().notify("http://localhost:9/hook", b"{}", {})
    assert ear.heard == []


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "gopher://example.com/", "ftp://example.com/", "unix:///run/x",
        "//example.com/", "http://", "http:///path", "http://user:word@example.com/",
        "http://word@example.com/", "http://example.com:70000/", "http://[::1/",
        "http://example.com\\@127.0.0.1/", "javascript:alert(1)", "", "x" * 3000,
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_web_server_is_no_webhook(url: str):
    with pytest.raises(Invalid, match="webhook"):
        check_webhook(url, allow_private=True)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:4700::1111", "64:ff9b::5db8:d822"])
def test_the_internet_is_public(address: str):
    assert is_public(address)


@pytest.mark.parametrize("address", ["", "example.com", "1.2.3", "::g"])
def test_what_is_no_address_is_not(address: str):
    assert not is_public(address)
