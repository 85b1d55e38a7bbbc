"""One gateway and a controller over LocalAIs behind one name, which come and go."""

from __future__ import annotations

import asyncio
import socket

import pytest

from contracts.ids import ModelId, NodeId
from contracts.instances import instance_id
from tests.cluster_stage import Answer, Cluster, model
from tests.emulator_server import RunningEmulator
from tests.waiting import until

pytestmark = pytest.mark.integration

SCALE = 20.0
ONE, TWO, THREE = "127.0.0.2", "127.0.0.3", "127.0.0.4"
NAME = "http://localai"


def free_port() -> int:
    """A port that nobody listens on at any of the addresses."""
    while True:
        with socket.socket() as probe:
            probe.bind(("", 0))
            return int(probe.getsockname()[1])


def emulator(address: str, port: int, *models) -> RunningEmulator:
    return RunningEmulator(
        models,
        scale=SCALE,
        host=address,
        port=port,
        exact_load_times=True,
        capacity_mb=1000,
    )


def cluster_of(port: int, **emulators: RunningEmulator) -> Cluster:
    named = {instance_id(one.url[7:].partition(":")[0]): one for one in emulators.values()}
    return Cluster(
        {str(name): one for name, one in named.items()}, scale=SCALE, behind=f"{NAME}:{port}"
    )


async def until_there(cluster: Cluster, *addresses: str) -> None:
    """Until the gateway has these, all of which answer, and no others."""

    def are_there() -> bool:
        told = cluster.table.nodes
        return (
            cluster.service._fleet.nodes.keys()
            == {name for name, node in told.items() if node.alive}
            == {instance_id(one) for one in addresses}
        )

    await until(are_there)


def asked(emulated: RunningEmulator) -> int:
    return len(emulated.events("request_received"))


async def test_one_more_takes_its_share_and_gets_nothing_once_it_is_missing():
    port = free_port()
    models = [model(name, footprint_mb=600) for name in "abc"]
    with emulator(ONE, port, *models) as one, emulator(TWO, port, *models) as two:
        async with cluster_of(port, one=one, two=two) as cluster:
            for name in "ab":
                assert (await cluster.chat(name)).status == 200
            with emulator(THREE, port, *models) as three:
                cluster.addresses = (ONE, TWO, THREE)
                await until_there(cluster, ONE, TWO, THREE)
                answer = await cluster.chat("c")
                assert (answer.status, answer.backend) == (200, instance_id(THREE))

                # A long answer runs there while its address goes.
                long = asyncio.create_task(cluster.chat("c", max_tokens=200))
                await three.wait_for("request_started", count=2, model="c")
                cluster.addresses = (ONE, TWO)
                await until(lambda: not cluster.table.nodes[instance_id(THREE)].alive)
                before = asked(three)
                answers = await asyncio.gather(*(cluster.chat(name) for name in "abc"))
                assert [one.status for one in answers] == [200] * 3
                assert instance_id(THREE) not in {one.backend for one in answers}
                assert asked(three) == before
                assert (await long).status == 200
                await until_there(cluster, ONE, TWO)
            assert ModelId("c") in cluster.table.models
            entries = await cluster.journal.newest(limit=500, subject=instance_id(THREE))
            assert [one.value.reason.value for one in reversed(entries)] == [
                "instance_found", "instance_missing", "instance_gone",
            ]  # fmt: skip
            kinds = [type(event).__name__ for event in await cluster.told()]
            assert (kinds.count("NodeJoined"), kinds.count("NodeLeft")) == (1, 1)


async def test_a_stopped_one_that_comes_back_keeps_its_name_and_its_models_are_asked_anew():
    port = free_port()
    with emulator(ONE, port, model("a")) as one, emulator(TWO, port, model("b")) as two:
        async with cluster_of(port, one=one, two=two) as cluster:
            assert (await cluster.chat("b")).backend == instance_id(TWO)
            two.__exit__(None, None, None)
            cluster.addresses = (ONE,)
            await until_there(cluster, ONE)
            assert ModelId("b") not in cluster.table.models
            with emulator(TWO, port, model("b"), model("c")):
                cluster.addresses = (ONE, TWO)
                await until_there(cluster, ONE, TWO)
                await until(lambda: ModelId("c") in cluster.table.models)
                answers = [await cluster.chat(name) for name in "bc"]
                assert [(a.status, a.backend) for a in answers] == [(200, instance_id(TWO))] * 2


async def test_without_a_name_server_and_without_a_leader_all_goes_on():
    port = free_port()
    with emulator(ONE, port, model("a")) as one, emulator(TWO, port, model("b")) as two:
        async with cluster_of(port, one=one) as cluster:
            cluster.addresses = (ONE, TWO)
            await until_there(cluster, ONE, TWO)
            cluster.addresses = None
            await asyncio.sleep(0.5)
            assert set(cluster.table.nodes) == {instance_id(ONE), instance_id(TWO)}
            assert cluster._controlling is not None
            cluster._controlling.cancel()
            await asyncio.wait({cluster._controlling})
            answers: list[Answer] = [await cluster.chat(name) for name in "ab"]
            assert [(a.status, a.backend) for a in answers] == [
                (200, instance_id(ONE)), (200, instance_id(TWO)),
            ]  # fmt: skip
            assert two.events("request_ended")


async def test_lists_and_ui_calls_go_to_who_is_known_longest():
    port = free_port()
    with emulator(TWO, port, model("b")) as two, emulator(ONE, port, model("a")):
        async with cluster_of(port, two=two) as cluster:
            cluster.addresses = (ONE, TWO)
            await until_there(cluster, ONE, TWO)
            assert cluster.service._fleet.primary == NodeId(instance_id(TWO))
            async with cluster.session.get("/v1/models") as response:
                listed = [entry["id"] for entry in (await response.json())["data"]]
            assert sorted(listed) == ["a", "b"]
            cluster.addresses = (ONE,)
            await until_there(cluster, ONE)
            assert cluster.service._fleet.primary == NodeId(instance_id(ONE))
            two.__exit__(None, None, None)
            async with cluster.session.get("/version") as response:
                assert response.status == 200
