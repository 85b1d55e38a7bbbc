"""Field reports on metrics and lists: bounded labels, nothing of what is gone, no raw paths."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from contracts.events import IntentSignal, RequestReceived
from contracts.world import Residency
from tests.browser.lively import Kind
from tests.control_server import RunningControl
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway, of_kind

pytestmark = pytest.mark.integration

HI = [{"role": "user", "content": "hi"}]
MODELS = (
    {"name": "talk", "load_s": 0.1, "answer_tokens": 2, "parallel": 8},
    {"name": "other-one", "load_s": 0.1, "answer_tokens": 2},
)
JUNK = '\x00\x07\x1b[31m"\\\n\r\t{}=,#é漢\u202e\u2028 abcxyz:@'
MAX_PAGE_BYTES = 1_000_000
_OF_COUNTERS = ("_total", "_bucket", "_count", "_sum", "_created")

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS, exact_load_times=True) as running:
        yield running


@pytest.fixture
def gateway(emulator: RunningEmulator) -> Iterator[RunningGateway]:
    with RunningGateway(emulator.url) as running:
        running.routes({"talk": Residency.HOT, "other-one": Residency.HOT})
        yield running


@pytest.fixture
async def http(gateway: RunningGateway) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(gateway.url) as session:
        yield session


async def scrape(http: aiohttp.ClientSession, path: str = "/headstart/metrics") -> Series:
    """Every series; the page is small and Prometheus can read it."""
    async with http.get(path) as answer:
        page = await answer.read()
    assert len(page) < MAX_PAGE_BYTES
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def values(series: Series, label: str) -> set[str]:
    return {value for _, labels in series for name, value in labels if name == label}


async def ask(http: aiohttp.ClientSession, model: str, **headers: str) -> int:
    body = {"model": model, "messages": HI}
    async with http.post("/v1/chat/completions", json=body, headers=headers) as answer:
        await answer.read()
        return answer.status


@pytest.mark.case("P093")
async def test_ten_thousand_made_up_names_are_one_series(http, gateway, capfd):
    """Most of them are counted as requests are, some come over the socket as well."""
    rng = random.Random(93)
    pool = "".join(rng.choices(JUNK, k=20_000))

    def name() -> str:
        begin = rng.randrange(16_000)
        return pool[begin : begin + rng.randint(100, 4000)]

    await ask(http, "gpt-none")
    before = await scrape(http)
    metrics = gateway.service._metrics
    for _ in range(10_000):
        metrics.ended(
            name(), operation="chat", priority="realtime", outcome="failed", status=404,
            duration_s=0.01,
        )  # fmt: skip
        metrics.first_content(name(), "realtime", 0.01)
        metrics.tokens(name(), 1, 1)
    for _ in range(100):
        assert await ask(http, name()) in (400, 404, 500)
    after = await scrape(http)
    assert len(after) - len(before) <= 40  # two histograms and a counter pair, for "other"
    assert values(after, "model") <= {"other", "talk", "other-one"}
    printed = "".join(capfd.readouterr())
    assert "\x1b[31m" not in printed
    assert max(map(len, printed.splitlines()), default=0) < 2000


@pytest.mark.case("P093")
async def test_junk_in_every_other_place_makes_no_series(http):
    await ask(http, "talk")
    before = await scrape(http)
    for number in range(50):
        junk = f"{number}-{uuid.uuid4()}"
        await ask(http, "talk", **{"X-Request-ID": junk, "User-Agent": junk})
        assert await ask(http, "talk", **{"X-Headstart-Class": junk}) == 400
    after = await scrape(http)
    # The refusals by type, and the failed requests of a header that was not taken.
    assert len(after) - len(before) <= 45
    assert not any("-" in value and len(value) > 30 for value in values(after, "type"))


@pytest.mark.case("P094")
async def test_paths_are_no_labels(http):
    async with http.get("/v1/models") as answer:
        await answer.read()
    before = await scrape(http)
    rng = random.Random(94)
    for number in range(500):
        path = f"/{rng.getrandbits(64):x}/{number}.php" if number % 2 else f"/wp/{number}"
        for target in (path, f"/v1/files/{uuid.UUID(int=rng.getrandbits(128))}"):
            async with http.get(target) as answer:
                assert answer.status == 404
    after = await scrape(http)
    new = {value for _, labels in set(after) - set(before) for _, value in labels}
    assert new == {"404"}


@pytest.mark.case("P094")
async def test_paths_are_no_labels_of_the_control_api():
    control = RunningControl(minutes=1).start()
    try:
        async with aiohttp.ClientSession(control.url) as http:
            await scrape(http, "/metrics")
            before = await scrape(http, "/metrics")
            for number in range(200):
                async with http.get(f"/v1/models/none-{number}") as answer:
                    assert answer.status == 404
                async with http.get(f"/scan/{number}.php") as answer:
                    assert answer.status == 404
            after = await scrape(http, "/metrics")
        new = values(after, "route") - values(before, "route")
        assert len(new) <= 2
        assert not any("none-" in value or "scan" in value for value in new)
    finally:
        control.stop()


@pytest.mark.case("P137")
async def test_a_gateway_that_dies_takes_its_gauges_with_it(emulator, tmp_path, monkeypatch):
    """One process holds its own figures in memory: no files, no process ids, no dead workers."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    gauge = ("headstart_gateway_in_flight", (("model", "talk"),))
    long = {"X-Emulator-Service-S": "2000"}
    async with AsyncExitStack() as stack:
        alive = stack.enter_context(RunningGateway(emulator.url))
        http = await stack.enter_async_context(aiohttp.ClientSession(alive.url))
        alive.routes({"talk": Residency.HOT})
        with RunningGateway(emulator.url) as dying:
            dying.routes({"talk": Residency.HOT})
            async with aiohttp.ClientSession(dying.url) as other:
                asking = [asyncio.ensure_future(ask(http, "talk", **long)) for _ in range(2)]
                lost = [asyncio.ensure_future(ask(other, "talk", **long)) for _ in range(3)]
                await emulator.wait_for("request_started", count=5)
                assert (await scrape(http))[gauge] == 2
                assert (await scrape(other))[gauge] == 3
                for task in lost:
                    task.cancel()
                await asyncio.gather(*lost, return_exceptions=True)
        series = await scrape(http)
        assert series[gauge] == 2
        assert not {"pid", "worker", "instance"} & {n for _, labels in series for n, _ in labels}
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await emulator.wait_for("caller_left", count=5)
        deadline_s = time.monotonic() + 10.0
        while gauge in (series := await scrape(http)) and series[gauge]:
            assert time.monotonic() < deadline_s
    assert list(tmp_path.iterdir()) == []


