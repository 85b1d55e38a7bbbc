"""What a benchmark of the gateway compares: nginx, LiteLLM and the gateway, one process each."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from adapters.clock import ScaledClock
from adapters.redis_client import connect
from adapters.redis_mailbox import to_gateways
from adapters.settings import Settings, load_settings
from cli.ports import free_port
from cli.services import child_environment
from cli.stack import Stack
from contracts.errors import Permanent
from contracts.ids import ModelId
from contracts.routing import ModelRoute, NodeRoute, RoutingTable
from contracts.world import Mode, Residency

MODEL = "bench"

_START_S = 90.0
_STOP_S = 5.0
_NGINX_CONF = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_max_body_size 0;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream app {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024; keepalive_requests 1000000000;
    location / {{
      proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Host $http_host; proxy_set_header X-Forwarded-Proto $scheme;
      proxy_buffering off; proxy_request_buffering off; proxy_read_timeout 600s;
    }}
  }}
}}
"""
"""As http.md asks of us: nothing buffered, connections kept, forwarding headers set."""

_LITELLM_CONF = """
model_list:
  - model_name: {model}
    litellm_params:
      model: openai/{model}
      api_base: http://127.0.0.1:{upstream}/v1
      api_key: sk-bench
litellm_settings: {{telemetry: false, num_retries: 0, drop_params: false}}
"""


_LITELLM_ENVIRONMENT = {
    "LITELLM_LOG": "ERROR",
    "LITELLM_TELEMETRY": "False",
    # It serves nobody but this benchmark, and a key would cost it a look-up.
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    "NO_PROXY": "*",
}


@dataclass(frozen=True, slots=True)
class Cores:
    """Where processes run; None: anywhere."""

    proxy: int | None
    other: int | None


@dataclass(slots=True)
class Running:
    """One thing under load. ``pid``: None for the direct connection."""

    name: str
    port: int
    pid: int | None
    redis_url: str = ""

    async def events_written(self) -> int | None:
        """Telemetry events that have reached the log; None: it writes none."""
        if not self.redis_url:
            return None
        client = connect(self.redis_url)
        try:
            return int(await client.xlen("headstart:events"))
        finally:
            await client.aclose()

    def cpu_s(self) -> float:
        """Processor seconds that it and its children have spent."""
        spent_s = 0.0
        for process in self._processes():
            times = process.cpu_times()
            spent_s += times.user + times.system
        return spent_s

    def rss_mb(self) -> float | None:
        """Resident memory of it and its children."""
        if self.pid is None:
            return None
        return sum(process.memory_info().rss for process in self._processes()) / 1024**2

    def _processes(self) -> list[psutil.Process]:
        if self.pid is None:
            return []
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]


def choose_cores() -> Cores:
    """One for the proxy, another for what is around it; where there are two, and a way."""
    if not hasattr(os, "sched_getaffinity"):
        return Cores(None, None)
    mine = sorted(os.sched_getaffinity(0))
    return Cores(mine[0], mine[-1]) if len(mine) > 1 else Cores(None, None)


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """What is started inside runs on this core."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def find_nginx() -> str | None:
    """The program, which distributions keep where only root looks."""
    return shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def find_litellm(asked: Path | None) -> str | None:
    """LiteLLM's proxy program: the one that is asked for, on PATH, or beside our Python."""
    if asked is not None:
        return str(asked) if asked.exists() else None
    beside = Path(sys.executable).with_name("litellm")
    return shutil.which("litellm") or (str(beside) if beside.exists() else None)


@asynccontextmanager
async def upstream(cores: Cores) -> AsyncIterator[int]:
    """The server behind all of them; gives its port."""
    env = child_environment(os.environ, load_settings({}))
    command = [sys.executable, "-m", "cli.bench_gateway_upstream"]
    async with _process(command, cores.other, env=env, piped=True) as process:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise Permanent("the benchmark's own server does not start")
        yield int(line)


