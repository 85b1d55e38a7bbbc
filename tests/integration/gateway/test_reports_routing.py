"""Field reports on routing over several LocalAIs, replayed against emulated ones."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from api.gateway.breaker import MODEL_RULE
from contracts.config import TimeoutConfig
from contracts.events import RequestCompleted, RequestDispatched, RequestFailed
from contracts.ids import ModelId, NodeId
from contracts.messages import LoadRequested
from tests.cluster_stage import Cluster, model, together
from tests.emulator_server import RunningEmulator
from tests.waiting import until

pytestmark = pytest.mark.integration

A, B = ModelId("a"), ModelId("b")
SCALE = 20.0


def emulator(*models: dict[str, Any], **options: Any) -> RunningEmulator:
    options.setdefault("capacity_mb", 1000)
    return RunningEmulator(models, scale=SCALE, exact_load_times=True, **options)


async def call(cluster: Cluster, emulated: RunningEmulator, path: str, body: object) -> int:
    """One of LocalAI's own admin calls, past the gateway."""
    async with cluster.session.post(emulated.url + path, json=body) as answer:
        await answer.read()
        return answer.status


async def load(cluster: Cluster, name: str, **emulators: RunningEmulator) -> None:
    """Loaded past us, and known to the gateway."""
    for emulated in emulators.values():
        assert await call(cluster, emulated, "/backend/load", {"model": name}) == 200

    await cluster.until_resident(name, *emulators)


@pytest.mark.case("P145")
async def test_a_warm_copy_is_preferred_over_loads():
    with emulator(model("a")) as one, emulator(model("a")) as two, emulator(model("a")) as three:
        async with Cluster({"one": one, "two": two, "three": three}) as cluster:
            await load(cluster, "a", two=two)
            answers = [await cluster.chat("a") for _ in range(30)]
            assert {(each.status, each.backend) for each in answers} == {(200, "two")}
            assert not one.events("load_started")
            assert not three.events("load_started")


@pytest.mark.case("P146")
async def test_a_model_that_moves_is_followed():
    with emulator(model("a"), model("b")) as one, emulator(model("b")) as two:
        async with Cluster({"one": one, "two": two}) as cluster:
            assert [(await cluster.chat("a")).backend for _ in range(3)] == ["one"] * 3
            assert await call(cluster, one, "/backend/shutdown", {"model": "a"}) == 200
            assert await call(cluster, one, "/models/delete/a", {}) == 200
            config = {"name": "a", "backend": "emulated", "parameters": {"model": "a"}}
            assert await call(cluster, two, "/models/import", config) == 200
            answer = await cluster.chat("a")
            assert (answer.status, answer.backend) == (200, "two")
            await cluster.until_home("a", "two")
            statuses = [(await cluster.chat("a")).status for _ in range(3)]
            assert statuses == [200, 200, 200]


@pytest.mark.case("P146")
async def test_a_model_that_nobody_has_is_still_not_found():
    with emulator(model("a")) as one, emulator(model("b")) as two:
        async with Cluster({"one": one, "two": two}) as cluster:
            answer = await cluster.chat("unheard-of")
            assert answer.status == 404


@pytest.mark.case("P147")
async def test_a_copy_on_a_cpu_is_what_is_left():
    slow = model("a", slots=1, tokens_per_s=5)
    with emulator(model("a", slots=1)) as one, emulator(slow) as two:
        async with Cluster(
            {"one": one, "two": two}, accelerators={"two": "cpu"}, slots={A: 1}
        ) as cluster:
            await load(cluster, "a", one=one, two=two)
            assert [(await cluster.chat("a")).backend for _ in range(5)] == ["one"] * 5
            # pressure: the one slot of the GPU's copy is taken
            busy = [asyncio.ensure_future(cluster.chat("a", max_tokens=100)) for _ in range(2)]
            await until(lambda: sum(cluster.service._dispatcher.ledger.by_node.values()) == 2)
            assert {each.backend for each in await together(busy)} == {"one", "two"}
            # an outage
            one.arm({"kind": "refuse_connections", "for_s": 100})
            await until(lambda: cluster.table.nodes[NodeId("one")].alive is False)
            answer = await cluster.chat("a")
            assert (answer.status, answer.backend) == (200, "two")
            async with cluster.session.get("/headstart/metrics") as metrics:
                text = await metrics.text()
            for node, count in (("one", 6), ("two", 2)):
                name = "headstart_gateway_backend_first_content_seconds_count"
                assert f'{name}{{backend="{node}"}} {count}.0' in text


