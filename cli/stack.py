"""A whole stack of real processes for tests and replays, with an emulated LocalAI if wanted."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from adapters.embedded_server import EmbeddedServer
from adapters.folder_format import settle_folder
from adapters.settings import load_settings
from cli.ports import WantedPort, free_port, require_free
from cli.service import ServiceSpec
from cli.services import (
    SERVICES,
    checked_names,
    child_environment,
    control_url,
    gateway_url,
    service_specs,
    wanted_ports,
)
from cli.supervisor import Supervisor

EMULATOR = "emulator"
REDIS = "redis"

_PORT_VARIABLES = ("HEADSTART_GATEWAY_PORT", "HEADSTART_CONTROL_PORT")
_OURS = ("HEADSTART_", "LOCALAI_")


class Stack:
    """An async context manager: inside the block everything is ready, after it all is gone.

    Parameters
    ----------
    environ : mapping
        Settings as environment variables. Nothing of ours is taken from the caller's own
        environment. Ports that are not given, or are ``0``, are chosen free.
    data_dir : Path
        Where Redis and the logs are kept; a stack that starts there again finds its data.
    services : sequence of str
        Which of ``SERVICES`` to run. None of them: no Redis either.
    emulator_args : sequence of str, optional
        Options of ``headstart emulate``; None: no emulator, LocalAI is where ``environ`` says.
    terminal : file, optional
        Where all lines also go, with the process's name before each.
    start_s : float
        Real seconds that it may take until all are ready.

    Attributes
    ----------
    gateway_url, control_url, redis_url : str
    emulator_url : str
        Empty where there is no emulator.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        data_dir: Path,
        *,
        services: Sequence[str] = SERVICES,
        emulator_args: Sequence[str] | None = None,
        terminal: TextIO | None = None,
        start_s: float = 60.0,
    ) -> None:
        self._services = checked_names(services)
        self._emulator_args = None if emulator_args is None else tuple(emulator_args)
        self._terminal = terminal
        self._start_s = start_s
        self._environ = _environment(environ, data_dir)
        self.data_dir = data_dir
        self.log_dir = data_dir / "logs"
        self.emulator_url = ""
        if self._emulator_args is not None:
            self.emulator_url = f"http://127.0.0.1:{_emulator_port(self._emulator_args)}"
            self._environ["HEADSTART_LOCALAI_URL"] = self.emulator_url
        settings = load_settings(self._environ)
        self.gateway_url = gateway_url(settings)
        self.control_url = control_url(settings)
        self.redis_url = settings.redis_url or ""
        self._redis: EmbeddedServer | None = None
        self._running: dict[str, Supervisor] = {}
        self._exit = AsyncExitStack()

    def pid(self, name: str) -> int | None:
        """The process of a service, of ``emulator`` or of ``redis``; None while there is none."""
        if name == REDIS:
            return self._own_redis().pid
        return self._running[name].pid(name)

    def restarts(self, name: str) -> int:
        """How often it was started again."""
        return self._own_redis().restarts if name == REDIS else self._running[name].restarts(name)

    def exit_code(self, name: str) -> int | None:
        """How the last process of a service or the emulator ended; None: none has yet."""
        return self._running[name].exit_code(name)

    def is_ready(self, name: str) -> bool:
        """Whether the present process of a service or the emulator was seen ready."""
        return self._running[name].is_ready(name)

    def kill(self, name: str, chosen: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal; what ends by it is started again with a growing pause."""
        if name != REDIS:
            self._running[name].kill(name, chosen)
        elif (pid := self._own_redis().pid) is not None:
            os.kill(pid, chosen)

    async def hold(self, name: str) -> None:
        """Kill it and keep it down until ``release``."""
        await (self._own_redis().hold() if name == REDIS else self._running[name].hold(name))

    async def release(self, name: str) -> None:
        """Start it again after ``hold``, and wait until it is ready."""
        if name == REDIS:
            await self._own_redis().release()
        else:
            await self._running[name].release(name)

    async def start(self) -> None:
        """Start Redis, then the emulator, then the services together.

        Raises
        ------
        Invalid, Transient, Permanent
            What kept it from starting, in one line; nothing is left running.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End everything, Redis last."""
        await self._exit.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _start(self) -> None:
        settings = load_settings(self._environ)
        settle_folder(self.data_dir)
        require_free(wanted_ports(self._services, settings))
        if self._services and settings.redis_url is None:
            self._redis = await self._exit.enter_async_context(EmbeddedServer(self.data_dir))
            self.redis_url = self._redis.url
            self._environ["HEADSTART_REDIS_URL"] = self.redis_url
            settings = load_settings(self._environ)
        env = child_environment(self._environ, settings)
        if self._emulator_args is not None:
            await self._run([self._emulator(env)])
        await self._run(service_specs(self._services, settings, env, watch_redis=True))

    async def _run(self, specs: list[ServiceSpec]) -> None:
        if not specs:
            return
        supervisor = Supervisor(
            specs, log_dir=self.log_dir, terminal=self._terminal, start_s=self._start_s
        )
        await self._exit.enter_async_context(supervisor)
        self._running |= dict.fromkeys(supervisor.names, supervisor)

    def _emulator(self, env: Mapping[str, str]) -> ServiceSpec:
        args = self._emulator_args or ()
        port = self.emulator_url.rpartition(":")[2]
        require_free([WantedPort(EMULATOR, "127.0.0.1", int(port), "--port")])
        return ServiceSpec(
            name=EMULATOR,
            argv=(sys.executable, "-m", "emulator", *args, "--port", port),
            env=env,
            ready=f"{self.emulator_url}/readyz",
        )

    def _own_redis(self) -> EmbeddedServer:
        if self._redis is None:
            raise KeyError("this stack runs no Redis of its own")
        return self._redis


def _environment(environ: Mapping[str, str], data_dir: Path) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OURS) and name != "REDIS_URL"
    }
    result = {**inherited, "HEADSTART_DATA_DIR": str(data_dir), **environ}
    for name in _PORT_VARIABLES:
        if result.get(name, "0") in ("", "0"):
            result[name] = str(free_port())
    return result


def _emulator_port(args: Sequence[str]) -> int:
    """The port that the options ask for, else a free one."""
    asked = 0
    for word, following in zip(args, [*args[1:], ""], strict=True):
        if word == "--port" and following.isdecimal():
            asked = int(following)
        elif word.startswith("--port=") and word[7:].isdecimal():
            asked = int(word[7:])
    return asked or free_port()
