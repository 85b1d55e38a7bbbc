"""Two gateways, two controllers, three LocalAIs: a leader that is killed leaves nothing undone."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp

from adapters.clock import ANCHOR_VARIABLE
from adapters.redis_client import connect, text
from adapters.settings import load_settings
from cli.ports import free_port
from cli.service import ServiceSpec
from cli.services import child_environment, service_specs
from cli.stack import Stack
from cli.supervisor import Supervisor
from tests.acceptance.deployment import RUNNING, Answer, Deployment, settings, until, write_models

MODELS = [
    {"name": f"chat-{letter}", "footprint_mb": 3000, "load_s": 2, "tokens_per_s": 200}
    for letter in "abcdefgh"
]
CAPACITY_MB = 6500
"""Each of the three holds two of the eight models."""


class Pair:
    """The stack with a second gateway and a second controller beside it."""

    def __init__(self, first: Deployment, others: Supervisor, emulators: dict[str, str]) -> None:
        self.first = first
        self.others = others
        self.emulators = emulators
        self.gateways: tuple[str, ...] = ()

    async def chat(self, model: str, gateway: str) -> Answer:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
        return await self.first.ask("POST", f"{gateway}/v1/chat/completions", json=body)

    async def are_all_there(self) -> bool:
        """Whether the control API lists every model, and both gateways have a routing table."""
        listed = await self.first.control("GET", "/v1/models")
        if listed.status != 200 or len(listed.json["data"]) != len(MODELS):
            return False
        states = [await self.first.ask("GET", f"{url}/headstart/readyz") for url in self.gateways]
        return all(one.status == 200 and one.json["routing"] is not None for one in states)

    async def leader(self) -> str:
        """Who holds the lease, as it names itself; empty: nobody."""
        client = connect(self.first.stack.redis_url)
        try:
            found = await client.hget("headstart:lease", "owner")
        finally:
            await client.aclose()
        return text(found or b"")

    async def token(self) -> int:
        """The fencing token of the routing table in force."""
        client = connect(self.first.stack.redis_url)
        try:
            return int(await client.get("headstart:routing:token") or 0)
        finally:
            await client.aclose()

    async def logs(self) -> dict[str, list[dict[str, object]]]:
        """What each LocalAI did."""
        found = {}
        for name, url in self.emulators.items():
            answer = await self.first.ask("GET", f"{url}/emulator/events?after=0&limit=200000")
            found[name] = answer.json["events"]
        return found


@asynccontextmanager
async def two_of_each() -> AsyncIterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        models = str(write_models(folder, MODELS))
        emulators = {f"gpu-{n}": f"http://127.0.0.1:{free_port()}" for n in (1, 2, 3)}
        config = folder / "headstart.yaml"
        backends = [{"name": node, "url": url} for node, url in emulators.items()]
        config.write_text(json.dumps({"localai": {"backends": backends}}))
        now_s = time.time()
        # One clock for all: whoever starts something else would begin another one.
        anchor = {ANCHOR_VARIABLE: f"{now_s!r}:{now_s!r}"}
        environ = settings(
            HEADSTART_CONFIG=str(config),
            HEADSTART_TIME_SCALE="3",
            HEADSTART_QUEUE_CONFIG__REALTIME_CAPACITY="60",
            **anchor,
        )
        stack = Stack(
            environ,
            folder / "data",
            services=("gateway", "control", "predictor", "controller"),
            start_s=120.0,
        )
        specs = [
            ServiceSpec(
                name=node,
                argv=(
                    sys.executable, "-m", "emulator", "--models", models,
                    "--capacity-mb", str(CAPACITY_MB), "--port", url.rpartition(":")[2],
                ),
                env=child_environment(stack._environ, load_settings(stack._environ)),
                ready=f"{url}/readyz",
            )
            for node, url in emulators.items()
        ]  # fmt: skip
        async with (
            Supervisor(specs, log_dir=folder / "localai", start_s=120.0),
            stack,
            _second(stack, folder) as (others, second_url),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
        ):
            first = Deployment(stack, session)
            RUNNING.append(first)
            try:
                pair = Pair(first, others, emulators)
                pair.gateways = (stack.gateway_url, second_url)
                await until(pair.are_all_there, "everybody knows where models are")
                yield pair
            finally:
                RUNNING.remove(first)


@asynccontextmanager
async def _second(stack: Stack, folder: Path) -> AsyncIterator[tuple[Supervisor, str]]:
    port = free_port()
    environ = {**stack._environ, "HEADSTART_GATEWAY_PORT": str(port)}
    loaded = load_settings(environ)
    env = child_environment(environ, loaded)
    specs = service_specs(("gateway", "controller"), loaded, env, watch_redis=True)
    second = [replace(spec, name=f"{spec.name}-2") for spec in specs]
    async with Supervisor(second, log_dir=folder / "second", start_s=120.0) as others:
        yield others, f"http://127.0.0.1:{port}"


async def test_the_leader_is_killed_and_nothing_is_lost_or_done_twice():
    async with two_of_each() as pair:
        names = [str(model["name"]) for model in MODELS]
        stack = pair.first.stack
        asked: list[asyncio.Task[Answer]] = []
        turn = itertools.cycle(pair.gateways)

        async def ask_all() -> None:
            for model in names:
                asked.append(asyncio.create_task(pair.chat(model, next(turn))))
                await asyncio.sleep(0.05)

        await ask_all()
        before = await pair.token()
        pid = (await pair.leader()).split("-")[-2]
        of_stack = str(stack.pid("controller")) == pid
        if of_stack:
            await stack.hold("controller")
        else:
            await pair.others.hold("controller-2")
        await ask_all()

        async def another_leads() -> bool:
            return await pair.token() > before

        await until(another_leads, "the other controller leads")
        await ask_all()
        answers = await asyncio.gather(*asked)
        assert [one.text for one in answers if one.status != 200] == []
        assert pid not in (await pair.leader()).split("-")

        # The first is back, and a lease that it does not hold lets it order nothing.
        if of_stack:
            await stack.release("controller")
        else:
            await pair.others.release("controller-2")
        token = await pair.token()
        await ask_all()
        assert [one.text for one in await asyncio.gather(*asked) if one.status != 200] == []
        assert await pair.token() == token
        for node, events in (await pair.logs()).items():
            _no_order_twice(node, events)


def _no_order_twice(node: str, events: list[dict[str, object]]) -> None:
    """No model is loaded while it loads or is there, and never more than fits."""
    there: set[object] = set()
    for event in events:
        model = event.get("model")
        if event["kind"] == "load_started":
            assert model not in there, f"{node}: {model} was loaded twice"
            there.add(model)
            assert len(there) * 3000 <= CAPACITY_MB, f"{node}: more than fits"
        elif event["kind"] in ("unloaded", "load_failed", "load_cancelled"):
            there.discard(model)