@pytest.mark.case("P147")
async def test_a_cpu_helps_out_while_the_gpu_loads():
    with emulator(model("a")) as one, emulator(model("a")) as two:
        async with Cluster({"one": one, "two": two}, accelerators={"two": "cpu"}) as cluster:
            await cluster.until_home("a", "one")
            await load(cluster, "a", two=two)
            first = await cluster.chat("a")
            assert (first.status, first.backend) == (200, "two")
            await cluster.until_resident("a", "one", "two")
            assert {(await cluster.chat("a")).backend for _ in range(5)} == {"one"}


@pytest.mark.case("P060")
async def test_a_model_that_wedges_after_a_stop_button_is_served_elsewhere():
    with emulator(model("a"), model("b")) as one, emulator(model("a")) as two:
        limits = {A: TimeoutConfig(first_byte_s=5.0)}
        async with Cluster({"one": one, "two": two}, timeouts=limits) as cluster:
            await load(cluster, "a", one=one, two=two)
            first = await cluster.chat("a")
            wedged, other = (one, "two") if first.backend == "one" else (two, "one")
            stopping = asyncio.ensure_future(cluster.chat("a", stream=True, max_tokens=500))
            await until(cluster.service.in_flight)
            stopping.cancel()
            await asyncio.wait({stopping})
            await until(lambda: not cluster.service.in_flight())
            wedged.arm({"kind": "answer_slow", "model": "a", "extra_s": 100_000})
            next_one = await cluster.chat("a")
            assert (next_one.status, next_one.took_s < 8.0) == (504, True)
            assert json.loads(next_one.body)["error"]["type"] == "upstream_timeout"
            # from here on it is out of the rotation, and others notice nothing
            answers = [await cluster.chat("a") for _ in range(10)]
            assert {(each.status, each.backend) for each in answers} == {(200, other)}
            assert cluster.service._dispatcher.ledger.of_model(NodeId(first.backend), A) == 0
            phases = cluster.service._dispatcher.breakers.phases(cluster.clock.monotonic_s())
            assert set(phases) == {(NodeId(first.backend), A)}
            assert (await cluster.chat("b")).status == 200
            # and it is looked at again later
            async with cluster.session.delete(wedged.url + "/emulator/faults"):
                pass
            await cluster.clock.sleep(MODEL_RULE.first_open_s)
            seen = set()
            for number in range(20):
                caller = {"Authorization": f"Bearer {number}"}
                seen |= {(await cluster.chat("a", headers=caller)).backend}
            assert seen == {"one", "two"} or seen == {first.backend}
            assert not cluster.service._dispatcher.breakers.phases(cluster.clock.monotonic_s())


@pytest.mark.case("P156")
async def test_a_request_joins_a_load_that_runs_anyway():
    with emulator(model("a", load_s=6)) as one:
        async with Cluster({"one": one}) as cluster:
            await cluster.to_controller.send(LoadRequested(model=A, at_s=cluster.clock.now_s()))
            await one.wait_for("load_started", model="a")
            await cluster.clock.sleep(3.0)
            answer = await cluster.chat("a")
            assert answer.status == 200
            assert answer.took_s < 6.0
            assert len(one.events("load_started")) == 1


@pytest.mark.case("P156")
async def test_a_model_that_wedges_is_unhealthy_however_green_the_lists_are():
    with emulator(model("a"), model("b")) as one:
        limits = {A: TimeoutConfig(first_byte_s=20.0)}
        async with Cluster({"one": one}, timeouts=limits, slots={A: 1}) as cluster:
            await load(cluster, "a", one=one)
            one.arm({"kind": "answer_slow", "model": "a", "extra_s": 100_000})
            wedged = await cluster.chat("a")
            assert wedged.status == 504
            async with cluster.session.get("/v1/models") as lists:
                assert lists.status == 200
            refused = await cluster.chat("a")
            assert (refused.status, refused.took_s < 5.0) == (503, True)
            assert json.loads(refused.body)["error"]["type"] == "no_backend"
            assert 1 <= int(refused.headers["Retry-After"]) <= MODEL_RULE.first_open_s
            assert (await cluster.chat("b")).status == 200
            assert not cluster.service.in_flight(), "no slot is held for nobody"
            async with cluster.session.get("/headstart/metrics") as metrics:
                text = await metrics.text()
            line = 'headstart_gateway_circuits{backend="one",scope="model",state="open"} 1.0'
            assert line in text


@pytest.mark.case("P145")
async def test_figures_tell_nodes_apart():
    with emulator(model("a")) as one, emulator(model("b")) as two:
        async with Cluster({"one": one, "two": two}) as cluster:
            await together([cluster.chat("a"), cluster.chat("b")])
            events = await cluster.told()
            sent = {e.model: e.node for e in events if isinstance(e, RequestDispatched)}
            assert sent == {A: "one", B: "two"}
            assert sum(isinstance(event, RequestCompleted) for event in events) == 2
            assert not [event for event in events if isinstance(event, RequestFailed)]
