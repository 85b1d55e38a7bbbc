"""The deployment that faults are let loose on: real processes, and a relay for each connection."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from adapters.clock import ANCHOR_VARIABLE, ScaledClock
from adapters.embedded_server import EmbeddedServer
from adapters.settings import load_settings
from cli.ports import free_port
from cli.service import ServiceSpec
from cli.services import child_environment, has_reached, has_worker, service_specs
from cli.supervisor import Supervisor
from tests.acceptance.deployment import settings, write_models
from tests.chaos.faults import CONTROLLERS, GATEWAYS, LINKS, MODELS, NODES, ROLES
from tests.chaos.relays import Relay

SCALE = 10.0
CAPACITY_MB = 10_000
FOOTPRINT_MB = 3000
"""Each of the two LocalAIs holds three of the chat models."""

LEASE_S = 20.0
"""Seconds of the clock: two real ones, in which a machine with other work may not get to renew."""

DISK_MB = 512

PLACES: list[dict[str, Any]] = [
    *(
        {"name": name, "footprint_mb": FOOTPRINT_MB, "load_s": 1.0, "tokens_per_s": 40}
        for name in MODELS
    ),
    {"name": "embed", "kind": "embedding", "footprint_mb": 300, "load_s": 0.5},
    {"name": "hear", "kind": "transcription", "footprint_mb": 300, "load_s": 0.5},
]
FOOTPRINTS_MB: dict[str, int] = {str(m["name"]): int(m["footprint_mb"]) for m in PLACES}

_START_S = 120.0


@dataclass(kw_only=True)
class Site:
    """What runs. Times of its clock are ``SCALE`` as fast as real ones.

    Attributes
    ----------
    links : mapping
        The relay of each of ``faults.LINKS``.
    emulators : mapping
        Where each LocalAI really listens.
    lives : mapping
        Every process that was seen, by its number: whose it was.
    killed : list
        Processes that were killed by us, with when, in seconds of the clock.
    disk : Path or None
        A small file system that holds all data; None where none could be made.
    """

    folder: Path
    clock: ScaledClock
    redis: EmbeddedServer
    links: Mapping[str, Relay]
    emulators: Mapping[str, str]
    gateways: Mapping[str, str]
    control_url: str
    disk: Path | None
    supervisors: dict[str, Supervisor] = field(default_factory=dict)
    lives: dict[int, str] = field(default_factory=dict)
    killed: list[tuple[str, int, float]] = field(default_factory=list)

    @property
    def logs(self) -> Path:
        """Where processes write what they say."""
        return self.folder / "logs"

    def pid(self, role: str) -> int | None:
        """The present process of a role."""
        pid = self.redis.pid if role == "redis" else self.supervisors[role].pid(role)
        if pid is not None:
            self.lives[pid] = role
        return pid

    def look(self) -> None:
        """Note who lives now, so that a process that ends by itself is known by name."""
        for role in ROLES:
            self.pid(role)

    def signal(self, role: str, number: signal.Signals) -> int | None:
        """Send a signal to a role's process; which one got it."""
        pid = self.pid(role)
        if pid is None:
            return None
        if number is signal.SIGKILL:
            self.killed.append((role, pid, self.clock.now_s()))
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        return pid

    def restarts(self, role: str) -> int:
        """How often it was started again."""
        if role == "redis":
            return self.redis.restarts
        return self.supervisors[role].restarts(role)

    def is_ready(self, role: str) -> bool:
        """Whether its present process was seen ready."""
        return role == "redis" or self.supervisors[role].is_ready(role)


