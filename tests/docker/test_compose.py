"""The compose file as people run it: up, used, killed piece by piece, taken down and up again."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import pytest
import redis

from adapters.redis_blocking import connect_blocking
from adapters.redis_client import connect
from adapters.redis_forecasts import RedisForecastStore
from adapters.redis_stores import RedisSnapshotStore
from adapters.rq_queue import RqJobQueue
from cli.ports import free_port
from contracts.errors import Permanent
from tests.docker.containers import Containers, build_image, layers, running, seconds_until
from workers.queues import QUEUES

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

SERVICES = (
    "localai", "redis", "gateway", "control", "predictor", "controller",
    *(f"worker-{queue}" for queue in QUEUES),
)  # fmt: skip
MOST_ON_TOP_MB = 250
"""What our layers may weigh; the base image is its maker's."""


class Figures:
    """What is measured, told as it comes."""

    def __init__(self, config: pytest.Config) -> None:
        self._capture = config.pluginmanager.get_plugin("capturemanager")

    def __setitem__(self, what: str, figure: str) -> None:
        assert self._capture is not None
        with self._capture.global_and_fixture_disabled():
            print(f"{what}: {figure}", flush=True)


@pytest.fixture(scope="module")
def figures(request: pytest.FixtureRequest) -> Figures:
    return Figures(request.config)


@pytest.fixture(scope="module")
def image(figures: Figures) -> None:
    began = time.monotonic()
    build_image()
    figures["image, built in"] = f"{time.monotonic() - began:.0f} s"
    for size, origin in layers():
        figures[f"image, layer {origin[:60]}"] = size


@pytest.fixture(scope="module")
def stack(
    image: None, tmp_path_factory: pytest.TempPathFactory, figures: Figures
) -> Iterator[Containers]:
    ports = {name: free_port() for name in ("localai", "redis", "gateway", "control")}
    began = time.monotonic()
    with running(tmp_path_factory.mktemp("compose"), ports) as containers:
        _all_healthy(containers, figures, began, "up")
        yield containers


def _all_healthy(stack: Containers, figures: Figures, began: float, what: str) -> None:
    waiting = set(SERVICES)

    def healthy() -> bool:
        for name in sorted(waiting):
            if stack.health(name) == "healthy":
                waiting.remove(name)
                figures[f"{what}, healthy after, {name}"] = f"{time.monotonic() - began:.1f} s"
        return not waiting

    seconds_until(healthy, f"{what}: all healthy", began)


def _chat(stack: Containers, model: str) -> int | None:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    status, _ = stack.ask("gateway", "/v1/chat/completions", body)
    return status


def _client(stack: Containers) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{stack.ports['gateway']}/v1", api_key="none")


def _forecast_since(stack: Containers, moment_s: float) -> bool:
    async def made() -> list[float]:
        client = connect(stack.redis_url)
        try:
            found = await RedisForecastStore(client).get_all()
        finally:
            await client.aclose()
        return [signal.made_at_s for one in found.values() for signal in one.signals]

    return any(made_s > moment_s for made_s in asyncio.run(made()))


def _snapshot_since(stack: Containers, moment_s: float) -> bool:
    async def taken() -> float:
        client = connect(stack.redis_url)
        try:
            world = await RedisSnapshotStore(client).world()
        finally:
            await client.aclose()
        return 0.0 if world is None else world.taken_at_s

    return asyncio.run(taken()) > moment_s


