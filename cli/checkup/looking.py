"""Looks at a deployment: every look ends in findings, and none of them keeps another from it."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path

import aiohttp

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from adapters.model_files import read_folder
from adapters.probes.metrics import Metrics
from adapters.probes.registry import ProbeOptions, probe_for
from adapters.redis_client import connect
from adapters.redis_predictors import RedisPredictorRoster
from adapters.settings import Settings
from cli.checkup import keys, machine, models, names, predictors
from cli.checkup.asking import median_s
from cli.checkup.findings import Finding, fail, ok, warn
from cli.checkup.instances import judge_instances
from cli.checkup.redis_servers import look_at_redis
from contracts.config import NodeConfig
from contracts.errors import HeadstartError, Invalid
from contracts.ids import ModelId, NodeId

_LIMIT_S = 10.0
BACKUPS = "backups"
"""Folder of ``data_dir`` that ``headstart backup`` writes to."""


async def look(settings: Settings, *, warm_up: tuple[str, ...] | None) -> list[Finding]:
    """Everything. ``warm_up``: models to load and ask; none named: every one; None: no model."""
    found = [*_configuration(settings), *_machine(settings), *_keys(settings), *_files(settings)]
    found += await look_at_redis(settings)
    found += await _predictors(settings)
    found += await _services(settings)
    nodes = settings.gateway_config().nodes
    found += judge_instances(nodes, settings.controller_config().discovery.most)
    listed: dict[NodeId, Sequence[ModelId]] = {}
    for node in nodes:
        found += [one async for one in _node(node, warm_up, listed)]
    if nodes and len(listed) == len(nodes):  # one that does not answer may have what is missed
        everywhere = {model for models_of_one in listed.values() for model in models_of_one}
        found += names.judge_names(names.names_said(settings.document), everywhere)
    return found


def _configuration(settings: Settings) -> Iterator[Finding]:
    where = str(settings.file or "no file, defaults and the environment")
    yield ok("config", "configuration", where)
    for line in settings.notices:
        yield warn("config", "configuration", line, "see docs/reference/configuration.md")
    if not settings.active_by_default:
        yield warn(
            "mode",
            "scheduler",
            "the mode is observe: forecasts and decisions are recorded, nothing is ordered",
            "set scheduler.mode active once the decisions look right",
        )


def _machine(settings: Settings) -> Iterator[Finding]:
    reading = probe_for(ProbeOptions(metrics=Metrics())).read(time.time())
    yield from machine.judge_gpus(reading)
    yield machine.judge_reserve(settings.document.memory.reserve_ratio)
    for subject, path in (("state", settings.data_dir), *_folders(settings)):
        try:
            yield from machine.judge_disk(_disk(subject, Path(path)))
        except OSError as error:
            what = f"{path} cannot be looked at: {error.strerror}"
            yield fail("disk.room", subject, what, "make it, or name another")


def _folders(settings: Settings) -> Iterator[tuple[str, Path]]:
    for folder in settings.model_folders:
        yield "models", Path(folder)


def _disk(subject: str, path: Path) -> machine.Disk:
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    return machine.Disk(
        subject=subject,
        path=str(path),
        free_bytes=shutil.disk_usage(there).free,
        rotates=_rotates(there.stat().st_dev),
    )


def _rotates(device: int) -> bool | None:
    """As the kernel tells of the disk that a file system is on; None: it does not."""
    place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    for folder in (place, place.parent):
        try:
            return (folder / "queue" / "rotational").read_text().strip() == "1"
        except OSError:
            continue
    return None


def _keys(settings: Settings) -> Iterator[Finding]:
    control, gateway = settings.control_config(), settings.gateway_config()
    yield keys.judge_admin_key(control.admin_key, control.host)
    named = len(gateway.callers)
    yield from keys.judge_gateway_keys(gateway.keys, gateway.host, named=named)


def _files(settings: Settings) -> Iterator[Finding]:
    budget = settings.document.memory.gpu_budget_mb
    usable = None if budget is None else budget * 1024**2
    count = 0
    for subject, folder in _folders(settings):
        try:
            reading = read_folder(folder)
        except Invalid as error:
            yield fail("models.folder", subject, str(error), "mount LocalAI's models folder")
            continue
        count += len(reading.models)
        for note in reading.notes:
            yield warn("models.folder", subject, note, "see LocalAI's documentation of model files")
        for model in reading.models:
            yield from models.judge_model(model, usable_bytes=usable)
    if count:
        yield models.judge_backup(count, _newest_age_s(settings.data_dir / BACKUPS))


def _newest_age_s(folder: Path) -> float | None:
    files = [path.stat().st_mtime for path in folder.glob("*.tar.gz")] if folder.is_dir() else []
    return time.time() - max(files) if files else None


async def _predictors(settings: Settings) -> list[Finding]:
    """Who publishes forecasts. That Redis is away was told already."""
    if settings.redis_url is None:
        return []
    client = connect(settings.redis_url)
    try:
        beats = await RedisPredictorRoster(client).all()
    except HeadstartError:
        return []
    finally:
        await client.aclose()
    now_s = ScaledClock.from_environment(os.environ).now_s()
    return list(predictors.judge_predictors(beats, now_s))


async def _services(settings: Settings) -> list[Finding]:
    gateway, control = settings.gateway_config(), settings.control_config()
    found = []
    async with _session() as session:
        for service, port, path in (
            ("gateway", gateway.port, "/headstart/healthz"),
            ("control", control.port, "/healthz"),
        ):
            is_ours = False
            try:
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    is_ours = answer.status == 200
            except (aiohttp.ClientError, OSError, TimeoutError):
                pass
            is_taken = is_ours or _is_taken(port)
            found.append(machine.judge_port(service, port, is_taken=is_taken, is_ours=is_ours))
    return found


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@asynccontextmanager
async def _session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_LIMIT_S)) as session:
        yield session


async def _node(
    node: NodeConfig, warm_up: tuple[str, ...] | None, listed_by: dict[NodeId, Sequence[ModelId]]
) -> AsyncIterator[Finding]:
    """One LocalAI; what it lists is put into ``listed_by``."""
    name = str(node.node)
    try:
        for finding in await _ways(name, node.url):
            yield finding
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        what = f"{node.url} does not answer ({str(error) or type(error).__name__})"
        yield fail("localai", name, what, "start LocalAI, or set localai.url")
        return
    server = LocalAIServer(node, ScaledClock())
    try:
        facts, report = await server.facts(), await server.report()
        for finding in models.judge_node(name, facts, report.model_limit):
            yield finding
        listed = listed_by[node.node] = await server.models()
        yield ok("localai.models", name, f"{len(listed)} models can be asked for")
        if warm_up is not None:
            for model in _chosen(warm_up, listed):
                yield models.judge_warm_up(await _warmed(server, model))
    except HeadstartError as error:
        yield fail("localai", name, str(error), "see LocalAI's log")
    finally:
        await server.close()


def _chosen(wanted: tuple[str, ...], listed: Iterable[ModelId]) -> Iterator[ModelId]:
    for model in listed:
        if not wanted or str(model) in wanted:
            yield model


async def _ways(name: str, url: str) -> list[Finding]:
    """Reached at all, how far away, and by which clock."""
    async with _session() as session:

        async def ping() -> str:
            async with session.get(f"{url}/readyz") as answer:
                return answer.headers.get("Date", "")

        await ping()
        taken_s = await median_s(ping)
        began_s = time.time()
        date = await ping()
        took_s = time.time() - began_s
    found = [machine.judge_latency(name, taken_s)]
    try:
        told_s = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return found
    # The header has whole seconds: half of one is added, and half is not known.
    ahead_s = told_s + 0.5 - (began_s + took_s / 2)
    return [*found, machine.judge_clock(name, ahead_s, within_s=0.5 + took_s)]


async def _warmed(server: LocalAIServer, model: ModelId) -> models.WarmUp:
    began_s = time.monotonic()
    error = None
    try:
        asked = await server.warm(model, thorough=True)
        if not asked:
            await server.load(model)
        kind = "asked" if asked else "loaded, there is no small request of its kind"
    except HeadstartError as failure:
        kind, error = "asked", str(failure)
    took_s = time.monotonic() - began_s
    return models.WarmUp(model=str(model), modality=kind, took_s=took_s, error=error)