def start(
    name: str, program: str | None, upstream_port: int, folder: Path, cores: Cores
) -> AbstractAsyncContextManager[Running]:
    """One of the stacks by its name; it runs inside the block."""
    if program is None:
        return gateway(upstream_port, folder, cores)
    made = nginx if name == "nginx" else litellm
    return made(program, upstream_port, folder, cores)


@asynccontextmanager
async def nginx(
    program: str, upstream_port: int, folder: Path, cores: Cores
) -> AsyncIterator[Running]:
    """Nginx with one worker."""
    port = free_port()
    conf = folder / "nginx.conf"
    conf.write_text(_NGINX_CONF.format(folder=folder, upstream=upstream_port, port=port))
    async with _process([program, "-c", str(conf), "-p", str(folder)], cores.proxy) as process:
        await _listening("nginx", port, process)
        yield Running("nginx", port, process.pid)


@asynccontextmanager
async def litellm(
    program: str, upstream_port: int, folder: Path, cores: Cores
) -> AsyncIterator[Running]:
    """LiteLLM's proxy with one worker."""
    port = free_port()
    conf = folder / "litellm.yaml"
    conf.write_text(_LITELLM_CONF.format(model=MODEL, upstream=upstream_port))
    command = [program, "--config", str(conf), "--host", "127.0.0.1", "--port", str(port)]
    env = {**os.environ, **_LITELLM_ENVIRONMENT}
    env.pop("PYTHONPATH", None)
    async with _process(command, cores.proxy, env=env) as process:
        await _listening("litellm", port, process)
        yield Running("litellm", port, process.pid)


@asynccontextmanager
async def gateway(upstream_port: int, folder: Path, cores: Cores) -> AsyncIterator[Running]:
    """The gateway with a Redis-compatible server of its own, and a table that knows the model."""
    environ = {"HEADSTART_LOCALAI_URL": f"http://127.0.0.1:{upstream_port}"}
    async with Stack(environ, folder / "data", services=("gateway",)) as stack:
        pid = stack.pid("gateway")
        assert pid is not None
        _pin(pid, cores.proxy)
        _pin(stack.pid("redis"), cores.other)
        client = connect(stack.redis_url)
        try:
            await to_gateways(client).send(_table(load_settings({**environ})))
        finally:
            await client.aclose()
        port = int(stack.gateway_url.rpartition(":")[2])
        yield Running("headstart", port, pid, stack.redis_url)


def _table(settings: Settings) -> RoutingTable:
    """The model is resident, as a controller would say: so admission and slots are at work."""
    node = settings.gateway_config().nodes[0].node
    model = ModelId(MODEL)
    return RoutingTable(
        token=1,
        made_at_s=ScaledClock().now_s(),
        mode=Mode.ACTIVE,
        models={model: ModelRoute(model=model, node=node, residency=Residency.HOT)},
        nodes={node: NodeRoute(node=node, alive=True, free_bytes=None)},
    )


def _pin(pid: int | None, core: int | None) -> None:
    """A process that runs already, with all its threads."""
    if pid is None or core is None:
        return
    for thread in psutil.Process(pid).threads():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread.id, {core})


@asynccontextmanager
async def _process(
    command: Sequence[str],
    core: int | None,
    *,
    env: Mapping[str, str] | None = None,
    piped: bool = False,
) -> AsyncIterator[asyncio.subprocess.Process]:
    with on_core(core):
        process = await asyncio.create_subprocess_exec(
            *command,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL,
            stderr=None if piped else asyncio.subprocess.DEVNULL,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _listening(name: str, port: int, process: asyncio.subprocess.Process) -> None:
    """Until somebody takes connections there."""
    try:
        async with asyncio.timeout(_START_S):
            while True:
                if process.returncode is not None:
                    raise Permanent(f"{name} ended at once, with code {process.returncode}")
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.1)
                else:
                    writer.close()
                    return
    except TimeoutError:
        raise Permanent(f"{name} did not listen within {_START_S:g} s") from None