@pytest.mark.case("P154")
async def test_a_model_that_is_gone_leaves_no_gauge(http, gateway, emulator):
    long = {"X-Emulator-Service-S": "2000"}
    asking = asyncio.ensure_future(ask(http, "talk", **long))
    await emulator.wait_for("request_started")
    assert ("headstart_gateway_in_flight", (("model", "talk"),)) in await scrape(http)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await emulator.wait_for("caller_left")
    gateway.routes({"other-one": Residency.HOT})
    deadline_s = time.monotonic() + 10.0
    while _gauges_of(await scrape(http), "talk"):
        assert time.monotonic() < deadline_s, "its gauges are still there"


@pytest.mark.case("P154")
async def test_a_model_or_node_that_is_gone_leaves_no_gauge_in_the_control_api():
    control = RunningControl(kinds=(Kind("stays", 6.0, 1.0, 1.0), Kind("goes", 6.0, 1.0, 1.0)))
    control.start()
    try:
        async with aiohttp.ClientSession(control.url) as http:
            assert {"stays", "goes"} <= values(await scrape(http, "/metrics"), "model")
            assert "localai" in values(await scrape(http, "/metrics"), "node")
            control.do(_without(control, "goes"))
            series = await scrape(http, "/metrics")
            assert "stays" in values(series, "model")
            assert _gauges_of(series, "goes") == []
            assert "localai" not in values(series, "node")
    finally:
        control.stop()


async def _without(control: RunningControl, model: str) -> None:
    """The next snapshot has neither the model nor its node."""
    lively = control.lively
    kept = {name: status for name, status in lively.world.models.items() if name != model}
    lively.world = replace(lively.world, models=kept, nodes={})
    await control.freshen()


def _gauges_of(series: Series, model: str) -> list[str]:
    return [
        name
        for name, labels in series
        if ("model", model) in labels and not name.endswith(_OF_COUNTERS)
    ]


@pytest.mark.case("P096")
async def test_a_list_with_odd_files_is_no_demand(http, gateway):
    before = await scrape(http)
    junk = {f"file-{number}.md": Residency.COLD for number in range(298)}
    gateway.routes({**junk, ".DS_Store": Residency.COLD, "talk": Residency.HOT}, token=2)
    for _ in range(3):
        async with http.get("/v1/models") as answer:
            assert answer.status == 200
    assert values(await scrape(http), "model") == values(before, "model")
    told = gateway.told()
    assert of_kind(told, RequestReceived) == []
    assert len(of_kind(told, IntentSignal)) == 3


@pytest.mark.case("P054")
async def test_the_list_says_what_is_configured_and_not_what_is_loaded(http, gateway, emulator):
    gateway.routes({"talk": Residency.HOT, "other-one": Residency.COLD}, token=2)
    await ask(http, "talk")
    async with http.get("/v1/models") as answer:
        through = await answer.json()
    async with aiohttp.ClientSession(emulator.url) as direct, direct.get("/v1/models") as answer:
        assert sorted(entry["id"] for entry in (await answer.json())["data"]) == sorted(
            entry["id"] for entry in through["data"]
        )
    async with http.get("/system") as answer:
        loaded = [entry["id"] for entry in (await answer.json())["loaded_models"]]
    assert loaded == ["talk"]
