"""A third LocalAI comes up behind the name while people ask, takes part, and goes again."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from adapters.clock import ANCHOR_VARIABLE
from adapters.localai_discovery import HOSTS_VARIABLE
from adapters.settings import load_settings
from cli.ports import free_port, is_free
from cli.service import ServiceSpec
from cli.services import child_environment
from cli.stack import Stack
from cli.supervisor import Supervisor
from tests.acceptance.deployment import RUNNING, Answer, Deployment, settings, until, write_models

MODELS = [
    {"name": f"chat-{letter}", "footprint_mb": 3000, "load_s": 2, "tokens_per_s": 200}
    for letter in "abcdef"
]
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


class Site:
    def __init__(self, deployment: Deployment, name: Name, stack: Stack, models: str) -> None:
        self.deployment = deployment
        self.name = name
        self.models = models
        self.stack = stack
        self.asked: list[asyncio.Task[Answer]] = []

    def instances(self, *addresses: str) -> Supervisor:
        """LocalAIs at these addresses, of which the name knows nothing yet."""
        env = child_environment(self.stack._environ, load_settings(self.stack._environ))
        specs = [
            ServiceSpec(
                name=f"localai-{address}",
                argv=(
                    sys.executable, "-m", "emulator", "--models", self.models,
                    "--capacity-mb", str(CAPACITY_MB), "--host", address,
                    "--port", str(self.name.port),
                ),
                env=env,
                ready=f"http://{address}:{self.name.port}/readyz",
            )
            for address in addresses
        ]  # fmt: skip
        return Supervisor(specs, log_dir=self.name.folder / addresses[0], start_s=120.0)

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

    async def served(self, address: str) -> int:
        """Requests that a LocalAI answered."""
        url = f"http://{address}:{self.name.port}/emulator/events?after=0&limit=200000"
        answer = await self.deployment.ask("GET", url)
        return sum(event["kind"] == "request_ended" for event in answer.json["events"])

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
            HEADSTART_TIME_SCALE="3",
            HEADSTART_QUEUE_CONFIG__REALTIME_CAPACITY="200",
            **{HOSTS_VARIABLE: str(name.file), ANCHOR_VARIABLE: f"{now_s!r}:{now_s!r}"},
        )
        stack = Stack(
            environ, folder / "data", services=("gateway", "control", "controller"), start_s=120.0
        )
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with AsyncExitStack() as started:
            await started.enter_async_context(stack)
            session = await started.enter_async_context(aiohttp.ClientSession(connector=connector))
            deployment = Deployment(stack, session)
            RUNNING.append(deployment)
            started.callback(RUNNING.remove, deployment)
            site = Site(deployment, name, stack, str(write_models(folder, MODELS)))
            # The name stands for nothing yet: they are found once they are there.
            await started.enter_async_context(site.instances(*ADDRESSES[:2]))
            name.stands_for(*ADDRESSES[:2])
            await until(lambda: site.has_nodes(*ADDRESSES[:2]), "both are found")
            yield site


async def test_one_more_takes_part_while_people_ask_and_goes_without_a_loss():
    async with two_behind_a_name() as site:
        third = ADDRESSES[2]
        node = f"localai-{third}"
        async with site.asking(), site.instances(third):
            site.name.stands_for(*ADDRESSES)
            await until(lambda: site.has_nodes(*ADDRESSES), "the third is found")

            async def serves() -> bool:
                return await site.served(third) >= 5

            await until(serves, "it has got models and requests")
            gateway = await site.deployment.ask(
                "GET", f"{site.stack.gateway_url}/headstart/metrics"
            )
            lines = gateway.text.splitlines()
            assert "headstart_gateway_backends 3.0" in lines
            assert any(node in line for line in lines)

            site.name.stands_for(*ADDRESSES[:2])
            await until(lambda: site.has_nodes(*ADDRESSES[:2]), "it is forgotten")
            at_end = await site.served(third)

            async def moves_on() -> bool:
                return len(site.asked) > 20 and all(one.done() for one in site.asked[:-20])

            await until(moves_on, "the others serve all models")
            assert await site.served(third) == at_end
        answers = await asyncio.gather(*site.asked)
        assert [one.text for one in answers if one.status != 200] == []
        assert {(node, "instance_found"), (node, "instance_missing"), (node, "instance_gone")} <= (
            await site.reasons()
        )
        gateway = await site.deployment.ask("GET", f"{site.stack.gateway_url}/headstart/metrics")
        assert node not in gateway.text
        # The name itself, and the third.
        left = 'headstart_gateway_backend_changes_total{change="left"} 2.0'
        assert left in gateway.text.splitlines()
        control = await site.deployment.control("GET", "/metrics")
        assert node not in control.text
