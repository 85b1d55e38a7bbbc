"""LocalAI's own settings that work against a plan, each with what to do about it. Pure.

They are read, never written: ``POST /api/settings`` can stop a LocalAI for good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from adapters.localai_answers import positive
from contracts.node_facts import Access, Capabilities, NodeWarning

MAX_NAMES = 5
"""Pinned models that are named; the rest is counted."""


def model_limit(settings: Mapping[str, Any]) -> int | None:
    """How many models LocalAI keeps at most; None where there is no limit."""
    if settings.get("single_backend") is True:
        return 1
    return positive(settings.get("max_active_backends"))


def without_rights(capabilities: Capabilities) -> tuple[NodeWarning, ...]:
    """What our key may not do there."""
    refused = capabilities.those(Access.REFUSED)
    if not refused:
        return ()
    return (
        NodeWarning(
            setting="api_key",
            value=", ".join(refused),
            problem="LocalAI refuses these calls to our key: models load with their first use, "
            "and what is resident is taken from what was ordered.",
            remedy="Give localai.api_key (or the backend's api_key) the key of an admin.",
        ),
    )


def fighting(settings: Mapping[str, Any], pinned: Collection[str] = ()) -> tuple[NodeWarning, ...]:
    """What is set there that unloads, or keeps, models without asking."""
    return (*_limits(settings), *_watchdogs(settings), *_reclaimers(settings), *_pins(pinned))


def _limits(settings: Mapping[str, Any]) -> Iterator[NodeWarning]:
    limit = positive(settings.get("max_active_backends"))
    if settings.get("single_backend") is True:
        yield NodeWarning(
            setting="single_backend",
            value="true",
            problem="LocalAI keeps one model at a time, however much memory is free.",
            remedy="Start it without LOCALAI_SINGLE_ACTIVE_BACKEND; bytes are counted here.",
        )
    elif limit is not None:
        yield NodeWarning(
            setting="max_active_backends",
            value=str(limit),
            problem=f"LocalAI keeps {limit} models at most and unloads the one used longest ago by "
            "itself, or goes over the limit when all are busy; the plan keeps to it.",
            remedy="Start it without LOCALAI_MAX_ACTIVE_BACKENDS; bytes are counted here.",
        )


def _watchdogs(settings: Mapping[str, Any]) -> Iterator[NodeWarning]:
    if settings.get("watchdog_idle_enabled") is True:
        after = settings.get("watchdog_idle_timeout", "")
        yield NodeWarning(
            setting="watchdog_idle",
            value=str(after),
            problem=f"LocalAI unloads a model that was idle for {after}, also one that is expected "
            "to be used next.",
            remedy="Start it without LOCALAI_WATCHDOG_IDLE; scheduler.policy idle-timeout does the "
            "same where it is wanted.",
        )
    if settings.get("watchdog_busy_enabled") is True:
        after = settings.get("watchdog_busy_timeout", "")
        yield NodeWarning(
            setting="watchdog_busy",
            value=str(after),
            problem=f"LocalAI ends a model that works for {after}, and its callers get an error.",
            remedy="Start it without LOCALAI_WATCHDOG_BUSY, or with a "
            "LOCALAI_WATCHDOG_BUSY_TIMEOUT above the longest answer; time limits are kept here.",
        )


def _reclaimers(settings: Mapping[str, Any]) -> Iterator[NodeWarning]:
    if settings.get("memory_reclaimer_enabled") is True:
        over = settings.get("memory_reclaimer_threshold", "")
        yield NodeWarning(
            setting="memory_reclaimer",
            value=str(over),
            problem=f"LocalAI unloads models one by one while more than {over} of the memory is "
            "used, and a load meanwhile fails.",
            remedy="Start it without LOCALAI_MEMORY_RECLAIMER; memory.reserve_ratio keeps room "
            "free.",
        )
    if settings.get("force_eviction_when_busy") is True:
        yield NodeWarning(
            setting="force_eviction_when_busy",
            value="true",
            problem="LocalAI ends a busy model to make room, and its callers get an error.",
            remedy="Start it without LOCALAI_FORCE_EVICTION_WHEN_BUSY.",
        )


def _pins(pinned: Collection[str]) -> Iterator[NodeWarning]:
    if pinned:
        names = sorted(pinned)
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        yield NodeWarning(
            setting="pinned",
            value=", ".join(names[:MAX_NAMES]) + more,
            problem="These are pinned in LocalAI alone: it keeps them, while the plan may unload "
            "them.",
            remedy="Pin them here as well (models.<name>.pinned, or the dashboard), or unpin them "
            "there.",
        )
