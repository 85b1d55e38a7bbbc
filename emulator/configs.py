"""Model configurations over HTTP: read, import, patch, pin, disable, delete."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

from contracts.errors import Invalid
from emulator.catalog import Entry, read_document
from emulator.context import Emulator
from emulator.errors import send_text_error
from emulator.http import Reply, Request, read_json
from emulator.instance import Refusal
from emulator.models import load_yaml
from simulator.cluster import ModelSpec
from simulator.localai_effects import StopCause

NOT_CONFIGURED = "model configuration not found"


async def read_config(app: Emulator, request: Request, reply: Reply) -> None:
    """``GET /api/models/config-json/{name}``: known keys and their defaults."""
    entry = app.catalog.get(request.params["name"])
    if entry is None:
        await send_text_error(reply, 404, NOT_CONFIGURED)
        return
    await reply.json(200, _effective(entry))


async def patch_config(app: Emulator, request: Request, reply: Reply) -> None:
    """``PATCH`` of the same path: merges, and stops the model whatever was changed."""
    name = request.params["name"]
    changes = read_json(request.body)
    if name not in app.catalog:
        await send_text_error(reply, 404, NOT_CONFIGURED)
        return
    if changes is None:
        await send_text_error(reply, 400, "invalid JSON: unexpected EOF")
        return
    if changes.get("name", name) != name:
        reason = f'PATCH cannot rename model "{name}" to "{changes["name"]}"'
        reason += "; use the model edit endpoint"
        await send_text_error(reply, 400, f"invalid model configuration: {reason}")
        return
    await _stop(app, name, StopCause.CONFIG)
    try:
        entry = app.catalog.patch(name, changes)
    except Invalid as error:
        await send_text_error(reply, 400, f"invalid model configuration: {error}")
        return
    adopt(app, entry)
    await reply.json(
        200,
        {
            "config_revision": _revision(entry.text),
            "message": f"Model '{name}' updated successfully",
            "pending_cleanup": 0,
            "success": True,
        },
    )


async def read_raw(app: Emulator, request: Request, reply: Reply) -> None:
    """``GET /api/models/edit/{name}``: the file as it is, unknown keys included."""
    entry = app.catalog.get(request.params["name"])
    if entry is None:
        await send_text_error(reply, 404, NOT_CONFIGURED)
        return
    await reply.json(200, {"config": entry.text, "name": entry.name})


async def import_model(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /models/import``: overwrites silently; a loaded model keeps running."""
    try:
        document = read_document(request.body, request.content_type)
        name = document.get("name")
        if isinstance(name, str) and "/" in name and ".." not in name:
            reason = f"open /models/{name}.yaml: no such file or directory"
            await _send_failure(reply, 500, f"Failed to write configuration file: {reason}")
            return
        entry = app.catalog.put(document)
    except Invalid as error:
        await _send_failure(reply, 400, str(error))
        return
    adopt(app, entry)
    message = "Model configuration created successfully"
    await reply.json(200, _written(message, filename=f"{entry.name}.yaml"))


