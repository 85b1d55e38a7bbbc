"""One gateway over two and three LocalAIs: where requests go, and what happens as nodes go."""

from __future__ import annotations

import asyncio
import json
import urllib.request

import aiohttp
import pytest

from contracts.config import BalancingConfig
from contracts.events import ModelLoadStarted, RequestFailed
from contracts.ids import ModelId
from tests.cluster_stage import Cluster, model, together
from tests.emulator_server import RunningEmulator
from tests.waiting import until

pytestmark = pytest.mark.integration

SCALE = 20.0


def emulator(*models, **options):
    options.setdefault("capacity_mb", 1000)
    return RunningEmulator(models, scale=SCALE, exact_load_times=True, **options)


def load(emulated: RunningEmulator, name: str) -> None:
    """As if somebody had loaded it before."""
    request = urllib.request.Request(
        emulated.url + "/backend/load",
        data=json.dumps({"model": name}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


async def shut(emulated: RunningEmulator, *, for_s: float) -> None:
    """It takes no connection any more."""
    emulated.arm({"kind": "refuse_connections", "for_s": for_s})
    async with asyncio.timeout(10.0):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", emulated.port())
            except ConnectionRefusedError:
                return
            writer.close()
            await asyncio.sleep(0.005)


def inferred(emulated: RunningEmulator) -> list[dict[str, object]]:
    return [event for event in emulated.events() if "request" in str(event["kind"])]


async def test_requests_go_where_their_model_is():
    with emulator(model("a"), model("b")) as one, emulator(model("a"), model("c")) as two:
        load(two, "a")
        async with Cluster({"one": one, "two": two}) as cluster:
            answers = [await cluster.chat("a") for _ in range(5)]
            assert {(answer.status, answer.backend) for answer in answers} == {(200, "two")}
            assert all(answer.headers["X-Headstart-Cold"] == "false" for answer in answers)
            b, c = await together([cluster.chat("b"), cluster.chat("c")])
            assert (b.status, b.backend, c.status, c.backend) == (200, "one", 200, "two")


async def test_models_that_do_not_fit_on_one_node_are_spread_over_two():
    models = [model(name, footprint_mb=600) for name in "ab"]
    with emulator(*models) as one, emulator(*models) as two:
        async with Cluster({"one": one, "two": two}) as cluster:
            a = await cluster.chat("a")
            b = await cluster.chat("b")
            assert {a.backend, b.backend} == {"one", "two"}
            again = await together([cluster.chat("a"), cluster.chat("b")])
            assert [answer.backend for answer in again] == [a.backend, b.backend]
            assert not one.events("unloaded")
            assert not two.events("unloaded")


async def test_copies_share_their_requests():
    with emulator(model("a", slots=1)) as one, emulator(model("a", slots=1)) as two:
        load(one, "a")
        load(two, "a")
        async with Cluster({"one": one, "two": two}) as cluster:
            await cluster.until_resident("a", "one", "two")
            headers = [{"Authorization": f"Bearer caller-{number}"} for number in range(8)]
            answers = await together(
                [cluster.chat("a", max_tokens=20, headers=each) for each in headers]
            )
            backends = [answer.backend for answer in answers]
            assert backends.count("one") == backends.count("two") == 4


async def test_a_node_that_dies_is_left_and_found_again():
    with emulator(model("a")) as one, emulator(model("a")) as two:
        load(one, "a")
        load(two, "a")
        async with Cluster({"one": one, "two": two}) as cluster:
            await cluster.until_resident("a", "one", "two")
            await shut(one, for_s=60)
            answers = [await cluster.chat("a") for _ in range(10)]
            assert {(answer.status, answer.backend) for answer in answers} == {(200, "two")}
            await cluster.until_home("a", "two")
            await shut(two, for_s=200)
            await cluster.until_home("a", "one")
            assert (await cluster.chat("a")).backend == "one"


async def test_a_node_that_dies_with_a_load_hands_the_waiting_on():
    with emulator(model("a", load_s=20)) as one, emulator(model("a", load_s=20)) as two:
        async with Cluster({"one": one, "two": two}) as cluster:
            home = cluster.table.models[ModelId("a")].node
            first, second = (one, two) if home == "one" else (two, one)
            asking = [asyncio.ensure_future(cluster.chat("a")) for _ in range(3)]
            await first.wait_for("load_started")
            await cluster.clock.sleep(5.0)
            await shut(first, for_s=300)
            answers = await together(asking)
            assert [answer.status for answer in answers] == [200, 200, 200]
            assert {answer.backend for answer in answers} == {"two" if home == "one" else "one"}
            assert len(second.events("load_started")) == 1
            starts = [e.node for e in await cluster.told() if isinstance(e, ModelLoadStarted)]
            # the gateway may have joined the controller's load, since it waited so long
            assert starts[0] == home
            assert set(starts[1:]) == {"two" if home == "one" else "one"}


async def test_a_node_that_dies_mid_stream_cuts_it_and_nothing_is_sent_twice():
    with emulator(model("a")) as one, emulator(model("a")) as two:
        load(one, "a")
        load(two, "a")
        async with Cluster({"one": one, "two": two}) as cluster:
            await cluster.until_resident("a", "one", "two")
            # of equals the primary is taken
            one.arm({"kind": "disconnect", "model": "a", "after_tokens": 5, "times": 1})
            answer = await cluster.chat("a", stream=True, max_tokens=20)
            assert answer.status == 200
            events = answer.body.decode().strip().split("\n\n")
            assert sum('"content":"' in event for event in events) >= 5
            error = json.loads(events[-2].removeprefix("data: "))["error"]
            assert error["type"] == "upstream_error"
            assert events[-1] == "data: [DONE]"
            assert not inferred(two), "what was begun is not begun elsewhere"
            (failed,) = [e for e in await cluster.told() if isinstance(e, RequestFailed)]
            assert failed.error == "upstream_error"


async def test_a_home_drains_while_its_copy_serves_on():
    big = model("big", footprint_mb=950)
    with emulator(model("a"), big) as one, emulator(model("a")) as two:
        load(one, "a")
        async with Cluster({"one": one, "two": two}) as cluster:
            await cluster.until_home("a", "one")
            load(two, "a")
            await cluster.until_resident("a", "one", "two")
            # both copies work; the request on the other node does not hold the drain up
            long = [
                asyncio.ensure_future(
                    cluster.chat("a", max_tokens=400, headers={"Authorization": f"Bearer {n}"})
                )
                for n in range(2)
            ]
            await until(lambda: cluster.service._dispatcher.ledger.by_node == {"one": 1, "two": 1})
            big_one = asyncio.ensure_future(cluster.chat("big"))
            done = await together([*long, big_one])
            assert [answer.status for answer in done] == [200, 200, 200]
            assert done[2].backend == "one"
            after = await cluster.chat("a")
            assert (after.status, after.backend) == (200, "two")


@pytest.mark.parametrize("with_controller", [True, False])
async def test_weights_share_requests_out(with_controller):
    balancing = BalancingConfig(
        strategy="weighted-round-robin", weights={"cuda": 3.0, "rocm": 1.0, "cpu": 0.0}
    )
    with (
        emulator(model("a")) as one,
        emulator(model("a")) as two,
        emulator(model("a")) as three,
    ):
        for each in (one, two, three):
            load(each, "a")
        async with Cluster(
            {"one": one, "two": two, "three": three},
            accelerators={"two": "rocm", "three": "cpu"},
            controller=with_controller,
            balancing=balancing,
        ) as cluster:
            if with_controller:
                await cluster.until_resident("a", "one", "two", "three")
            else:
                await until(lambda: len(cluster.service._roll_call.copies(ModelId("a"))) == 3)
            backends = [(await cluster.chat("a")).backend for _ in range(8)]
            assert (backends.count("one"), backends.count("two")) == (6, 2)


async def test_lists_are_merged_and_admin_calls_are_the_primarys():
    with emulator(model("a"), model("b")) as one, emulator(model("b"), model("c")) as two:
        async with Cluster({"one": one, "two": two}) as cluster:
            for path in ("/v1/models", "/models"):
                async with cluster.session.get(path) as answer:
                    listed = [entry["id"] for entry in (await answer.json())["data"]]
                    assert sorted(listed) == ["a", "b", "c"]
            async with cluster.session.get("/api/tags") as answer:
                names = {entry["name"] for entry in (await answer.json())["models"]}
                assert names == {"a:latest", "b:latest", "c:latest"}
            load(two, "c")
            async with cluster.session.get("/system") as answer:
                assert (await answer.json())["loaded_models"] == []
            await shut(one, for_s=60)
            async with cluster.session.get("/v1/models") as answer:
                assert answer.status == 200
                assert {e["id"] for e in (await answer.json())["data"]} == {"b", "c"}
            async with cluster.session.get("/system") as answer:
                assert answer.status == 502, "what is asked of the primary is not another's"
            assert (await cluster.chat("c")).status == 200


async def test_one_localais_list_is_not_touched():
    with emulator(model("a"), model("b")) as one:
        async with Cluster({"one": one}) as cluster, aiohttp.ClientSession() as direct:
            async with cluster.session.get("/version") as answer:
                ours = await answer.read()
            async with direct.get(one.url + "/version") as answer:
                assert await answer.read() == ours
            async with cluster.session.get("/v1/models") as answer:
                entries = {e["id"] for e in (await answer.json())["data"]}
            assert entries == {"a", "b"}


@pytest.mark.parametrize("with_controller", [True, False])
async def test_a_dead_backend_is_cleared_and_its_requests_are_sent_again(with_controller):
    with emulator(model("a")) as one:
        async with Cluster({"one": one}, controller=with_controller) as cluster:
            assert (await cluster.chat("a")).status == 200
            one.arm({"kind": "backend_crash", "model": "a"})
            answers = await together(
                [cluster.chat("a"), cluster.chat("a", stream=True), cluster.chat("a")]
            )
            assert [answer.status for answer in answers] == [200, 200, 200]
            assert b"refused" not in b"".join(answer.body for answer in answers)
            assert len(one.events("load_started")) == 2
            # LocalAI alone refuses for up to 30 s
            assert max(answer.took_s for answer in answers) < 25.0
