"""A request keeps the configuration that it came in with."""

from __future__ import annotations

import asyncio

from api.gateway.live import LiveConfig
from contracts.config import GatewayConfig


def config(size: int) -> GatewayConfig:
    return GatewayConfig(max_body_bytes=size, keys=(f"key-{size}",))


async def test_who_is_here_keeps_it_and_who_comes_gets_the_new_one():
    live = LiveConfig(config(1))
    changed = asyncio.Event()

    async def request() -> tuple[int, int]:
        live.hold()
        before = live.now.max_body_bytes
        await changed.wait()
        assert live.keys.find([b"key-%d" % before]) is not None, "of the same snapshot"
        return before, await asyncio.create_task(part())

    async def part() -> int:
        return live.now.max_body_bytes

    early = asyncio.create_task(request())
    await asyncio.sleep(0)
    live.replace(config(2))
    late = asyncio.create_task(request())
    await asyncio.sleep(0)
    live.replace(config(3))
    changed.set()
    assert (await early, await late) == ((1, 1), (2, 2))
    assert live.now.max_body_bytes == 3, "outside of a request it is the newest"


async def test_two_gateways_of_one_process_do_not_mix():
    one, two = LiveConfig(config(1)), LiveConfig(config(2))
    one.hold()
    assert (one.now.max_body_bytes, two.now.max_body_bytes) == (1, 2)
    one.replace(config(3))
    two.hold()
    assert (one.now.max_body_bytes, two.now.max_body_bytes) == (3, 2)
