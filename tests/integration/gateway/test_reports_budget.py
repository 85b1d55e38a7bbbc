"""Field reports about memory as callers of the gateway meet them, over an emulated LocalAI."""

from __future__ import annotations

import json
import urllib.request

import pytest

from contracts.ids import ModelId, NodeId
from tests.cluster_stage import Cluster, model
from tests.emulator_server import RunningEmulator
from tests.waiting import until

pytestmark = pytest.mark.integration

SCALE = 20.0


def localai(*models, capacity_mb: int, **options) -> RunningEmulator:
    return RunningEmulator(
        models, scale=SCALE, exact_load_times=True, capacity_mb=capacity_mb, **options
    )


def story(emulated: RunningEmulator) -> list[tuple[str, str]]:
    """Loads and unloads in their order."""
    kinds = ("load_started", "load_ended", "load_failed", "unloaded")
    return [
        (str(event["kind"]), str(event["model"]))
        for event in emulated.events()
        if event["kind"] in kinds
    ]


def clear_faults(emulated: RunningEmulator) -> None:
    request = urllib.request.Request(emulated.url + "/emulator/faults", method="DELETE")
    with urllib.request.urlopen(request, timeout=10.0) as answer:
        assert answer.status == 200


@pytest.mark.case("P007")
async def test_room_is_made_for_the_second_big_model():
    with localai(
        model("a", footprint_mb=650), model("b", footprint_mb=500), capacity_mb=800
    ) as one:
        async with Cluster({"one": one}, scale=SCALE) as cluster:
            assert (await cluster.chat("a")).status == 200
            assert (await cluster.chat("b")).status == 200
            assert story(one) == [
                ("load_started", "a"),
                ("load_ended", "a"),
                ("unloaded", "a"),
                ("load_started", "b"),
                ("load_ended", "b"),
            ]


@pytest.mark.case("P004")
async def test_a_stopped_model_that_keeps_its_memory_frees_none():
    with localai(
        model("a", footprint_mb=600), model("b", footprint_mb=500), capacity_mb=800
    ) as one:
        async with Cluster({"one": one}, scale=SCALE) as cluster:
            assert (await cluster.chat("a")).status == 200
            one.arm({"kind": "unload_lies", "model": "a"})
            answer = await cluster.chat("b")
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) >= 1
            assert ("unloaded", "a") in story(one)
            assert ("load_started", "b") not in story(one), "nothing is sent there blindly"
            clear_faults(one)
            await until(lambda: cluster.table.nodes[NodeId("one")].free_bytes == 800 * 1024**2)
            assert (await cluster.chat("b")).status == 200


@pytest.mark.case("P016")
async def test_a_model_that_can_never_fit_is_refused_at_once():
    with localai(
        model("a", footprint_mb=200),
        model("b", footprint_mb=200),
        model("c", footprint_mb=1200),
        capacity_mb=800,
    ) as one:
        async with Cluster({"one": one}, scale=SCALE) as cluster:
            for name in "ab":
                assert (await cluster.chat(name)).status == 200
            answer = await cluster.chat("c")
            assert answer.status == 503
            assert answer.took_s < 10.0
            assert (
                "larger than the whole memory budget" in json.loads(answer.body)["error"]["message"]
            )
            assert "c" not in {name for _, name in story(one)}
            assert not [name for kind, name in story(one) if kind == "unloaded"]


@pytest.mark.case("P017")
async def test_a_model_without_a_size_evicts_nobody_and_is_measured():
    chat, tiny = model("chat", footprint_mb=500), model("tiny", footprint_mb=90, weights=False)
    with localai(chat, tiny, capacity_mb=1000) as one:
        async with Cluster({"one": one}, scale=SCALE) as cluster:
            assert (await cluster.chat("chat")).status == 200
            assert cluster.table.models[ModelId("tiny")].footprint_bytes is None
            assert (await cluster.chat("tiny")).status == 200
            assert ("unloaded", "chat") not in story(one)
            await until(
                lambda: cluster.table.models[ModelId("tiny")].footprint_bytes == 90 * 1024**2
            )
