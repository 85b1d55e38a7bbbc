"""``headstart backup``: LocalAI's model files, and what people set, in one archive."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import tarfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from adapters.redis_client import connect
from adapters.redis_stores import RedisControlStore
from adapters.settings import Settings, load_settings
from adapters.whole_file import whole_file
from cli.checkup.looking import BACKUPS
from contracts.errors import HeadstartError, Permanent

_ODD = re.compile(r"[^A-Za-z0-9._-]")


def register(app: typer.Typer) -> None:
    """Add ``headstart backup``."""
    app.command("backup")(backup)


def backup(
    to: Annotated[
        Path | None,
        typer.Argument(help="A file ending in .tar.gz. Default: a dated one in data_dir/backups."),
    ] = None,
) -> None:
    """Keep model files, latency targets, pins and the mode. Weights are not in it, nor keys."""
    settings = load_settings(os.environ)
    dated = time.strftime("headstart-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime())
    path = to or settings.data_dir / BACKUPS / dated
    files = asyncio.run(_collect(settings))
    if not files:
        raise Permanent("there is nothing to keep: no LocalAI gave a model file")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with whole_file(path) as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(content), int(time.time())
            archive.addfile(entry, io.BytesIO(content))
    typer.echo(f"{len(files)} files are in {path}")


async def _collect(settings: Settings) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for node in settings.gateway_config().nodes:
        server = LocalAIServer(node, ScaledClock())
        try:
            for model in await server.models():
                text = await server.read_profile(model)
                if text is not None:
                    files[f"models/{_safe(node.node)}/{_safe(model)}.yaml"] = text.encode()
        except HeadstartError as error:
            typer.echo(f"{node.node}: {error}", err=True)
        finally:
            await server.close()
    files |= await _set_by_people(settings)
    return files


async def _set_by_people(settings: Settings) -> dict[str, bytes]:
    if settings.redis_url is None:
        return {}
    client = connect(settings.redis_url)
    try:
        store = RedisControlStore(client)
        mode = await store.mode()
        told: dict[str, Any] = {
            "slas": [
                {
                    "model": sla.model,
                    "target_s": sla.target_s,
                    "percentile": sla.percentile,
                    "priority": sla.priority.value,
                    "weight": sla.weight,
                }
                for sla in (await store.slas()).values()
            ],
            "pins": sorted(await store.pins()),
            "mode": None if mode is None else mode.value,
        }
    except HeadstartError as error:
        typer.echo(f"redis: {error}", err=True)
        return {}
    finally:
        await client.aclose()
    return {"settings.json": json.dumps(told, indent=1).encode()}


def _safe(name: str) -> str:
    return _ODD.sub("_", name)[:200]