def _prefetches(stack: Containers) -> float:
    _, page = stack.ask("control", "/metrics")
    found = re.search(r'^headstart_prefetches_total{result="started"} (\S+)', page, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def _workers(stack: Containers, queue: str) -> set[str]:
    with connect_blocking(stack.redis_url) as client:
        return {worker.name for worker in RqJobQueue(client, QUEUES).workers(queue)}


def _redis_answers(stack: Containers) -> bool:
    try:
        with redis.Redis(port=stack.ports["redis"]) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


def _works(stack: Containers, service: str) -> Callable[[float], bool]:
    """Whether a service does its work since a moment, asked of what it does."""
    if service.startswith("worker-"):
        queue = service.removeprefix("worker-")
        before = _workers(stack, queue)
        return lambda _: bool(_workers(stack, queue) - before)
    paths = {"gateway": "/headstart/readyz", "control": "/readyz", "localai": "/readyz"}
    if service in paths:
        return lambda _: stack.ask(service, paths[service])[0] == 200
    return {
        "redis": lambda _: _redis_answers(stack),
        "predictor": lambda moment_s: _forecast_since(stack, moment_s),
        "controller": lambda moment_s: _snapshot_since(stack, moment_s),
    }[service]


def test_the_compose_file_has_these_services(stack: Containers):
    assert set(stack.services) == set(SERVICES)


def test_our_layers_are_small(image: None):
    units = {"kB": 1e-3, "MB": 1.0, "GB": 1e3}
    ours = [(size, origin) for size, origin in layers() if "/opt/headstart" in origin]
    assert ours
    assert sum(float(size[:-2]) * units[size[-2:]] for size, _ in ours) <= MOST_ON_TOP_MB


def test_a_request_goes_through_its_model_is_loaded_by_the_controller_and_forecast(
    stack: Containers, figures: Figures
):
    began = time.monotonic()
    assert _chat(stack, "first") == 200
    figures["request, cold"] = f"{time.monotonic() - began:.1f} s"

    def loaded() -> bool:
        _, page = stack.ask("control", "/v1/decisions?model=first&limit=100")
        return any("load" in str(decision) for decision in page["data"])

    seconds_until(loaded, "a decision to load")
    took_s = seconds_until(
        lambda: stack.ask("control", "/v1/forecasts/first")[0] == 200, "a forecast"
    )
    figures["forecast of a new model, after"] = f"{took_s:.1f} s"
    began = time.monotonic()
    assert _chat(stack, "first") == 200
    figures["request, resident"] = f"{(time.monotonic() - began) * 1000:.0f} ms"


def test_a_model_that_is_expected_is_loaded_before_it_is_asked_for(
    stack: Containers, figures: Figures
):
    for _ in range(20):
        assert _chat(stack, "first") == 200
        time.sleep(1.0)
    before = _prefetches(stack)
    # LocalAI comes back empty, nobody asks, and somebody usually does.
    killed_s = stack.kill_process("localai")
    seconds_until(lambda: _prefetches(stack) > before, "a prefetch")
    figures["kill -9 of the process, prefetch after, localai"] = f"{time.time() - killed_s:.1f} s"

    def resident() -> bool:
        _, state = stack.ask("localai", "/emulator/state")
        return bool(state["models"]["first"]["residency"] == "hot")

    seconds_until(resident, "the model is resident")
    began = time.monotonic()
    assert _chat(stack, "first") == 200
    figures["request, after a prefetch"] = f"{(time.monotonic() - began) * 1000:.0f} ms"


@pytest.mark.parametrize("how", ["process", "container"])
@pytest.mark.parametrize("service", SERVICES)
def test_what_is_killed_comes_back(stack: Containers, figures: Figures, service: str, how: str):
    assert _chat(stack, "second") == 200
    before = stack.restarts(service)
    works = _works(stack, service)
    killed_s = (stack.kill_process if how == "process" else stack.kill_container)(service)
    seconds_until(lambda: stack.restarts(service) > before, f"{service} is started again")
    seconds_until(lambda: works(killed_s), f"{service} works")
    figures[f"kill -9 of the {how}, works after, {service}"] = f"{time.time() - killed_s:.1f} s"
    seconds_until(lambda: _chat(stack, "second") == 200, "a request goes through")


def test_what_was_set_and_stored_is_there_after_down_and_up(stack: Containers, figures: Figures):
    assert _chat(stack, "third") == 200
    assert stack.ask("control", "/v1/slas/third", {"target_s": 3.5}, "PUT")[0] == 200
    line = b'{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {}}\n'
    with _client(stack) as client:
        stored = client.files.create(file=("lines.jsonl", line), purpose="batch")
    seconds_until(lambda: stack.ask("control", "/v1/forecasts/third")[0] == 200, "a forecast")
    time.sleep(1.5)  # a kill may lose the last second

    began = time.monotonic()
    stack.down()
    figures["down, took"] = f"{time.monotonic() - began:.1f} s"
    began = time.monotonic()
    stack.up()
    _all_healthy(stack, figures, began, "up again")

    assert stack.ask("control", "/v1/slas/third")[1]["target_s"] == 3.5
    with _client(stack) as client:
        assert client.files.content(stored.id).read() == line
    assert stack.ask("control", "/v1/forecasts/third")[0] == 200
    assert _chat(stack, "third") == 200


def test_the_scaler_starts_another_container_and_takes_it_away(
    stack: Containers, tmp_path: Path, figures: Figures
):
    service = "worker-background"
    with stack.scaler(tmp_path, f"{service}=1..2") as scaler:
        began = time.monotonic()
        asyncio.run(scaler.scale(service, 2))
        figures["one more container, ordered and started in"] = f"{time.monotonic() - began:.1f} s"
        assert stack.count(service) == 2
        asyncio.run(scaler.scale(service, 1))
        assert stack.count(service) == 1
        with pytest.raises(Permanent):
            asyncio.run(scaler.scale(service, 3))


def test_nothing_can_be_written_and_the_user_is_nobody(
    stack: Containers,
):
    said = stack.run_in("controller", "import os; print(os.getuid(), os.access('/opt', os.W_OK))")
    assert said.split() == ["10001", "False"]
