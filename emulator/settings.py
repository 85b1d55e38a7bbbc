"""``/api/settings``, with the hang that makes writing it dangerous."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from emulator.context import Emulator
from emulator.http import Reply, Request, read_json

DEFAULTS: dict[str, Any] = {
    "watchdog_enabled": False,
    "watchdog_idle_enabled": False,
    "watchdog_busy_enabled": False,
    "watchdog_idle_timeout": "15m",
    "watchdog_busy_timeout": "5m",
    "watchdog_interval": "500ms",
    "single_backend": False,
    "max_active_backends": 0,
    "auto_upgrade_backends": False,
    "prefer_development_backends": False,
    "memory_reclaimer_enabled": False,
    "memory_reclaimer_threshold": 0.95,
    "force_eviction_when_busy": False,
    "size_aware_eviction": False,
    "lru_eviction_max_retries": 30,
    "lru_eviction_retry_interval": "1s",
    "threads": 2,
    "context_size": 0,
    "artifact_download_concurrency": 1,
    "vram_budget": "",
    "f16": False,
    "debug": False,
    "enable_tracing": False,
    "tracing_max_items": 1024,
    "tracing_max_body_bytes": 65536,
    "enable_backend_logging": True,
    "cors": False,
    "csrf": False,
    "cors_allow_origins": "",
    "p2p_token": "",
    "p2p_network_id": "",
    "federated": False,
    "galleries": None,
    "backend_galleries": None,
    "autoload_galleries": False,
    "autoload_backend_galleries": False,
    "api_keys": None,
    "open_responses_store_ttl": "0",
    "instance_name": "",
}
"""The keys that matter to us; a real one has more, for its agents and its looks."""

_RESTARTS_WATCHDOG = ("max_active_backends", "watchdog_", "memory_reclaimer_")
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


async def read(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/settings``: the keys stand in it in clear."""
    await reply.json(200, current(app))


async def write(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /api/settings``: a change that restarts the watchdog may never return."""
    changes = read_json(request.body)
    if changes is None:
        await _send_failure(reply, "Failed to parse request body: unexpected EOF")
        return
    problem = _problem(changes)
    if problem is not None:
        await _send_failure(reply, problem)
        return
    restarts = any(key.startswith(_RESTARTS_WATCHDOG) for key in changes)
    machine = app.instance.machine
    runs = machine.watchdog_idle_s is not None or any(
        value is not None for value in (app.options.watchdog_busy_s, app.options.reclaim_over)
    )
    limited_before = machine.model_limit is not None
    if not (restarts and limited_before and not runs):
        _apply(app, changes)
        app.instance.look()
    app.settings.update(changes)
    if restarts and limited_before and not runs:
        if app.limit_set_at_run_time:
            app.instance.freeze()
        await asyncio.Event().wait()
    if restarts and not limited_before and machine.model_limit is not None:
        app.limit_set_at_run_time = True
    await reply.json(200, {"success": True, "message": "Settings updated successfully"})


def current(app: Emulator) -> dict[str, Any]:
    """Every setting as LocalAI would tell it."""
    options = app.options
    idle_s = options.watchdog_idle_s
    from_options: dict[str, Any] = {
        "max_active_backends": options.model_limit or 0,
        "api_keys": list(options.api_keys) or None,
    }
    if idle_s is not None:
        from_options |= {
            "watchdog_enabled": True,
            "watchdog_idle_enabled": True,
            "watchdog_idle_timeout": f"{idle_s:g}s",
        }
    if options.watchdog_busy_s is not None:
        from_options |= {
            "watchdog_enabled": True,
            "watchdog_busy_enabled": True,
            "watchdog_busy_timeout": f"{options.watchdog_busy_s:g}s",
        }
    if options.reclaim_over is not None:
        from_options |= {
            "memory_reclaimer_enabled": True,
            "memory_reclaimer_threshold": options.reclaim_over,
        }
    return {**DEFAULTS, **from_options, **app.settings}


def parse_duration_s(text: str) -> float | None:
    """Seconds of a Go duration such as ``1m20s``; None when it is none."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(text))


def _problem(changes: Mapping[str, Any]) -> str | None:
    for key, value in changes.items():
        if key.endswith(("_timeout", "_interval")) and parse_duration_s(str(value)) is None:
            return f'Invalid {key} format: time: invalid duration "{value}"'
        known = DEFAULTS.get(key)
        if isinstance(known, int) and not isinstance(value, int | float):
            return f"Failed to parse JSON: cannot unmarshal {type(value).__name__} into {key}"
    return None


def _apply(app: Emulator, changes: Mapping[str, Any]) -> None:
    machine = app.instance.machine
    if "max_active_backends" in changes:
        limit = int(changes["max_active_backends"])
        machine.model_limit = limit if limit > 0 else None
    if "watchdog_idle_timeout" in changes and machine.watchdog_idle_s is not None:
        machine.watchdog_idle_s = parse_duration_s(str(changes["watchdog_idle_timeout"]))


async def _send_failure(reply: Reply, message: str) -> None:
    await reply.json(400, {"success": False, "error": message})
