"""A whole deployment as its callers see it: a stack of real processes, and ways to ask it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from cli.services import SERVICES
from cli.stack import Stack
from cli.traffic import SERVICE_HEADER

TIME_SCALE = 10.0
PATIENCE_S = 60.0
"""Real seconds that anything may take: a bound for a slow machine, not an expectation."""

_POLL_S = 0.05
_TAIL_LINES = 40

ROOT = Path(__file__).parents[2]

Event = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back; ``status`` is None where the connection broke."""

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error_type(self) -> str:
        return str(self.json["error"]["type"])

    @property
    def is_cold(self) -> bool:
        return {"true": True, "false": False}[self.headers["X-Headstart-Cold"]]


class Deployment:
    """A stack that runs, and one HTTP session to speak to it."""

    def __init__(self, stack: Stack, session: aiohttp.ClientSession) -> None:
        self.stack = stack
        self.session = session

    # What callers do

    async def chat(
        self,
        model: str,
        *,
        request_id: str | None = None,
        service_s: float = 0.5,
        alone: bool = False,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> Answer:
        """One chat; ``alone``: asked of LocalAI itself, past the gateway."""
        sent = {SERVICE_HEADER: f"{service_s:.3f}", **(headers or {})}
        if request_id is not None:
            sent["X-Request-ID"] = request_id
        message = {"messages": [{"role": "user", "content": "Hello"}]}
        return await self.ask(
            "POST",
            (self.stack.emulator_url if alone else self.stack.gateway_url) + "/v1/chat/completions",
            headers=sent,
            json={"model": model, **message, **body},
        )

    async def control(self, method: str, path: str, body: object = None) -> Answer:
        """One call of the control API."""
        return await self.ask(method, self.stack.control_url + path, json=body)

    async def ask(self, method: str, url: str, **options: Any) -> Answer:
        try:
            async with self.session.request(method, url, **options) as answer:
                return Answer(
                    status=answer.status, headers=answer.headers.copy(), text=await answer.text()
                )
        except aiohttp.ClientError as error:
            return Answer(status=None, text=f"{type(error).__name__}: {error}")

    # What the emulator and the controller know

    async def events(self, after: int = 0) -> list[Event]:
        """The emulator's log after a place in it."""
        answer = await self.ask(
            "GET", f"{self.stack.emulator_url}/emulator/events?after={after}&limit=200000"
        )
        listed: list[Event] = answer.json["events"]
        return listed

    async def mark(self) -> int:
        """The present end of the emulator's log."""
        return int((await self.state())["last_seq"])

    async def state(self) -> dict[str, Any]:
        """What the emulated LocalAI really holds."""
        answer = await self.ask("GET", f"{self.stack.emulator_url}/emulator/state")
        state: dict[str, Any] = answer.json
        return state

    async def unload_in_localai(self, model: str) -> None:
        """As somebody does who goes past us."""
        url = f"{self.stack.emulator_url}/backend/shutdown"
        answer = await self.ask("POST", url, json={"model": model})
        assert answer.status == 200, answer.text

    async def residency(self, model: str) -> str:
        """Where a model is in LocalAI."""
        return str((await self.state())["models"][model]["residency"])

    async def model(self, name: str) -> dict[str, Any]:
        """A model as the control API shows it; empty while it does not."""
        answer = await self.control("GET", f"/v1/models/{name}")
        return answer.json if answer.status == 200 else {}

    async def leads(self) -> bool:
        """Whether a controller speaks and a predictor forecasts, as the control API sees it."""
        return (await self.control("GET", "/readyz")).status == 200

    async def until(
        self,
        is_so: Callable[[], Awaitable[object]],
        what: str,
        *,
        within_s: float = PATIENCE_S,
    ) -> None:
        """Ask again until it is so."""
        await until(is_so, what, within_s=within_s)


async def until(
    is_so: Callable[[], Awaitable[object]], what: str, *, within_s: float = PATIENCE_S
) -> None:
    """Wait for a condition, with a bound in real seconds."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + within_s
    while not await is_so():
        assert loop.time() < end_s, f"it did not come to this: {what}"
        await asyncio.sleep(_POLL_S)


def of_kind(events: Sequence[Event], kind: str, model: str | None = None) -> list[Event]:
    """The events of one kind, of one model or of all."""
    return [e for e in events if e["kind"] == kind and model in (None, e["model"])]


def is_gone(pid: int) -> bool:
    """Whether a process runs no more."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def family() -> dict[int, str]:
    """Every process below this one, with what it runs."""
    found = {}
    for child in psutil.Process().children(recursive=True):
        try:
            found[child.pid] = " ".join(child.cmdline())
        except psutil.NoSuchProcess:
            continue
    return found


def write_models(folder: Path, models: Sequence[Mapping[str, Any]]) -> Path:
    """A file of models as the emulator reads it."""
    file = folder / "models.json"
    file.write_text(json.dumps({"models": list(models)}))
    return file


def settings(**more: str) -> dict[str, str]:
    """What every deployment here is told."""
    return {
        "HEADSTART_ENV": "dev",
        "HEADSTART_TIME_SCALE": f"{TIME_SCALE:g}",
        "HEADSTART_SCHEDULER__MODE": "active",
        # The emulated GPU has no other programs that a reserve would be for.
        "HEADSTART_MEMORY__RESERVE_RATIO": "0",
        "HEADSTART_LOGGING__LEVEL": "info",
        **more,
    }


RUNNING: list[Deployment] = []
"""Deployments that run now; a failed test shows the ends of their logs."""


@asynccontextmanager
async def deployed(
    models: Sequence[Mapping[str, Any]],
    *,
    capacity_mb: int | None = None,
    services: Sequence[str] = SERVICES,
    emulator_args: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> AsyncIterator[Deployment]:
    """A deployment in a folder of its own; inside the block everything answers."""
    # Unix socket paths are short (108 bytes), pytest's own folders are not.
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        arguments = ["--models", str(write_models(folder, models)), *emulator_args]
        if capacity_mb is not None:
            arguments += ["--capacity-mb", str(capacity_mb)]
        stack = Stack(
            settings(**(environ or {})),
            folder / "data",
            services=services,
            emulator_args=arguments,
            start_s=120.0,
        )
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=120.0)
        async with (
            stack,
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        ):
            deployment = Deployment(stack, session)
            RUNNING.append(deployment)
            try:
                await _until_all_speak(deployment, services)
                yield deployment
            finally:
                RUNNING.remove(deployment)
        for process, said in _logs(deployment):
            assert "Traceback" not in said, f"{process}: {said[-3000:]}"


async def _until_all_speak(deployment: Deployment, services: Sequence[str]) -> None:
    if {"control", "controller"} <= set(services):

        async def lists_models() -> bool:
            answer = await deployment.control("GET", "/v1/models")
            return answer.status == 200 and bool(answer.json["data"])

        await deployment.until(lists_models, "the controller knows the models")
    if {"gateway", "controller"} <= set(services):

        async def has_table() -> bool:
            answer = await deployment.ask("GET", deployment.stack.gateway_url + "/headstart/readyz")
            return answer.status == 200 and answer.json["routing"] is not None

        await deployment.until(has_table, "the gateway knows where models are")


def log_tails(deployment: Deployment) -> list[tuple[str, str]]:
    """The last lines of each process's log."""
    return [(name, "\n".join(said.splitlines()[-_TAIL_LINES:])) for name, said in _logs(deployment)]


def _logs(deployment: Deployment) -> list[tuple[str, str]]:
    files = sorted(deployment.stack.log_dir.glob("*.log*"))
    return [(file.name, file.read_text(errors="replace")) for file in files]


def command(*arguments: str) -> list[str]:
    """``headstart …`` as installed: the current folder is not searched for packages."""
    return [sys.executable, "-P", "-m", "cli", *arguments]


def command_environment(**more: str) -> dict[str, str]:
    """The environment of a command, with our packages first."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **more}
