"""Field reports on browsers: preflight, other sites' pages, and answers that a page may read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from contracts.config import NodeConfig
from contracts.events import RequestReceived
from contracts.ids import NodeId
from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway, of_kind

pytestmark = pytest.mark.integration

APP = "https://app.example"
HI = [{"role": "user", "content": "hi"}]
BODY = {"model": "talk", "messages": HI}
PREFLIGHT = {
    "Origin": APP,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
}
MODELS = ({"name": "talk", "load_s": 0.1, "answer_tokens": 2},)
CHAT = "/v1/chat/completions"
RIGHT = {"Authorization": "Bearer right"}


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS, exact_load_times=True) as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def with_key(url: str, key: str) -> NodeConfig:
    """LocalAI's own key, which callers do not know."""
    return NodeConfig(node=NodeId("localai"), url=url, api_key=key)


@pytest.mark.case("P075")
async def test_a_preflight_is_answered_as_localai_does_and_asks_for_no_key(http, emulator):
    with RunningGateway(emulator.url, keys=("right",)) as gateway:
        async with http.options(gateway.url + CHAT, headers=PREFLIGHT) as answer:
            assert answer.status == 204
            allowed = answer.headers.getall("Access-Control-Allow-Headers")
            assert allowed == ["authorization,content-type,x-stainless-os"]
            assert answer.headers.getall("Access-Control-Allow-Origin") == ["*"]
            assert "POST" in answer.headers["Access-Control-Allow-Methods"]
        assert of_kind(gateway.told(), RequestReceived) == []
    assert emulator.events() == []


@pytest.mark.case("P075")
async def test_a_preflight_passes_localais_own_key(http):
    """LocalAI asks for its key there too; browsers never send one with a preflight."""
    with RunningEmulator(MODELS, exact_load_times=True, api_keys=("inner",)) as emulator:
        async with http.options(emulator.url + CHAT, headers=PREFLIGHT) as answer:
            assert answer.status == 401
        node = with_key(emulator.url, "inner")
        with RunningGateway(emulator.url, node=node, keys=("outer",)) as gateway:
            async with http.options(gateway.url + CHAT, headers=PREFLIGHT) as answer:
                assert answer.status == 204


@pytest.mark.case("P075")
async def test_an_error_of_ours_can_be_read_by_the_page_that_localai_allows(http, emulator):
    headers = {"Origin": APP, "Authorization": "Bearer wrong"}
    with RunningGateway(emulator.url, keys=("right",)) as gateway:
        url = gateway.url + CHAT
        async with http.post(url, json=BODY, headers=headers) as answer:
            assert answer.status == 401
            assert "Access-Control-Allow-Origin" not in answer.headers, "nobody has allowed it yet"
        async with http.options(url, headers=PREFLIGHT) as answer:
            assert answer.status == 204
        async with http.post(url, json=BODY, headers=headers) as answer:
            assert answer.status == 401
            assert answer.headers.getall("Access-Control-Allow-Origin") == ["*"]
        other = headers | {"Origin": "https://other.example"}
        async with http.post(url, json=BODY, headers=other) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
        async with http.post(url, json=BODY, headers=headers | RIGHT) as answer:
            assert answer.status == 200
            assert answer.headers.getall("Access-Control-Allow-Origin") == ["*"]


@pytest.mark.case("P075")
async def test_a_stream_that_begins_with_our_comments_can_be_read(http):
    models = ({"name": "talk", "load_s": 20.0, "answer_tokens": 2},)
    with (
        RunningEmulator(models, exact_load_times=True) as emulator,
        RunningGateway(emulator.url, keepalive_s=4.0, min_load_budget_s=900.0) as gateway,
    ):
        gateway.routes({"talk": Residency.COLD})
        async with http.options(gateway.url + CHAT, headers=PREFLIGHT) as answer:
            assert answer.status == 204
        async with http.post(
            gateway.url + CHAT, json=BODY | {"stream": True}, headers={"Origin": APP}
        ) as answer:
            assert answer.headers.getall("Access-Control-Allow-Origin") == ["*"]
            assert (await answer.read()).startswith(b": headstart")


@pytest.mark.case("P076")
@pytest.mark.parametrize("header", ["Authorization", "x-api-key", "xi-api-key"])
async def test_a_page_of_another_site_with_the_key_replaced(http, header):
    """LocalAI refuses such a page without a key, so both go on or neither does."""
    sent = {"Origin": APP, "Sec-Fetch-Site": "cross-site", header: "outer"}
    with RunningEmulator(MODELS, exact_load_times=True, api_keys=("inner",)) as emulator:
        node = with_key(emulator.url, "inner")
        with RunningGateway(emulator.url, node=node, keys=("outer",)) as gateway:
            async with http.post(gateway.url + CHAT, json=BODY, headers=sent) as answer:
                assert answer.status == 200


@pytest.mark.case("P076")
async def test_a_page_of_another_site_where_the_gateway_alone_asks_for_keys(http, emulator):
    sent = {"Origin": APP, "Sec-Fetch-Site": "cross-site", "Authorization": "Bearer outer"}
    with RunningGateway(emulator.url, keys=("outer",)) as gateway:
        async with http.post(gateway.url + CHAT, json=BODY, headers=sent) as answer:
            assert answer.status == 200


@pytest.mark.case("P076")
async def test_a_page_of_another_site_without_any_key_is_localais_to_refuse(http, emulator):
    sent = {"Origin": APP, "Sec-Fetch-Site": "cross-site"}
    with RunningGateway(emulator.url) as gateway:
        async with http.post(gateway.url + CHAT, json=BODY, headers=sent) as answer:
            assert answer.status == 400
            assert "csrf" in await answer.text()


@pytest.mark.case("P076")
async def test_a_cookie_does_not_make_another_sites_page_trustworthy(http, emulator):
    """Browsers send cookies along by themselves: LocalAI goes on to refuse such a page."""
    sent = {"Origin": APP, "Sec-Fetch-Site": "cross-site", "Cookie": "token=outer"}
    with RunningGateway(emulator.url, keys=("outer",)) as gateway:
        async with http.post(gateway.url + CHAT, json=BODY, headers=sent) as answer:
            assert answer.status == 400