async def edit_model(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /models/edit/{name}``: the whole file anew; stops the model."""
    name = request.params["name"]
    if name not in app.catalog:
        await _send_failure(reply, 404, NOT_CONFIGURED)
        return
    try:
        document = read_document(request.body, request.content_type)
        await _stop(app, name, StopCause.CONFIG)
        entry = app.catalog.put(document, text=request.body.decode("utf-8"))
    except Invalid as error:
        await _send_failure(reply, 400, str(error))
        return
    adopt(app, entry)
    message = f"Model '{name}' updated successfully. "
    message += "Model has been reloaded with new configuration."
    written = _written(message, filename=f"/models/{name}.yaml")
    revision = {"config": _effective(entry), "config_revision": _revision(entry.text)}
    await reply.json(200, {**written, **revision})


async def reload(_app: Emulator, _request: Request, reply: Reply) -> None:
    """``POST /models/reload``."""
    message = "Model configurations reloaded successfully"
    await reply.json(200, _written(message))


async def delete_model(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /models/delete/{name}``: answered with a job."""
    await _delete(app, request.params["name"])
    job = str(uuid.uuid4())
    await reply.json(200, {"uuid": job, "status": f"{request.base_url}/models/jobs/{job}"})


async def delete_model_ui(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /api/models/delete/{name}``."""
    await _delete(app, request.params["id"])
    await reply.json(200, {"jobID": str(uuid.uuid4()), "message": "Deletion started"})


async def toggle_pinned(app: Emulator, request: Request, reply: Reply) -> None:
    """``PUT /models/toggle-pinned/{name}/{action}``: keeps the model loaded."""
    name, action = request.params["name"], request.params["action"]
    if not await _check_toggle(app, reply, name, action, ("pin", "unpin")):
        return
    pinned = action == "pin"
    app.catalog.set_flag(name, "pinned", on=pinned)
    app.instance.machine.set_pinned(name, pinned=pinned)
    app.instance.look()
    message = f"Model '{name}' has been {action}ned successfully."
    if pinned:
        message += " The model will be excluded from automatic eviction."
    await reply.json(200, _written(message, filename=f"/models/{name}.yaml"))


async def toggle_state(app: Emulator, request: Request, reply: Reply) -> None:
    """``PUT /models/toggle-state/{name}/{action}``: disabling unloads."""
    name, action = request.params["name"], request.params["action"]
    if not await _check_toggle(app, reply, name, action, ("enable", "disable")):
        return
    disabled = action == "disable"
    if disabled:
        await _stop(app, name, StopCause.CONFIG)
    entry = app.catalog.set_flag(name, "disabled", on=disabled)
    message = f"Model '{name}' has been {action}d successfully."
    if disabled:
        message += " The model will not be loaded on demand until re-enabled."
    written = _written(message, filename=f"/models/{name}.yaml")
    await reply.json(200, {**written, "config_revision": _revision(entry.text)})


def adopt(app: Emulator, entry: Entry) -> None:
    """Let the machine know a new or changed model; a loaded one keeps its old costs."""
    model = entry.model
    if model is None:
        return
    cluster = app.instance.machine.cluster
    spec: ModelSpec = model.spec()
    if spec.name not in cluster or cluster.is_cold(spec.name):
        cluster.add(spec)
    app.instance.machine.set_pinned(model.name, pinned=model.pinned)


async def _delete(app: Emulator, name: str) -> None:
    await _stop(app, name, StopCause.CONFIG)
    app.catalog.delete(name)
    machine = app.instance.machine
    if name in machine.cluster and machine.cluster.is_cold(name):
        machine.cluster.remove(name)
        machine.forget(name)


async def _stop(app: Emulator, name: str, cause: StopCause) -> None:
    try:
        await app.instance.stop(name, cause)
    except Refusal:
        return  # not loaded, or busy for too long: the write goes on all the same


async def _check_toggle(
    app: Emulator, reply: Reply, name: str, action: str, allowed: tuple[str, str]
) -> bool:
    if action not in allowed:
        message = f'invalid action: must be "{allowed[0]}" or "{allowed[1]}", got "{action}"'
        await _send_failure(reply, 400, message)
        return False
    if app.catalog.model(name) is None:
        await _send_failure(reply, 404, NOT_CONFIGURED)
        return False
    return True


async def _send_failure(reply: Reply, status: int, message: str) -> None:
    failure = {"success": False, "message": "", "error": message, "pending_cleanup": 0}
    await reply.json(status, failure)


def _written(message: str, **fields: str) -> dict[str, Any]:
    return {"success": True, "message": message, **fields, "pending_cleanup": 0}


def _revision(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


_KNOWN = frozenset(
    {
        "name", "alias", "backend", "parameters", "context_size", "known_usecases", "threads",
        "template", "gpu_layers", "options", "limits", "pinned", "disabled", "f16",
    }
)  # fmt: skip


def _effective(entry: Entry) -> dict[str, Any]:
    """The keys that LocalAI knows, with its defaults; unknown ones are not shown here."""
    document: Mapping[str, Any] = load_yaml(entry.text)
    defaults: dict[str, Any] = {
        "f16": False,
        "threads": 2,
        "template": {},
        "mmap": True,
        "context_size": 4096,
        "limits": {},
    }
    known = {key: value for key, value in document.items() if key in _KNOWN}
    given = document.get("parameters")
    parameters = {"top_p": 0.95, "top_k": 40, "temperature": 0.9, "max_tokens": 0}
    if isinstance(given, Mapping):
        parameters.update(given)
    return {**defaults, **known, "parameters": parameters}
