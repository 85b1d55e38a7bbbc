"""LocalAI's traces, once ``enable_tracing`` is set: of calls, and of what backends did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.backends import BACKEND
from emulator.context import Emulator
from emulator.http import Reply, Request
from emulator.trace_log import MAX_TRACES, stamp
from simulator.localai_effects import RecordKind

WINDOW_HOURS = 24
BUCKETS = 12
_PAGE = 50
_ENDS = {
    RecordKind.LOAD_ENDED: (RecordKind.LOAD_STARTED, "model_load", "Model loaded"),
    RecordKind.REQUEST_ENDED: (RecordKind.REQUEST_STARTED, "llm", ""),
}


async def calls(app: Emulator, request: Request, reply: Reply) -> None:
    """``GET /api/traces``: the newest first."""
    await _page(request, reply, [trace.shown for trace in reversed(app.traces.kept)])


async def summary(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/traces/summary``: counts of a day, in two-hour buckets."""
    now_s, width_s = app.clock.now_s(), WINDOW_HOURS * 3600.0 / BUCKETS
    begin_s = now_s - WINDOW_HOURS * 3600.0
    kept = [trace for trace in app.traces.kept if trace.at_s >= begin_s]
    buckets = []
    for number in range(BUCKETS):
        start_s = begin_s + number * width_s
        within = [trace for trace in kept if start_s <= trace.at_s < start_s + width_s]
        errors = sum(trace.status >= 500 for trace in within)
        buckets.append({"start": stamp(start_s), "count": len(within), "errors": errors})
    slowest = sorted(trace.duration_s for trace in kept)
    p95_ms = int(slowest[int(0.95 * (len(slowest) - 1))] * 1000) if slowest else 0
    await reply.json(
        200,
        {
            "total": len(kept),
            "errors": sum(trace.status >= 500 for trace in kept),
            "p95_ms": p95_ms,
            "window_hours": WINDOW_HOURS,
            "buckets": buckets,
        },
    )


async def backends(app: Emulator, request: Request, reply: Reply) -> None:
    """``GET /api/backend-traces``: loads and answers, as the event log has them."""
    traces: list[dict[str, Any]] = []
    if app.settings.get("enable_tracing") is True:
        traces = _of_backends(app.events.after(0))[-MAX_TRACES:][::-1]
    await _page(request, reply, traces)


def _of_backends(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    begun: dict[tuple[str, str, object], float] = {}
    traces: list[dict[str, Any]] = []
    for event in events:
        identity = event.get("request_id")
        kind = event["kind"]
        begun[kind, event["model"], identity] = event["at_s"]
        if kind not in _ENDS:
            continue
        begin, word, told = _ENDS[kind]
        at_s = begun.pop((begin, event["model"], identity), event["at_s"])
        traces.append(
            {
                "id": str(len(traces) + 1),
                "timestamp": stamp(at_s),
                "duration": int((event["at_s"] - at_s) * 1e9),
                "status": "completed",
                "type": word,
                "model_name": event["model"],
                "backend": BACKEND,
                "summary": told,
                "data": None,
            }
        )
    return traces


async def _page(request: Request, reply: Reply, traces: list[dict[str, Any]]) -> None:
    offset, limit = _number(request.query, "offset", 0), _number(request.query, "limit", _PAGE)
    reply.add_header("X-Total-Count", str(len(traces)))
    reply.add_header("X-Trace-Limit", str(limit))
    reply.add_header("X-Trace-Offset", str(offset))
    await reply.json(200, traces[offset : offset + limit])


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    return int(text) if text.isdigit() else default
