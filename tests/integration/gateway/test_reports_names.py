"""Field reports on names and lists, replayed against a gateway before an emulated LocalAI."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from urllib.parse import quote, unquote

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from contracts.config import NodeConfig
from contracts.errors import Permanent
from contracts.events import (
    IntentSignal,
    ModelLoadStarted,
    RequestCompleted,
    RequestFailed,
    RequestReceived,
)
from contracts.ids import ModelId, NodeId
from contracts.world import Residency
from tests.browser.lively import Kind
from tests.control_server import RunningControl
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway, of_kind

pytestmark = pytest.mark.integration

HI = [{"role": "user", "content": "hi"}]
ODD_NAMES = (
    "qwen/qwen3-coder",
    "llama-3.2-1b-instruct:q4_k_m",
    "llama-3.2-1b-instruct",
    "q4_k_m",
    "voice-pt_PT-tugão-medium",
    "my model@v2",
    "/abs/path.gguf",
    "a?b#c%2F",
    "a:b",
    "a",
    "b",
)
MODELS = (
    {"name": "first", "load_s": 0.1, "answer_tokens": 2},
    {"name": "hermes", "load_s": 0.1, "answer_tokens": 2, "aliases": ["gpt-4"]},
    {"name": "vectors", "kind": "embedding", "load_s": 0.1},
    {"name": "ears", "kind": "transcription", "load_s": 0.1},
    *({"name": name, "load_s": 0.1, "answer_tokens": 2} for name in ODD_NAMES),
)


@pytest.fixture(scope="module")
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS, exact_load_times=True) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(emulator: RunningEmulator) -> Iterator[RunningGateway]:
    with RunningGateway(emulator.url) as running:
        hot = {str(model["name"]): Residency.HOT for model in MODELS}
        running.routes(hot, aliases={"gpt-4": "hermes"})
        yield running


@pytest.fixture
async def http(gateway: RunningGateway) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(gateway.url) as session:
        yield session


async def series(http: aiohttp.ClientSession) -> dict[str, set[str]]:
    """Label values by label, over all of the gateway's series."""
    async with http.get("/headstart/metrics") as answer:
        text = await answer.text()
    values: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            for label, value in sample.labels.items():
                if label != "le":
                    values.setdefault(label, set()).add(value)
    return values


async def requests_of(http: aiohttp.ClientSession, model: str) -> float:
    """Requests that were counted as the model's."""
    async with http.get("/headstart/metrics") as answer:
        text = await answer.text()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "headstart_gateway_requests_total" and sample.labels["model"] == model
    )


@pytest.mark.case("P089")
@pytest.mark.parametrize("given", [{}, {"model": ""}, {"model": None}])
async def test_without_a_model_the_answer_says_whose_it_was(http, gateway, emulator, given):
    before = await requests_of(http, "first")
    body = json.dumps({**given, "messages": HI}, separators=(", ", ": ")).encode()
    headers = {"Content-Type": "application/json"}
    async with http.post("/v1/chat/completions", data=body, headers=headers) as answer:
        assert answer.status == 200
        served = (await answer.json())["model"]
        assert "x-headstart-model" not in answer.headers
    # LocalAI has taken its first one, and that is who has served by the telemetry.
    assert emulator.events("request_started")[-1]["model"] == served
    assert of_kind(gateway.told(), RequestCompleted)[-1].model == served
    assert served == "first"
    assert await requests_of(http, "first") == before + 1
    assert not {"", "None"} & (await series(http))["model"]


@pytest.mark.case("P089")
async def test_lists_are_about_no_model(http, gateway):
    before = len(gateway.told())
    for path in ("/v1/models", "/models", "/system", "/api/tags", "/readyz", "/api/resources"):
        async with http.get(path) as answer:
            assert answer.status == 200
    told = gateway.told()[before:]
    assert of_kind(told, RequestReceived) == []
    assert all(signal.model is None for signal in of_kind(told, IntentSignal))


@pytest.mark.case("P090")
@pytest.mark.parametrize(
    ("path", "body", "headers", "model"),
    [
        ("/v1/engines/vectors/embeddings", {"input": "a"}, {}, "vectors"),
        ("/v1/embeddings?model=vectors", {"input": "a"}, {}, "vectors"),
        ("/v1/embeddings", {"input": "a"}, {"Authorization": "Bearer vectors"}, "vectors"),
        ("/v1/engines/vectors/embeddings", {"input": "a", "model": "first"}, {}, "first"),
        ("/v1/embeddings?model=vectors", {"input": "a", "model": "first"}, {}, "first"),
        ("/v1/engines/vectors/embeddings?model=first", {"input": "a"}, {}, "vectors"),
    ],
)
async def test_both_find_the_same_model(http, gateway, emulator, path, body, headers, model):
    async with http.post(path, json=body, headers=headers) as answer:
        assert answer.status == 200
        assert answer.headers["x-headstart-model"] == model
        assert (await answer.json())["model"] == model
    assert emulator.events("request_received")[-1]["model"] == model
    assert of_kind(gateway.told(), RequestReceived)[-1].model == model


