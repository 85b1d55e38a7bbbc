"""Groups of work through gateway, controller and emulator: who runs beside whom, who makes room."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from contracts.groups import GroupConfig
from tests.house import RunningHouse

pytestmark = pytest.mark.integration

IMAGES = GroupConfig(
    name="images", models=("draw-*",), concurrency=1, memory_bytes=20_000 * 1024**2
)


def model(name: str, footprint_mb: int = 8_000) -> dict[str, Any]:
    return {
        "name": name, "footprint_mb": footprint_mb, "load_s": 3.0, "parallel": 8,
        "first_token_s": 0.5,
    }  # fmt: skip


def house(*names: str, group: GroupConfig = IMAGES) -> RunningHouse:
    groups = {group.name: group}
    return RunningHouse(
        tuple(model(name) for name in names),
        capacity_mb=60_000,
        groups=groups,
        planner={"groups": groups},
    )


def ask(running: RunningHouse, *names: str) -> list[int]:
    """Statuses of requests that come at once."""

    async def work() -> list[int]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            answers = await asyncio.gather(*(running.chat(session, name) for name in names))
            return [answer.status for answer in answers]

    return asyncio.run(work())


def most_at_once(running: RunningHouse, prefix: str) -> int:
    """The most requests of these models that LocalAI worked on at one time."""
    changes = [
        (event["at_s"], step)
        for kind, step in (("request_started", 1), ("request_ended", -1))
        for event in running.emulator.events(kind)
        if event["model"].startswith(prefix)
    ]
    now, most = 0, 0
    for _, step in sorted(changes):
        now += step
        most = max(most, now)
    return most


def test_requests_of_one_group_run_one_at_a_time_over_its_models_and_others_do_not_wait():
    asked = ["draw-a", "draw-b", "chat"] * 3
    with house("draw-a", "draw-b", "chat") as running:
        assert ask(running, *asked) == [200] * 9
        assert most_at_once(running, "draw-") == 1
        assert most_at_once(running, "chat") > 1


def test_a_group_makes_its_room_in_itself_although_memory_is_free():
    with house("draw-a", "draw-b", "draw-c", "chat") as running:
        for name in ("chat", "draw-a", "draw-b", "draw-c"):
            assert ask(running, name) == [200]
        # 60 GB have room for all four, the group for two of its three.
        unloaded = [event["model"] for event in running.emulator.events("unloaded")]
        assert unloaded == ["draw-a"]
