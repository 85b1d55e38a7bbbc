"""What LocalAI tells of memory: ``/api/resources`` and its own estimate of a model's need."""

from __future__ import annotations

from typing import Any

from emulator.context import Emulator
from emulator.errors import send_echo_error, send_text_error
from emulator.http import Reply, Request, read_json

RAM_BYTES = 64 * 1024**3
"""Host memory of an emulated machine without a GPU."""

KV_BYTES_PER_TOKEN = 32 * 1024
"""How much an estimate grows with the context."""


async def resources(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/resources``: a GPU where the emulator has a capacity, else host memory."""
    cluster = app.instance.machine.cluster
    held = cluster.used_bytes + cluster.others_bytes
    total = RAM_BYTES if cluster.capacity_bytes is None else cluster.capacity_bytes
    used = min(held, total)
    percent = 100.0 * used / total if total else 0.0
    answer: dict[str, Any] = {
        "aggregate": {
            "total_memory": total,
            "used_memory": used,
            "free_memory": total - used,
            "usage_percent": percent,
            "gpu_count": 0 if cluster.capacity_bytes is None else 1,
        },
        "available": True,
        "gpus": None,
        "ram": None,
        "reclaimer_enabled": app.options.reclaim_over is not None,
        "reclaimer_threshold": app.options.reclaim_over or 0.95,
        "storage_size": 854,
        "type": "ram" if cluster.capacity_bytes is None else "gpu",
        "watchdog_interval": "2s",
    }
    if cluster.capacity_bytes is None:
        answer["ram"] = {
            "total": total,
            "used": used,
            "free": total - used,
            "available": total - used,
            "usage_percent": percent,
        }
    else:
        gpu = {"index": 0, "name": "Emulated GPU", "vendor": "nvidia", "usage_percent": percent}
        gpu |= {"total_vram": total, "used_vram": used, "free_vram": total - used}
        answer["gpus"] = [gpu]
    await reply.json(200, answer)


async def vram_estimate(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /api/models/vram-estimate``."""
    if request.content_type != "application/json":
        await send_echo_error(reply, 415, "Unsupported Media Type")
        return
    body = read_json(request.body) or {}
    name = body.get("model")
    if not isinstance(name, str) or not name:
        await send_text_error(reply, 400, "model name is required")
        return
    entry = app.catalog.get(name)
    if entry is None:
        await send_text_error(reply, 404, "model configuration not found")
        return
    model = entry.model
    if model is None or not model.weights:
        await reply.json(200, {"message": "no weight files found for estimation"})
        return
    asked = body.get("context_size")
    context = asked if isinstance(asked, int) and asked > 0 else model.context_size
    vram_bytes = model.footprint_bytes + (context - model.context_size) * KV_BYTES_PER_TOKEN
    size_bytes = model.footprint_bytes * 9 // 10
    await reply.json(
        200,
        {
            "size_bytes": size_bytes,
            "size_display": display(size_bytes),
            "context_length": context,
            "vram_bytes": vram_bytes,
            "vram_display": display(vram_bytes),
            "model_max_context": max(context, 2 * model.context_size),
        },
    )


def display(size_bytes: int) -> str:
    """Bytes as LocalAI shows them to people."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000.0:
            return f"{size:.1f} {unit}"
        size /= 1000.0
    return f"{size:.1f} TB"
