"""Whether each part works, asked as somebody who uses it would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

import aiohttp

from adapters.redis_client import connect
from adapters.redis_stores import RedisSnapshotStore
from contracts.errors import HeadstartError
from tests.chaos.faults import GATEWAYS, MODELS
from tests.chaos.load import Load
from tests.chaos.records import End
from tests.chaos.site import Site

Probe = Callable[[float], Awaitable[bool]]
"""Asks once; the moment is that from which on what it looks at has to be new."""

GROUPS: dict[str, tuple[str, ...]] = {
    "requests": ("chat", "stream", "embeddings", "upload"),
    "planning": ("leader", "forecasts", "control"),
    "background": ("background",),
}
"""What is told apart: who is answered, who plans and tells, and what waits until there is room."""

TRY_S = 15.0
_POLL_S = 0.15
_TOKENS = 2


class Probes:
    """One probe for each kind of use, by name."""

    def __init__(self, site: Site, load: Load) -> None:
        self._site = site
        self._load = load
        self._jobs: dict[str, str] = {}
        self.all: dict[str, Probe] = {
            **{f"chat {gateway}": self._asks("chat", gateway) for gateway in GATEWAYS},
            **{f"stream {gateway}": self._asks("stream", gateway) for gateway in GATEWAYS},
            "embeddings": self._asks("embed", GATEWAYS[0]),
            "upload": self._asks("hear", GATEWAYS[1]),
            "background": self._background,
            "leader": self._leader,
            "forecasts": self._forecasts,
            "control": self._control,
        }

    async def until_all_work(self, limit_s: float) -> dict[str, float | None]:
        """How long, in real seconds, until each has worked once; None: not within the limit."""
        names = list(self.all)
        took = await asyncio.gather(*(self._until(self.all[name], limit_s) for name in names))
        return dict(zip(names, took, strict=True))

    async def _until(self, probe: Probe, limit_s: float) -> float | None:
        loop = asyncio.get_running_loop()
        began_s, moment_s = loop.time(), self._site.clock.now_s()
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while True:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(TRY_S):
                            if await probe(moment_s):
                                return loop.time() - began_s
                    await asyncio.sleep(_POLL_S)
        return None

    def _asks(self, operation: str, gateway: str) -> Probe:
        async def ask(_: float) -> bool:
            answer = await self._load.ask(operation, MODELS[0], gateway, _TOKENS, prefix="probe")
            return answer.end is End.COMPLETE

        return ask

    async def _background(self, moment_s: float) -> bool:
        """A request that may wait is taken and served; each try is another one."""
        job_id = await self._load.send_job(MODELS[0], GATEWAYS[0], _TOKENS)
        while job_id is not None:
            ended = await self._load.look_after_job(job_id)
            if ended is not None:
                return ended.state == "completed"
            await asyncio.sleep(_POLL_S)
        return False

    async def _leader(self, moment_s: float) -> bool:
        client = connect(self._site.redis.url)
        try:
            world = await RedisSnapshotStore(client).world()
            return world is not None and world.taken_at_s > moment_s
        except HeadstartError:
            return False
        finally:
            await client.aclose()

    async def _forecasts(self, moment_s: float) -> bool:
        text = await self._ask(f"/v1/forecasts/{MODELS[0]}")
        return bool(text) and json.loads(text)["next_use"]["made_at_s"] > moment_s

    async def _control(self, _: float) -> bool:
        return bool(await self._ask("/readyz"))

    async def _ask(self, path: str) -> str:
        """The control API's answer; empty where there is none."""
        try:
            async with self._load.session.get(self._site.control_url + path) as answer:
                return await answer.text() if answer.status == 200 else ""
        except (aiohttp.ClientError, OSError):
            return ""


def by_group(recovered: Mapping[str, float | None]) -> dict[str, float | None]:
    """How long each of ``GROUPS`` took."""
    return {
        group: worst(took_s for name, took_s in recovered.items() if name.startswith(names))
        for group, names in GROUPS.items()
    }


def worst(recovered: Iterable[float | None]) -> float | None:
    """The longest; None where one never came."""
    found = list(recovered)
    known = [each for each in found if each is not None]
    return max(known) if len(known) == len(found) else None
