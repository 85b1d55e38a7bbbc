"""What each series may do: growth that matters, and what fills up by design to a bound. Pure.

Redis' own lifetimes (TTL) are real seconds however fast the stack's clock is, so in a run of
minutes nothing expires that is kept for a day: what is kept for each job is bounded by the
number of jobs of the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.soak.trends import Rule

KIB, MIB = 1024.0, 1024.0**2
_WIDTHS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a run did: bounds follow from it.

    Attributes
    ----------
    models : int
        Models that LocalAI has.
    jobs : int
        Background jobs, lines of batches and chores that were queued.
    batches : int
        Batches that were started.
    """

    models: int
    jobs: int
    batches: int


_STREAMS: dict[str, tuple[int, float]] = {
    # Entries, and bytes that one of them takes at most on average.
    "headstart:events": (200_000, 1.0 * KIB),
    "headstart:decisions": (20_000, 4.0 * KIB),
    # Mailboxes are bounded in bytes too: 16 MiB.
    "headstart:to-controller": (10_000, 1.7 * KIB),
    "headstart:to-gateways": (10_000, 1.7 * KIB),
    "headstart:forecasts": (1_000, 4.0 * KIB),
}
"""The bounds of docs/architecture.md, by stream (``forecasts``: its stream of updates)."""

_PER_JOB = re.compile(r"headstart:job-\w+|rq:(job|results|executions|finished|failed)")


def rule_of(name: str, facts: Facts) -> Rule:
    """The rule of a series by its name (``part.what``, the store's with the key's prefix)."""
    part, _, what = name.partition(".")
    if part == "redis" and "." in what:
        kind, _, prefix = what.partition(".")
        return _REDIS[kind](prefix, facts)
    if name in _OWN:
        return _OWN[name]
    return _ANY.get(what, Rule(floor_per_day=2.0))


def _stream_length(prefix: str, facts: Facts) -> Rule:
    if prefix not in _STREAMS:
        return Rule(floor_per_day=10.0)
    entries = _STREAMS[prefix][0]
    # ``MAXLEN ~`` drops whole nodes of a hundred entries.
    return Rule(bound=entries + 200.0, why=f"{entries:,} entries (MAXLEN ~)", slack=0.0)


def _keys(prefix: str, facts: Facts) -> Rule:
    if _PER_JOB.match(prefix):
        return Rule(bound=float(facts.jobs), why="one for each job, kept for a real day")
    if prefix == "headstart:history":
        # A name that turns out to be made up may have rings for the moment until LocalAI says so.
        bound = float(_WIDTHS * (facts.models + 2) + 3)
        return Rule(bound=bound, why="four rings a model, of two names for a moment, three for all")
    return Rule(floor_per_day=2.0)


def _bytes(prefix: str, facts: Facts) -> Rule:
    if prefix in _STREAMS:
        entries, each = _STREAMS[prefix]
        return Rule(bound=entries * each, why=f"{entries:,} entries of {each:,.0f} bytes at most")
    if _PER_JOB.match(prefix):
        return Rule(bound=facts.jobs * 4.0 * KIB, why="4 KiB a job, kept for a real day")
    if prefix == "headstart:history":
        bound = (facts.models + 1) * 128.0 * KIB
        return Rule(bound=bound, why="rings of 47 KB a model, which the server keeps twice as long")
    if prefix == "headstart:profiles":
        bound = facts.models * 8.0 * KIB
        return Rule(bound=bound, why="what was measured of each model: the newest of each series")
    if prefix == "headstart:world":
        return Rule(bound=facts.models * 4.0 * KIB, why="one snapshot of all models")
    if prefix == "headstart:batches":
        return Rule(bound=(facts.batches + 1) * 4.0 * KIB, why="a record a batch, kept for a month")
    return Rule(floor_per_day=16.0 * KIB)


_REDIS: dict[str, Callable[[str, Facts], Rule]] = {
    "stream": _stream_length,
    "keys": _keys,
    "bytes": _bytes,
}

_ANY: dict[str, Rule] = {
    "rss_bytes": Rule(floor_per_day=2.0 * MIB),
    "uss_bytes": Rule(floor_per_day=2.0 * MIB),
    # Callers' connections stay open for a while, so their number follows the wave. What is left
    # when all have gone is held against the beginning: ``left_open``.
    "fds": Rule(floor_per_day=20.0),
    "threads": Rule(floor_per_day=1.0),
    "metric_lines": Rule(floor_per_day=20.0),
}

POOL = 16.0
"""File descriptors more than at the start that pools may keep when nobody asks any more."""

_WEEK = Rule(floor_per_day=10.0 * MIB)
"""The control API has rings of a week by hours, of each model and class: 4 MiB a day until they
are full, beside the usual 5 %."""

_SERVER = Rule(bound=300.0 * MIB, why="maxmemory of 256 MiB; the event log is most of it")
_LOG_OF_TESTS = Rule(bound=400.0 * MIB, why="test equipment: its log of 100,000 events in memory")
_OWN: dict[str, Rule] = {
    "control.rss_bytes": _WEEK,
    "control.uss_bytes": _WEEK,
    "redis.rss_bytes": _SERVER,
    "redis.uss_bytes": _SERVER,
    "redis.used_memory": Rule(bound=256.0 * MIB, why="maxmemory; the event log is most of it"),
    "redis.dataset": Rule(bound=256.0 * MIB, why="maxmemory; the event log is most of it"),
    "redis.fds": Rule(bound=6 * 64.0 + 32.0, why="a pool of at most 64 connections a process"),
    "redis.clients": Rule(bound=6 * 64.0, why="a pool of at most 64 connections a process"),
    "emulator.rss_bytes": _LOG_OF_TESTS,
    "emulator.uss_bytes": _LOG_OF_TESTS,
    "disk.redis_bytes": Rule(
        bound=1024.0 * MIB, why="append-only file, rewritten when it has doubled"
    ),
    "disk.logs_bytes": Rule(bound=7 * 2 * 11.0 * MIB, why="two files a process, 10 MiB each"),
    "disk.files_bytes": Rule(bound=10 * 1024.0 * MIB, why="files_max_gb, kept for a month"),
    "disk.other_bytes": Rule(floor_per_day=1.0 * MIB),
}
