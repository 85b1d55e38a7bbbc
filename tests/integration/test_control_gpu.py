"""The GPU is handed over and taken back over HTTP; machines are shown card by card."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from contracts.config import ControlConfig
from contracts.messages import SettingsChanged
from contracts.readings import GpuReading, ProbeReading, over_all
from contracts.reasons import Reason
from contracts.world import NodeStatus, Strain
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration

MIB = 1024**2
KEY = "an-admin-key"


@pytest.fixture
def control() -> Iterator[RunningControl]:
    control = RunningControl(config=ControlConfig(admin_key=KEY), minutes=2).start()
    yield control
    control.stop()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
        yield session


async def post(session, control, path: str, body: Any = None) -> tuple[int, Any]:
    async with session.post(control.url + path, json=body) as response:
        return response.status, await response.json()


async def get(session, control, path: str) -> Any:
    async with session.get(control.url + path) as response:
        assert response.status == 200
        return await response.json()


def told(control) -> int:
    _, messages = control.do(control.lively.mailbox.receive("0", block_s=0))
    return sum(isinstance(message, SettingsChanged) for message in messages)


async def test_it_is_handed_over_and_taken_back(control, session):
    before = await get(session, control, "/v1/gpu")
    assert (before["yielded"], before["by"], before["until_s"]) == (False, None, None)
    assert before["held_bytes"] > 0
    status, handed = await post(
        session, control, "/v1/gpu/yield", {"minutes": 30, "keep_mb": 2000, "note": "a game"}
    )
    assert status == 200
    assert (handed["yielded"], handed["by"], handed["note"]) == (True, "operator", "a game")
    assert handed["keep_bytes"] == 2000 * MIB
    assert handed["until_s"] - handed["since_s"] == pytest.approx(1800.0)
    wish = control.do(control.lively.settings.gpu_yield())
    assert (wish.keep_bytes, wish.note) == (2000 * MIB, "a game")
    assert (await get(session, control, "/v1/gpu"))["yielded"]
    assert told(control) == 1
    status, back = await post(session, control, "/v1/gpu/resume")
    assert (status, back["yielded"]) == (200, False)
    assert control.do(control.lively.settings.gpu_yield()) is None
    assert told(control) == 2


async def test_without_a_word_more_it_is_until_it_is_taken_back(control, session):
    status, handed = await post(session, control, "/v1/gpu/yield")
    assert (status, handed["until_s"], handed["keep_bytes"]) == (200, None, 0)


@pytest.mark.parametrize(
    "body", [{"minutes": 0}, {"minutes": 20_000}, {"keep_mb": -1}, {"note": "x" * 81}, {"for": 1}]
)
async def test_what_cannot_be_meant_is_refused(control, session, body):
    status, answer = await post(session, control, "/v1/gpu/yield", body)
    assert status == 422
    assert next(iter(body)) in answer["error"]["message"]


async def test_it_takes_the_admin_key(control):
    async with aiohttp.ClientSession() as nobody:
        for what in ("yield", "resume"):
            status, _ = await post(nobody, control, f"/v1/gpu/{what}")
            assert status == 401
        assert (await get(nobody, control, "/v1/gpu"))["yielded"] is False


async def test_quiet_hours_are_told_apart(control, session):
    lively = control.lively
    lively.world = replace(lively.world, quiet_until_s=lively.clock.now_s() + 60.0)
    control.do(control.freshen())
    handed = await get(session, control, "/v1/gpu")
    assert (handed["yielded"], handed["by"], handed["note"]) == (True, "schedule", "quiet hours")
    nodes = await get(session, control, "/v1/nodes")
    assert [node["gpu_yielded"] for node in nodes["data"]] == [True] * len(nodes["data"])


def with_machine(node: NodeStatus) -> NodeStatus:
    gpus = (
        GpuReading(
            uuid="GPU-a",
            name="NVIDIA L4",
            memory_total_bytes=24_000,
            memory_used_bytes=9_000,
            memory_free_bytes=14_000,
            memory_reserved_bytes=1_000,
            used_by_others_bytes=3_000,
            utilization_ratio=0.5,
            temperature_celsius=61.0,
            power_watts=70.5,
        ),
        GpuReading(uuid="GPU-b", name="NVIDIA L4"),
    )
    reading = over_all(
        ProbeReading(
            at_s=5.0,
            gpus=gpus,
            host_memory_total_bytes=64_000,
            host_memory_available_bytes=60_000,
            cpus=8.0,
            cpu_utilization_ratio=0.25,
            load_average_15min=1.5,
            io_pressure_full_ratio=0.125,
        )
    )
    strain = Strain(reason=Reason.GPU_BUSY, since_s=2.0, level=0.9, threshold=0.85)
    return replace(
        node,
        reading=reading,
        strains=(strain,),
        levels={Reason.LOADS_SLOW: 2.5},
        load_latency_s=12.0,
    )


async def test_machines_are_shown_card_by_card(control, session):
    lively = control.lively
    name, node = next(iter(lively.world.nodes.items()))
    nodes = {**lively.world.nodes, name: with_machine(node)}
    lively.world = replace(lively.world, nodes=nodes)
    control.do(control.freshen())
    shown = (await get(session, control, "/v1/nodes"))["data"][0]
    assert (shown["read_at_s"], shown["load_latency_s"], shown["gpu_yielded"]) == (5.0, 12.0, False)
    assert [gpu["uuid"] for gpu in shown["gpus"]] == ["GPU-a", "GPU-b"]
    assert shown["gpus"][0]["used_by_others_bytes"] == 3_000
    assert shown["gpus"][1]["memory_total_bytes"] is None
    assert shown["host"]["memory_available_bytes"] == 60_000
    assert [(one["reason"], one["level"]) for one in shown["strains"]] == [("gpu_busy", 0.9)]

    async with session.get(control.url + "/metrics") as response:
        lines = set((await response.text()).splitlines())
    card, host = f'{{gpu="GPU-a",node="{name}"}}', f'{{node="{name}"}}'
    for line in (
        f"headstart_gpu_memory_total_bytes{card} 24000.0",
        f"headstart_gpu_memory_free_bytes{card} 14000.0",
        f"headstart_gpu_memory_reserved_bytes{card} 1000.0",
        f"headstart_gpu_memory_others_bytes{card} 3000.0",
        f"headstart_gpu_utilization_ratio{card} 0.5",
        f"headstart_gpu_temperature_celsius{card} 61.0",
        f"headstart_gpu_power_watts{card} 70.5",
        f"headstart_host_memory_available_bytes{host} 60000.0",
        f"headstart_host_cpu_utilization_ratio{host} 0.25",
        f'headstart_host_load_average_tasks{{node="{name}",over="15m"}} 1.5',
        f'headstart_host_pressure_ratio{{node="{name}",resource="io",tasks="full"}} 0.125',
        f'headstart_node_strained{{node="{name}",reason="gpu_busy"}} 1.0',
        f'headstart_node_strained{{node="{name}",reason="vram_full"}} 0.0',
        f"headstart_node_load_latency_seconds{host} 12.0",
        f"headstart_node_load_slowness_ratio{host} 2.5",
        "headstart_gpu_yielded 0.0",
    ):
        assert line in lines
    # What a card does not tell has no series: it is not zero.
    assert not any('gpu="GPU-b"' in line and "info" not in line for line in lines)
