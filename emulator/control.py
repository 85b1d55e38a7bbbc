"""The emulator's own paths: its event log, its state, its faults."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from contracts.errors import Invalid
from emulator.context import Emulator
from emulator.faults import Fault, parse_fault
from emulator.http import Reply, Request

MAX_FAULTS = 1000


async def events(app: Emulator, request: Request, reply: Reply) -> None:
    """``GET /emulator/events?after=N&limit=M``."""
    after = _integer(request.query.get("after"), 0)
    limit = _integer(request.query.get("limit"), 10_000)
    listed = app.events.after(after, limit=limit)
    newest = listed[-1]["seq"] if listed else after
    await reply.json(200, {"events": listed, "next": newest, "dropped": app.events.dropped})


async def state(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /emulator/state``: the truth, as opposed to what LocalAI's API tells."""
    machine = app.instance.machine
    cluster = machine.cluster
    now_s = app.instance.now_s()
    models: dict[str, Any] = {}
    for model in app.catalog.models():
        models[model.name] = {
            "residency": cluster.residency(model.name),
            "ghost": machine.is_ghost(model.name),
            "in_flight": cluster.in_flight(model.name),
            "waiting": cluster.waiting(model.name),
            "footprint_bytes": model.footprint_bytes,
            "pinned": machine.is_pinned(model.name),
            "cooldown_left_s": round(machine.cooldown_left_s(model.name, now_s), 3),
        }
    await reply.json(
        200,
        {
            "at_s": app.clock.now_s(),
            "time_scale": app.clock.scale,
            "capacity_bytes": cluster.capacity_bytes,
            "used_bytes": cluster.used_bytes,
            "others_bytes": cluster.others_bytes,
            "model_limit": machine.model_limit,
            "last_seq": app.events.last_seq,
            "removed_files": list(app.catalog.removed_files),
            "models": models,
        },
    )


async def list_faults(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /emulator/faults``: those that are armed now."""
    await reply.json(200, {"faults": [_shown(fault) for fault in app.faults.armed()]})


async def add_faults(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /emulator/faults``: one fault or a list."""
    try:
        value = msgspec.json.decode(request.body)
        listed = value if isinstance(value, list) else [value]
        faults = [parse_fault(item) for item in listed]
    except (msgspec.DecodeError, Invalid) as error:
        await reply.json(400, {"error": str(error)})
        return
    if len(app.faults.armed()) + len(faults) > MAX_FAULTS:
        await reply.json(400, {"error": f"at most {MAX_FAULTS} faults can be armed; clear some"})
        return
    for fault in faults:
        app.script.add(fault)
    await reply.json(200, {"faults": [_shown(fault) for fault in app.faults.armed()]})


async def clear_faults(app: Emulator, _request: Request, reply: Reply) -> None:
    """``DELETE /emulator/faults``."""
    app.script.clear()
    await reply.json(200, {"faults": []})


def _shown(fault: Fault) -> dict[str, Any]:
    plain = asdict(Fault(kind=fault.kind))
    return {key: value for key, value in asdict(fault).items() if value != plain[key]} | {
        "kind": fault.kind
    }


def _integer(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdigit() else default