@pytest.mark.case("P090")
async def test_both_find_the_model_in_a_form(http, emulator):
    form = aiohttp.FormData()
    form.add_field("file", b"RIFF", filename="a.wav")
    form.add_field("model", "ears")
    async with http.post("/v1/audio/transcriptions", data=form) as answer:
        assert answer.headers["x-headstart-model"] == "ears"
        assert answer.status == 200
    assert emulator.events("request_received")[-1]["model"] == "ears"


@pytest.mark.case("P091")
async def test_odd_names_are_served_and_stay_distinct(http, gateway, emulator):
    for name in ODD_NAMES:
        body = {"model": name, "messages": HI}
        async with http.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200, name
            assert (await answer.json())["model"] == name
            shown = answer.headers["x-headstart-model"]
            assert shown.isascii()
            assert unquote(shown) == name
        assert emulator.events("request_started")[-1]["model"] == name
        assert of_kind(gateway.told(), RequestCompleted)[-1].model == name
    assert set(ODD_NAMES) <= (await series(http))["model"]


@pytest.mark.case("P091")
async def test_odd_names_have_pages_of_their_own_in_the_control_api():
    kinds = tuple(Kind(name, 6.0, 1.0, 1.0) for name in ODD_NAMES)
    control = RunningControl(kinds=kinds, minutes=2).start()
    try:
        async with aiohttp.ClientSession(control.url) as http:
            async with http.get("/v1/models", params={"limit": "100"}) as answer:
                listed = {entry["id"] for entry in (await answer.json())["data"]}
            assert set(ODD_NAMES) <= listed
            for name in ODD_NAMES:
                for kind in ("models", "forecasts"):
                    url = URL(f"{control.url}/v1/{kind}/{quote(name, safe='')}", encoded=True)
                    async with http.get(url) as answer:
                        assert answer.status == 200, (kind, name)
                        said = await answer.json()
                        assert name in (said.get("id"), said.get("model")), (kind, name)
            async with http.get("/metrics") as answer:
                text = await answer.text()
        labelled = {
            sample.labels["model"]
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if "model" in sample.labels
        }
        assert set(ODD_NAMES) <= labelled
    finally:
        control.stop()


@pytest.mark.case("P092")
async def test_an_invented_name_is_not_loaded_counted_or_kept(http, gateway, emulator):
    before = len(emulator.events())
    bodies = set()
    for _ in range(50):
        async with http.post(
            "/v1/chat/completions", json={"model": "gpt-4o", "messages": HI}
        ) as answer:
            assert answer.status == 404
            bodies.add(await answer.read())
    async with (
        aiohttp.ClientSession() as direct,
        direct.post(
            emulator.url + "/v1/chat/completions", json={"model": "gpt-4o", "messages": HI}
        ) as answer,
    ):
        assert bodies == {await answer.read()}
    assert emulator.events()[before:] == []
    failed = of_kind(gateway.told(), RequestFailed)[-1]
    assert (failed.model, failed.status) == ("gpt-4o", 404)
    assert of_kind(gateway.told(), ModelLoadStarted) == []
    assert "gpt-4o" not in (await series(http))["model"]


@pytest.mark.case("P095")
async def test_an_alias_is_its_target(http, gateway, emulator):
    for name in ("gpt-4", "hermes"):
        async with http.post(
            "/v1/chat/completions", json={"model": name, "messages": HI}
        ) as answer:
            assert (await answer.json())["model"] == name
            assert answer.headers["x-headstart-model"] == "hermes"
    received = of_kind(gateway.told(), RequestReceived)[-2:]
    assert [event.model for event in received] == ["hermes", "hermes"]
    models = (await series(http))["model"]
    assert "hermes" in models
    assert "gpt-4" not in models


@pytest.mark.case("P095")
async def test_an_alias_of_a_cold_model_has_the_target_loaded(emulator):
    models = ({"name": "hermes", "load_s": 1.0, "aliases": ["gpt-4"]},)
    with (
        RunningEmulator(models, exact_load_times=True) as cold,
        RunningGateway(cold.url, min_load_budget_s=900.0) as gateway,
    ):
        gateway.routes({"hermes": Residency.COLD}, aliases={"gpt-4": "hermes"})
        async with (
            aiohttp.ClientSession(gateway.url) as http,
            http.post("/v1/chat/completions", json={"model": "gpt-4", "messages": HI}) as answer,
        ):
            assert answer.status == 200
        assert [event["model"] for event in cold.events("load_started")] == ["hermes"]
        (started,) = of_kind(gateway.told(), ModelLoadStarted)
        assert started.model == ModelId("hermes")


