"""LocalAI's lists: models, capabilities, aliases, health, version."""

from __future__ import annotations

from emulator.context import Emulator
from emulator.http import Reply, Request

_INPUTS = {"transcript": "audio", "vad": "audio"}
_OUTPUTS = {"tts": "audio", "image": "image", "chat": "text", "completion": "text",
            "transcript": "text"}  # fmt: skip


async def models(app: Emulator, request: Request, reply: Reply) -> None:
    """``GET /v1/models``: aliases and disabled ones included."""
    wanted = request.query.get("filter", "")
    data = [{"id": name, "object": "model"} for name in app.catalog.names() if wanted in name]
    await reply.json(200, {"object": "list", "data": data})


async def capabilities(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /v1/models/capabilities``: null for an alias."""
    data = []
    for entry in app.catalog.entries():
        usecases = None if entry.model is None else list(entry.model.usecases)
        names = usecases or []
        inputs = {_INPUTS.get(name, "text") for name in names}
        outputs = {_OUTPUTS[name] for name in names if name in _OUTPUTS}
        data.append(
            {
                "id": entry.name,
                "object": "model",
                "capabilities": usecases,
                "input_modalities": sorted(inputs, reverse=True),
                "output_modalities": sorted(outputs, reverse=True),
            }
        )
    await reply.json(200, {"object": "list", "data": data})


async def ui_capabilities(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/models/capabilities``."""
    data = []
    for entry in app.catalog.entries():
        model = entry.model
        flags = [] if model is None else [f"FLAG_{name.upper()}" for name in model.usecases]
        data.append(
            {
                "id": entry.name,
                "capabilities": flags,
                "backend": "" if model is None else "emulated",
                "disabled": model is not None and model.disabled,
                "pinned": model is not None and model.pinned,
            }
        )
    await reply.json(200, {"data": data})


async def aliases(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/aliases``."""
    pairs = app.catalog.aliases().items()
    await reply.json(200, [{"name": name, "target": target} for name, target in pairs])


async def health(_app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /healthz`` and ``/readyz``: 200 and nothing."""
    await reply.whole(200, b"", None)


async def version(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /version``."""
    await reply.json(200, {"version": version_text(app)})


def version_text(app: Emulator) -> str:
    """As LocalAI words it: the tag, and the commit in brackets."""
    major, minor = app.options.version
    return f"v{major}.{minor}.0-emulated (emulated)"
