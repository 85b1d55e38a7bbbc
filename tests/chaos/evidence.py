"""Collects what everybody wrote down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from adapters.redis_stores import RedisSnapshotStore
from contracts.errors import HeadstartError
from contracts.events import (
    AnyEvent,
    FirstTokenSent,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestReceived,
)
from tests.chaos.records import Did, Gauge, Told
from tests.chaos.site import Site

MAX_RSS_MB = 500.0
MAX_FILES = 400.0
STREAMS = {
    "headstart:events": 200_000.0,
    "headstart:decisions": 20_000.0,
    "headstart:to-controller": 10_000.0,
    "headstart:to-gateways": 10_000.0,
    "headstart:forecasts:updates": 1000.0,
}
"""Each with its bound; trimming is by whole nodes of a stream."""

_SLACK = 1.2
_AT_ONCE = 2000

_WHAT: dict[type[Any], str] = {
    RequestReceived: "received",
    RequestDispatched: "dispatched",
    FirstTokenSent: "first",
    RequestCompleted: "completed",
    RequestFailed: "failed",
    RequestCancelled: "cancelled",
}


async def read_told(site: Site) -> list[Told]:
    """All that gateways told of requests."""
    client = connect(site.redis.url)
    try:
        log = RedisEventLog(client)
        found: list[Told] = []
        after = "0"
        while entries := await log.read_after(after, count=_AT_ONCE):
            found += filter(None, (_told(entry.value) for entry in entries))
            after = entries[-1].entry_id
        return found
    finally:
        await client.aclose()


def read_did(folder: Path, nodes: Sequence[str]) -> list[Did]:
    """All that LocalAIs did; a line that a kill cut in two is left out."""
    found = []
    for node in nodes:
        life, last_seq = 0, 0
        path = folder / f"{node}.jsonl"
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            try:
                event = json.loads(line)
                seq = int(event["seq"])
            except (ValueError, KeyError, TypeError):
                continue
            if seq <= last_seq:
                life += 1
            last_seq = seq
            found.append(
                Did(
                    node=node,
                    life=life,
                    at_s=event["at_s"],
                    what=event["kind"],
                    model=event["model"],
                    request_id=event.get("request_id") or "",
                    cause=event.get("cause") or "",
                )
            )
    return found


def read_logs(folder: Path) -> dict[str, str]:
    """What processes said."""
    return {file.name: file.read_text(errors="replace") for file in folder.glob("*.log*")}


async def read_gauges(site: Site) -> dict[str, tuple[float, float]]:
    """What must not grow, with its bound."""
    found: dict[str, tuple[float, float]] = {}
    site.look()
    for pid, role in site.lives.items():
        try:
            process = psutil.Process(pid)
            rss_mb, files = process.memory_info().rss / 1024**2, process.num_fds()
        except psutil.Error:
            continue
        found[f"rss_mb {role}"] = (rss_mb, MAX_RSS_MB)
        found[f"files {role}"] = (float(files), MAX_FILES)
    client = connect(site.redis.url)
    try:
        for key, bound in STREAMS.items():
            found[f"entries {key}"] = (float(await client.xlen(key)), bound * _SLACK)
        found["redis clients"] = (float((await client.info("clients"))["connected_clients"]), 500.0)
        world = await RedisSnapshotStore(client).world()
        if world is not None:
            found["open requests in the world"] = (float(len(world.requests)), 0.0)
    except (HeadstartError, OSError):
        pass
    finally:
        await client.aclose()
    for gateway, url in site.gateways.items():
        for name, value in (await _metrics(url + "/headstart/metrics")).items():
            if name in ("headstart_gateway_in_flight", "headstart_gateway_waiting"):
                found[f"{name} {gateway}"] = (value, 0.0)
    return found


def gauges(
    early: dict[str, tuple[float, float]], late: dict[str, tuple[float, float]]
) -> list[Gauge]:
    """Early and late values side by side."""
    return [
        Gauge(name=name, early=early.get(name, (0.0, 0.0))[0], late=value, bound=bound)
        for name, (value, bound) in sorted(late.items())
    ]


async def _metrics(url: str) -> dict[str, float]:
    """Each metric of a page, summed over its labels."""
    found: dict[str, float] = {}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10.0)) as session,
            session.get(url) as answer,
        ):
            text = await answer.text()
    except (aiohttp.ClientError, OSError):
        return found
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found


def _told(event: AnyEvent) -> Told | None:
    what = _WHAT.get(type(event))
    if what is None:
        return None
    detail = getattr(event, "error", None) or getattr(event, "reason", None) or ""
    phase = getattr(event, "phase", None)
    return Told(
        event_id=event.event_id,
        source=event.source,
        at_s=event.at_s,
        request_id=str(event.request_id),  # type: ignore[union-attr] # these have one
        what=what,
        status=getattr(event, "status", None),
        detail=f"{detail} {phase or ''}".strip(),
    )