@pytest.mark.case("P095")
async def test_a_broken_alias_is_localais_answer(http, gateway):
    """Its target is gone; the table has the alias still."""
    gateway.routes(
        {str(model["name"]): Residency.HOT for model in MODELS},
        aliases={"gpt-4": "hermes", "gone": "nowhere", "chain": "gone"},
    )
    for name in ("gone", "chain"):
        async with http.post(
            "/v1/chat/completions", json={"model": name, "messages": HI}
        ) as answer:
            assert answer.status == 404
    assert not {"gone", "chain", "nowhere"} & (await series(http))["model"]


@pytest.mark.case("P097")
async def test_a_typo_with_a_slash_is_asked_for_by_its_caller_alone(http, gateway, emulator):
    body = {"model": "org/typo", "messages": HI}
    async with http.post("/v1/chat/completions", json=body) as answer:
        assert answer.status >= 400
        assert re.search("org/typo|not found|could not", (await answer.text()))
    tried = len(emulator.events("load_started", model="org/typo"))
    assert tried == 0
    assert not [
        event for event in of_kind(gateway.told(), ModelLoadStarted) if event.model == "org/typo"
    ]
    assert "org/typo" not in (await series(http))["model"]


class OddLocalAI:
    """A LocalAI whose lists and status calls are as somebody once found them."""

    def __init__(self) -> None:
        self.ids: list[str] = ["a"]
        self.monitor = (500, "backend a.bin is not currently loaded")
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        match request.path:
            case "/v1/models":
                data = [{"id": name, "object": "model"} for name in self.ids]
                return web.json_response({"object": "list", "data": data})
            case "/system":
                return web.json_response({"loaded_models": [{"id": "a"}]})
            case "/api/aliases":
                return web.json_response([])
            case "/backend/monitor":
                status, message = self.monitor
                return web.json_response({"error": {"message": message}}, status=status)
            case "/v1/chat/completions":
                return web.json_response({"model": "a", "choices": []})
            case _:
                pass
        return web.json_response({"error": {"message": "Resource not found"}}, status=404)


@pytest.fixture
async def odd() -> AsyncIterator[tuple[OddLocalAI, str]]:
    server = OddLocalAI()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield server, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.case("P006")
@pytest.mark.parametrize(
    "monitor", [(500, "backend a.bin is not currently loaded"), (422, "Unprocessable Entity")]
)
async def test_a_status_call_that_is_wrong_does_not_make_a_model_cold(odd, monitor):
    localai, url = odd
    localai.monitor = monitor
    node = NodeConfig(node=NodeId("n1"), url=url)
    async with LocalAIServer(node, ScaledClock()) as server:
        assert (await server.report()).resident == ("a",), "the list of what is loaded counts"
        if monitor[0] == 500:
            assert await server.is_busy(ModelId("a")) is None
        else:
            with pytest.raises(Permanent):
                await server.is_busy(ModelId("a"))
        assert (await server.report()).resident == ("a",)


@pytest.mark.case("P006")
async def test_a_model_that_answers_is_served_whatever_its_status_call_says(odd):
    localai, url = odd
    with RunningGateway(url, node=NodeConfig(node=NodeId("localai"), url=url)) as gateway:
        gateway.routes({"a": Residency.HOT})
        async with aiohttp.ClientSession(gateway.url) as http:
            for _ in range(5):
                async with http.post(
                    "/v1/chat/completions", json={"model": "a", "messages": HI}
                ) as answer:
                    assert answer.status == 200
                    assert answer.headers["x-headstart-cold"] == "false"
    assert "POST /backend/load" not in localai.asked


@pytest.mark.case("P096")
async def test_a_list_of_files_that_are_no_models(odd):
    localai, url = odd
    localai.ids = ["", ".DS_Store", ".git", "README.md", *(f"f{n}.txt" for n in range(296))]
    async with LocalAIServer(NodeConfig(node=NodeId("n1"), url=url), ScaledClock()) as server:
        models = await server.models()
    assert len(models) == 299
    assert "" not in models
    assert not any("load" in call for call in localai.asked)


@pytest.mark.case("P097")
async def test_nothing_of_ours_asks_for_a_name_that_is_not_listed(odd):
    localai, url = odd
    async with LocalAIServer(NodeConfig(node=NodeId("n1"), url=url), ScaledClock()) as server:
        with pytest.raises(Permanent, match="has no model 'org/typo'"):
            await server.load(ModelId("org/typo"))
    assert "POST /backend/load" not in localai.asked