@asynccontextmanager
async def running_site(folder: Path) -> AsyncIterator[Site]:
    """Everything runs and is ready inside the block; after it nothing is left."""
    structlog.configure(
        processors=[structlog.processors.JSONRenderer()], logger_factory=_to(folder)
    )
    async with AsyncExitStack() as stack:
        disk = stack.enter_context(_Disk(folder / "disk"))
        redis = await stack.enter_async_context(EmbeddedServer(folder / "disk"))
        socket = redis.url.removeprefix("unix://").partition("?")[0]
        ports = {name: free_port() for name in (*NODES, *GATEWAYS, "control")}
        links: dict[str, Relay] = {}
        for link in LINKS:
            target = link.partition(":")[2]
            path = socket if target == "redis" else ""
            links[link] = Relay(link, port=ports.get(target, 0), path=path)
            await links[link].start()
            stack.push_async_callback(links[link].stop)
        now_s = time.time()
        anchor = {ANCHOR_VARIABLE: f"{now_s!r}:{now_s!r}"}
        common = settings(
            HEADSTART_TIME_SCALE=f"{SCALE:g}",
            HEADSTART_DATA_DIR=str(folder / "disk"),
            HEADSTART_CONTROL__PORT=str(ports["control"]),
            HEADSTART_GATEWAY__HOST="127.0.0.1",
            HEADSTART_CONTROL__HOST="127.0.0.1",
            HEADSTART_QUEUE_CONFIG__REALTIME_CAPACITY="100",
            HEADSTART_SCHEDULER__LEASE_SECONDS=f"{LEASE_S:g}",
            **anchor,
        )
        site = Site(
            folder=folder,
            clock=ScaledClock.from_environment(common),
            redis=redis,
            links=links,
            emulators={node: f"http://127.0.0.1:{ports[node]}" for node in NODES},
            gateways={
                gateway: f"http://127.0.0.1:{links[f'clients:{gateway}'].port}"
                for gateway in GATEWAYS
            },
            control_url=f"http://127.0.0.1:{ports['control']}",
            disk=disk,
        )
        emulators = [_emulator(site, node, ports[node], common) for node in NODES]
        ours = [_service(site, role, ports, common) for role in ROLES if role not in _OTHERS]
        for specs in (emulators, ours):
            supervisor = Supervisor(specs, log_dir=site.logs, start_s=_START_S)
            site.supervisors |= {spec.name: supervisor for spec in specs}
            await stack.enter_async_context(supervisor)
        site.look()
        yield site


_OTHERS = ("redis", *NODES)


def _emulator(site: Site, node: str, port: int, common: Mapping[str, str]) -> ServiceSpec:
    environ = _environment(common)
    return ServiceSpec(
        name=node,
        argv=(
            sys.executable, "-m", "emulator",
            "--models", str(write_models(site.folder, PLACES)),
            "--capacity-mb", str(CAPACITY_MB),
            "--port", str(port),
            "--event-log", str(site.folder / f"{node}.jsonl"),
        ),
        env=child_environment(environ, load_settings(environ)),
        ready=f"{site.emulators[node]}/readyz",
    )  # fmt: skip


def _service(
    site: Site, role: str, ports: Mapping[str, int], common: Mapping[str, str]
) -> ServiceSpec:
    links = site.links
    if role in (*GATEWAYS, *CONTROLLERS):
        nodes = {node: f"http://127.0.0.1:{links[f'{role}:{node}'].port}" for node in NODES}
    else:
        nodes = dict(site.emulators)
    config = site.folder / f"{role}.json"
    backends = [{"name": name, "url": url} for name, url in nodes.items()]
    config.write_text(json.dumps({"localai": {"backends": backends}}))
    environ = _environment(common) | {
        "HEADSTART_CONFIG": str(config),
        "HEADSTART_REDIS_URL": f"redis://127.0.0.1:{links[f'{role}:redis'].port}/0",
    }
    if role in GATEWAYS:
        environ["HEADSTART_GATEWAY_PORT"] = str(ports[role])
        control = links[f"{role}:control"].port
        environ["HEADSTART_GATEWAY__CONTROL_URL"] = f"http://127.0.0.1:{control}"
    if role == "control":
        environ["HEADSTART_CONTROL_PORT"] = str(ports["control"])
    name, _, rest = role.partition("-")
    loaded = load_settings(environ)
    env = child_environment(environ, loaded)
    spec = replace(service_specs((name,), loaded, env, watch_redis=False)[0], name=role)
    if name == "workers":
        url = f"http://127.0.0.1:{links[f'{role}:gateway-1'].port}"
        argv = (sys.executable, "-m", "workers", "--queue", rest, "--gateway-url", url)
        return replace(spec, argv=argv, ready=has_worker(site.redis.url))
    if name in ("predictor", "controller"):
        return replace(spec, ready=has_reached(site.redis.url))
    return spec


def _environment(common: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HEADSTART_", "LOCALAI_")) and name != "REDIS_URL"
    }
    return {**inherited, **common}


def _to(folder: Path) -> Any:
    """What the parts that run in this process say goes into a file, too."""
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return structlog.WriteLoggerFactory(file=(logs / "supervisor.log").open("a"))


class _Disk:
    """A file system of its own that can be filled, where we may mount one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mounted = False

    def __enter__(self) -> Path | None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs"]
            done = subprocess.run([*command, str(self._folder)], check=False, capture_output=True)
            self._mounted = done.returncode == 0
        return self._folder if self._mounted else None

    def __exit__(self, *_: object) -> None:
        if self._mounted:
            subprocess.run(["umount", "-l", self._folder], capture_output=True, check=False)
