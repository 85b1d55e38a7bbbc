"""Looks at every server that keeps our keys: one, all of a cluster, and the one for jobs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import redis.asyncio

from adapters.redis_client import cluster_layout, connect, each_server, mapped_errors
from adapters.settings import Settings
from cli.checkup import machine, store
from cli.checkup.asking import median_s
from cli.checkup.findings import Finding, fail, ok
from contracts.errors import HeadstartError


async def look_at_redis(settings: Settings) -> list[Finding]:
    """All of them."""
    if settings.redis_url is None:
        return [ok("redis", "redis", "`headstart up` runs a server of its own")]
    found = await _look(settings.redis_url, "redis", "start it, or set redis.url")
    if settings.jobs_url is not None and settings.jobs_url != settings.redis_url:
        found += await _look(settings.jobs_url, "jobs", "start it, or set redis.jobs_url")
    return found


async def _look(url: str, subject: str, remedy: str) -> list[Finding]:
    client = connect(url)
    try:
        with mapped_errors("look at Redis"):
            return [one async for one in _ask(client, subject)]
    except HeadstartError as error:
        return [fail("redis", subject, str(error), remedy)]
    finally:
        await client.aclose()


async def _ask(client: redis.asyncio.Redis, subject: str) -> AsyncIterator[Finding]:
    layout = await cluster_layout(client)
    if layout is not None:
        for finding in store.judge_cluster(layout.replicas, layout.unserved_slots):
            yield finding
    for name, server in (await each_server(client)).items():
        async for finding in _ask_server(server, f"{subject} {name}".rstrip()):
            yield finding


async def _ask_server(client: redis.asyncio.Redis, subject: str) -> AsyncIterator[Finding]:
    info = await client.info()
    began_s = time.time()
    seconds, micros = await client.time()
    took_s = time.time() - began_s
    try:
        config = {
            **await client.config_get("append*"),
            **await client.config_get("maxmemory-policy"),
        }
    except redis.exceptions.ResponseError:
        config = {}  # a server that others run may not tell
    told = {_text(name): _text(value) for name, value in config.items()}
    look = store.RedisLook(
        version=_text(info.get("redis_version", "")),
        appendonly=None if "appendonly" not in told else told["appendonly"] == "yes",
        appendfsync=told.get("appendfsync"),
        policy=told.get("maxmemory-policy"),
        used_bytes=int(info.get("used_memory", 0)),
        max_bytes=int(info.get("maxmemory", 0)),
    )
    for finding in store.judge_redis(look, subject):
        yield finding
    ahead_s = seconds + micros / 1e6 - (began_s + took_s / 2)
    yield machine.judge_clock(subject, ahead_s, within_s=took_s)
    yield machine.judge_latency(subject, await median_s(client.ping))


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
