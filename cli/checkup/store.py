"""Judgements on Redis. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cli.checkup.findings import Finding, fail, ok, warn

LEAST_FREE_RATIO = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisLook:
    """What a server says of itself; None: it does not tell."""

    version: str
    appendonly: bool | None
    appendfsync: str | None
    policy: str | None
    used_bytes: int
    max_bytes: int


def judge_redis(look: RedisLook, subject: str = "redis") -> Iterator[Finding]:
    """Version, persistence, what it does when it is full, and how full it is."""
    if _version(look.version) < (6, 2):
        yield fail("redis.version", subject, f"version {look.version}", "take 6.2 or newer")
    else:
        yield ok("redis.version", subject, f"version {look.version}")
    yield from _persistence(look, subject)
    if look.policy is None:
        yield warn(
            "redis.eviction",
            subject,
            "it does not tell what it does when it is full",
            "see that maxmemory-policy is noeviction",
        )
    elif look.policy != "noeviction":
        yield fail(
            "redis.eviction",
            subject,
            f"maxmemory-policy is {look.policy}: jobs and events are thrown away when it is full",
            "set maxmemory-policy noeviction",
        )
    else:
        yield ok("redis.eviction", subject, "nothing is evicted")
    if look.max_bytes and look.used_bytes > (1 - LEAST_FREE_RATIO) * look.max_bytes:
        used = look.used_bytes / look.max_bytes
        yield fail("redis.memory", subject, f"{used:.0%} of its memory is used", "raise maxmemory")


def judge_cluster(replicas: Mapping[str, int], unserved_slots: int) -> Iterator[Finding]:
    """Whether every slot is served, and every node can be replaced."""
    subject = "redis"
    if unserved_slots:
        yield fail(
            "redis.cluster",
            subject,
            f"{unserved_slots} slots are served by no node: their keys are away",
            "see CLUSTER NODES, and bring the node back or give its slots to another",
        )
    alone = [node for node, count in replicas.items() if not count]
    if alone:
        yield warn(
            "redis.cluster",
            subject,
            f"{', '.join(alone)} without a replica: what one of them has is away while it is",
            "give each a replica, for events, forecasts and the lease are on one node each",
        )
    if not unserved_slots and not alone:
        yield ok("redis.cluster", subject, f"{len(replicas)} nodes, each with a replica")


def _persistence(look: RedisLook, subject: str) -> Iterator[Finding]:
    if look.appendonly is None:
        yield warn(
            "redis.persistence",
            subject,
            "it does not tell whether it keeps what it is given",
            "see that appendonly is yes",
        )
    elif not look.appendonly:
        yield fail(
            "redis.persistence",
            subject,
            "appendonly is off: jobs, targets and what was learned are lost with it",
            "set appendonly yes and appendfsync everysec",
        )
    elif look.appendfsync == "no":
        yield warn(
            "redis.persistence",
            subject,
            "appendfsync is no: a crash of the machine loses half a minute",
            "set appendfsync everysec",
        )
    else:
        yield ok("redis.persistence", subject, "what it is given is kept on disk")


def _version(text: str) -> tuple[int, ...]:
    parts = text.split(".")[:2]
    return tuple(int(part) for part in parts if part.isdecimal())
