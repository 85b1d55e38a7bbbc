"""``/metrics`` and ``/api/usage``: calls by method and route, tokens by model."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from typing import Any

from emulator.context import Emulator
from emulator.http import GZIP_OVER_BYTES, Reply, Request

LOCAL_USER = "00000000-0000-4000-8000-000000000001"


async def metrics(app: Emulator, request: Request, reply: Reply) -> None:
    """``GET /metrics``."""
    lines = app.call_times.lines()
    lines.append("# HELP localai_billed_requests_total Cumulative billed requests")
    lines.append("# TYPE localai_billed_requests_total counter")
    for model, counted in sorted(app.usage.items()):
        labels = f'served_model="{model}",user="local"'
        lines.append(f"localai_billed_requests_total{{{labels}}} {counted.requests}")
    lines.append("# HELP localai_tokens_total Cumulative tokens accounted")
    lines.append("# TYPE localai_tokens_total counter")
    for model, counted in sorted(app.usage.items()):
        counts = (("prompt", counted.prompt_tokens), ("completion", counted.completion_tokens))
        for kind, count in counts:
            labels = f'kind="{kind}",served_model="{model}",user="local"'
            lines.append(f"localai_tokens_total{{{labels}}} {count}")
    lines.append("# HELP process_start_time_seconds Start time of the process since unix epoch.")
    lines.append("# TYPE process_start_time_seconds gauge")
    lines.append(f"process_start_time_seconds {app.instance.began_at_s:.6f}")
    text = "\n".join(lines) + "\n"
    body = text.encode()
    if "gzip" in request.headers.get("accept-encoding", ""):
        # LocalAI's library compresses them, and then LocalAI does so again, with one header.
        body = gzip.compress(body, compresslevel=1)
        if len(body) <= GZIP_OVER_BYTES:
            reply.add_header("Content-Encoding", "gzip")
    await reply.whole(200, body, "text/plain; version=0.0.4; charset=utf-8")


async def usage(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/usage``: tokens and requests by day and model."""
    day = f"{datetime.fromtimestamp(app.clock.now_s(), tz=UTC):%Y-%m-%d}"
    rows: list[dict[str, Any]] = []
    totals = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "request_count": 0}
    for model, counted in app.usage.items():
        row = {
            "prompt_tokens": counted.prompt_tokens,
            "completion_tokens": counted.completion_tokens,
            "total_tokens": counted.prompt_tokens + counted.completion_tokens,
            "request_count": counted.requests,
        }
        totals = {key: totals[key] + row[key] for key in totals}
        rows.append(
            {"bucket": day, "model": model, "user_id": LOCAL_USER, "user_name": "local", **row}
        )
    viewer = {"id": LOCAL_USER, "name": "local", "provider": "local", "role": "admin"}
    await reply.json(200, {"totals": totals, "usage": rows, "viewer": viewer})
