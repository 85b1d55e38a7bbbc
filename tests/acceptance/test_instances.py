"""A third LocalAI comes up behind the name while people ask, takes part, and goes again."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from adapters.clock import ANCHOR_VARIABLE
from adapters.localai_discovery import HOSTS_VARIABLE
from cli.ports import free_port, is_free
from cli.stack import Stack
from tests.acceptance.deployment import RUNNING, Answer, Deployment, settings, until
from tests.emulator_server import RunningEmulator

MODELS = [
    {"name": f"chat-{letter}", "footprint_mb": 3000, "load_s": 2, "tokens_per_s": 200}
    for letter in "abcdef"
]
SCALE = 3.0
CAPACITY_MB = 6500
"""Each holds two of the six models: two LocalAIs are not enough for all of them."""

ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")


class Name:
    """What the name of the LocalAIs stands for, as a file of hosts."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "hosts"
        self.port = next(port for port in iter(free_port, None) if _is_free_everywhere(port))
        self.folder = folder

    def stands_for(self, *addresses: str) -> None:
        fresh = self.folder / "hosts.new"
        fresh.write_text("".join(f"{address} localai\n" for address in addresses))
        fresh.replace(self.file)


def _is_free_everywhere(port: int) -> bool:
    return all(is_free(address, port) for address in ADDRESSES)


def instance(address: str, port: int) -> RunningEmulator:
    """A LocalAI at this address, of which the name knows nothing yet."""
    return RunningEmulator(MODELS, scale=SCALE, capacity_mb=CAPACITY_MB, host=address, port=port)


class Site:
    def __init__(
        self, deployment: Deployment, name: Name, localais: dict[str, RunningEmulator]
    ) -> None:
        self.deployment = deployment
        self.name = name
        self.localais = localais
        self.asked: list[asyncio.Task[Answer]] = []

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Somebody asks for one model after the other, all the time."""

        async def ask() -> None:
            while True:
                for model in MODELS:
                    task = self.deployment.chat(str(model["name"]), service_s=0.3)
                    self.asked.append(asyncio.create_task(task))
                    await asyncio.sleep(0.1)

        task = asyncio.create_task(ask())
        yield
        task.cancel()
        await asyncio.wait({task})

    async def nodes(self) -> dict[str, Any]:
        answer = await self.deployment.control("GET", "/v1/nodes")
        return {node["id"]: node for node in answer.json["data"]} if answer.status == 200 else {}

    async def has_nodes(self, *addresses: str) -> bool:
        """Whether these, and no others, are there and answer."""
        nodes = await self.nodes()
        alive = {node["id"] for node in nodes.values() if node["alive"]}
        return nodes.keys() == alive == {f"localai-{address}" for address in addresses}

    def served(self, address: str) -> int:
        """Requests that a LocalAI answered."""
        return len(self.localais[address].events("request_ended"))

    async def page(self) -> str:
        """The metrics of the gateway."""
        url = f"{self.deployment.stack.gateway_url}/headstart/metrics"
        return (await self.deployment.ask("GET", url)).text

    async def reasons(self) -> set[tuple[str, str]]:
        answer = await self.deployment.control("GET", "/v1/decisions?limit=500")
        return {
            (one["subject"], one["reason"])
            for one in answer.json["data"]
            if one["policy"] == "instances"
        }


@asynccontextmanager
async def two_behind_a_name() -> AsyncIterator[Site]:
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as tmp:
        folder = Path(tmp)
        name = Name(folder)
        name.stands_for()
        config = folder / "headstart.yaml"
        localai = {
            "url": f"http://localai:{name.port}", "discovery": "dns",
            "discovery_seconds": 1.5, "discovery_grace_seconds": 6,
        }  # fmt: skip
        config.write_text(json.dumps({"localai": localai}))
        now_s = time.time()
        environ = settings(
            HEADSTART_CONFIG=str(config),
            HEADSTART_TIME_SCALE=f"{SCALE:g}",
            HEADSTART_QUEUE_CONFIG__REALTIME_CAPACITY="200",
            **{HOSTS_VARIABLE: str(name.file), ANCHOR_VARIABLE: f"{now_s!r}:{now_s!r}"},
        )
        stack = Stack(
            environ, folder / "data", services=("gateway", "control", "controller"), start_s=120.0
        )
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        localais: dict[str, RunningEmulator] = {}
        async with AsyncExitStack() as started:
            for address in ADDRESSES:
                localais[address] = started.enter_context(instance(address, name.port))
            await started.enter_async_context(stack)
            session = await started.enter_async_context(aiohttp.ClientSession(connector=connector))
            deployment = Deployment(stack, session)
            RUNNING.append(deployment)
            started.callback(RUNNING.remove, deployment)
            site = Site(deployment, name, localais)
            # The name has stood for nothing so far.
            name.stands_for(*ADDRESSES[:2])
            await until(lambda: site.has_nodes(*ADDRESSES[:2]), "both are found")
            yield site


async def test_one_more_takes_part_while_people_ask_and_goes_without_a_loss():
    async with two_behind_a_name() as site:
        third = ADDRESSES[2]
        node = f"localai-{third}"
        async with site.asking():
            site.name.stands_for(*ADDRESSES)
            await until(lambda: site.has_nodes(*ADDRESSES), "the third is found")

            async def serves() -> bool:
                return site.served(third) >= 5

            await until(serves, "it has got models and requests")
            lines = (await site.page()).splitlines()
            assert "headstart_gateway_backends 3.0" in lines
            assert any(node in line for line in lines)

            site.name.stands_for(*ADDRESSES[:2])
            await until(lambda: site.has_nodes(*ADDRESSES[:2]), "it is forgotten")
            at_end = site.served(third)

            async def moves_on() -> bool:
                return len(site.asked) > 20 and all(one.done() for one in site.asked[:-20])

            await until(moves_on, "the others serve all models")
            assert site.served(third) == at_end
        answers = await asyncio.gather(*site.asked)
        assert [one.text for one in answers if one.status != 200] == []
        assert {(node, "instance_found"), (node, "instance_missing"), (node, "instance_gone")} <= (
            await site.reasons()
        )
        page = await site.page()
        assert node not in page
        # The name itself, and the third.
        left = 'headstart_gateway_backend_changes_total{change="left"} 2.0'
        assert left in page.splitlines()
        control = await site.deployment.control("GET", "/metrics")
        assert node not in control.text
