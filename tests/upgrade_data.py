"""Data as a release leaves it, kept as text in ``tests/fixtures/upgrade/<release>``.

``python -m tests.upgrade_data`` (``make upgrade-fixtures``) runs a stack of this release against
the emulator, with invented names, cuts it off in the middle of a batch, and writes what lies there
then: ``redis.jsonl`` (one key a line), ``files.json`` (``data_dir``), ``headstart.yaml`` and
``made.json`` (when, in the stack's own time). A release keeps its own and reads all before it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import redis

from adapters.champion_files import CHAMPION_FOLDER, DiskChampionStore
from adapters.clock import ANCHOR_VARIABLE, ScaledClock
from adapters.embedded_server import EmbeddedServer
from adapters.file_store import FILES_FOLDER, RESULTS_FOLDER
from adapters.redis_stored import keys_like, read_stored, write_stored
from adapters.release import installed_release
from cli.stack import Stack
from cli.traffic import SERVICE_HEADER
from contracts.data_format import Stored
from predictor.library_versions import library_versions
from predictor.snapshot import Sealing, seal
from tests.small_challenger import CHALLENGER

FIXTURES = Path(__file__).parent / "fixtures" / "upgrade"
TIME_SCALE = 20.0
MODELS = (
    {"name": "heron-chat", "footprint_mb": 3000, "load_s": 3, "tokens_per_s": 50},
    {"name": "wren-embed", "footprint_mb": 500, "load_s": 1, "tokens_per_s": 500},
    {"name": "owl-vision", "footprint_mb": 4000, "load_s": 5, "tokens_per_s": 50},
)
BATCH_LINES = 40
CHAT = "/v1/chat/completions"
CONFIG = """\
scheduler:
  mode: active
memory:
  reserve_ratio: 0
logging:
  level: info
models:
  heron-chat:
    pinned: false
    scheduling_profile:
      priority_class: realtime
  owl-vision:
    timeouts:
      first_byte_seconds: 90
workers:
  batch_slots: 1
"""
_KEPT_FOLDERS = (FILES_FOLDER, RESULTS_FOLDER, CHAMPION_FOLDER)
_KEPT_FILES = ("snapshot.key", "format")
_LAST_OF = {"headstart:to-controller": 20, "headstart:to-gateways": 6, "headstart:decisions": 40}
"""Of streams that say the same again and again, the last entries."""
_OF_THE_MACHINE = {b"hostname": b"example", b"ip_address": b"127.0.0.1"}


def environment(folder: Path, anchor: tuple[float, float] | None = None) -> dict[str, str]:
    """What the stack is told: its time goes on where the data ends, if it has an end."""
    told = {
        "HEADSTART_ENV": "dev",
        "HEADSTART_TIME_SCALE": f"{TIME_SCALE:g}",
        "HEADSTART_CONFIG": str(folder / "headstart.yaml"),
    }
    return told if anchor is None else {**told, ANCHOR_VARIABLE: f"{anchor[0]!r}:{anchor[1]!r}"}


def emulator_arguments(folder: Path) -> tuple[str, ...]:
    """The LocalAI that it stands before."""
    models = folder / "models.json"
    models.write_text(json.dumps({"models": MODELS}))
    return ("--models", str(models), "--capacity-mb", "8000")


# Reading


async def restore(kept: Path, data_dir: Path) -> None:
    """Lay the data out as it was, in ``data_dir`` and the Redis in it."""
    for name, file in json.loads((kept / "files.json").read_text()).items():
        path = data_dir / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(_bytes_of(file))
    async with EmbeddedServer(data_dir) as server:
        await asyncio.to_thread(_fill, server.url, (kept / "redis.jsonl").read_text())


def _fill(url: str, text: str) -> None:
    with redis.Redis.from_url(url.replace("%2F", "/"), protocol=2) as client:
        for line in text.splitlines():
            write_stored(client, stored_of(json.loads(line)))


def stored_of(told: Mapping[str, Any]) -> Stored:
    """One key, from its line."""
    content: Any = told["content"]
    match told["kind"]:
        case "string":
            content = _bytes_of(content)
        case "hash":
            content = _hash_of(content)
        case "set":
            content = frozenset(_bytes_of(each) for each in content)
        case "list":
            content = tuple(_bytes_of(each) for each in content)
        case "zset":
            content = tuple((_bytes_of(member), float(score)) for member, score in content)
        case "stream":
            content = tuple((entry, _hash_of(fields)) for entry, fields in content)
        case _:
            raise ValueError(f"{told['key']}: a {told['kind']} is nothing that is kept")
    return Stored(
        key=told["key"],
        kind=told["kind"],
        content=content,
        expires_in_ms=told.get("expires_in_ms"),
    )


def _hash_of(content: Any) -> dict[bytes, bytes]:
    return {_bytes_of(name): _bytes_of(value) for name, value in content}


def _bytes_of(told: Any) -> bytes:
    if isinstance(told, str):
        return told.encode()
    return base64.b64decode(told["base64"])


# Writing


def told_of(stored: Stored) -> dict[str, Any]:
    """The line of one key."""
    content: Any = stored.content
    if stored.kind == "stream":
        content = content[-_LAST_OF.get(stored.key, len(content)) :]
    match stored.kind:
        case "string":
            content = _text_of(content)
        case "hash":
            content = _pairs_of(content)
        case "set":
            content = sorted((_text_of(each) for each in content), key=str)
        case "list":
            content = [_text_of(each) for each in content]
        case "zset":
            content = [[_text_of(member), score] for member, score in content]
        case "stream":
            content = [[entry, _pairs_of(fields)] for entry, fields in content]
        case _:
            raise ValueError(f"{stored.key}: a {stored.kind} is nothing that is kept")
    told = {"key": stored.key, "kind": stored.kind, "content": content}
    if stored.expires_in_ms is not None:
        told["expires_in_ms"] = stored.expires_in_ms
    return told


def _pairs_of(content: Mapping[bytes, bytes]) -> list[list[Any]]:
    told = {
        **content,
        **{name: _OF_THE_MACHINE[name] for name in _OF_THE_MACHINE if name in content},
    }
    return sorted(([_text_of(name), _text_of(value)] for name, value in told.items()), key=str)


def _text_of(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def keep(url: str, data_dir: Path, made_until_s: float, to: Path) -> None:
    """Write what lies there."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    with redis.Redis.from_url(url.replace("%2F", "/"), protocol=2) as client:
        found = [read_stored(client, key) for key in sorted(set(keys_like(client, "*")))]
    with (to / "redis.jsonl").open("w") as lines:
        for stored in found:
            if stored is not None:
                lines.write(json.dumps(told_of(stored), ensure_ascii=False) + "\n")
    files = {
        str(path.relative_to(data_dir)): _text_of(path.read_bytes())
        for path in sorted(data_dir.rglob("*"))
        if path.is_file() and path.relative_to(data_dir).parts[0] in {*_KEPT_FILES, *_KEPT_FOLDERS}
    }
    (to / "files.json").write_text(json.dumps(files, indent=1, ensure_ascii=False) + "\n")
    (to / "headstart.yaml").write_text(CONFIG)
    made = {"release": installed_release(), "until_s": made_until_s}
    (to / "made.json").write_text(json.dumps(made, indent=1) + "\n")


class Making:
    """Some minutes of life, in the stack's time."""

    def __init__(self, stack: Stack, session: aiohttp.ClientSession) -> None:
        self._stack = stack
        self._session = session

    async def live(self) -> None:
        """Everything that leaves something behind, and a batch that is not over."""
        control = self._stack.control_url
        for _ in range(2):
            for model in ("heron-chat", "owl-vision", "heron-chat"):
                await self._chat(model)
            await self._ask("POST", self._stack.gateway_url + "/v1/embeddings",
                            json={"model": "wren-embed", "input": "reed"})  # fmt: skip
            await asyncio.sleep(1.0)
        await self._ask("PUT", f"{control}/v1/slas/heron-chat",
                        json={"target_s": 2.5, "percentile": 90, "class": "batch"})  # fmt: skip
        await self._ask("POST", f"{control}/v1/models/wren-embed/pin")
        await self._ask("PUT", f"{control}/v1/mode", json={"mode": "active"})
        body = {"model": "wren-embed", "input": "sedge"}
        await self._ask("POST", f"{control}/v1/background/v1/embeddings", json=body)
        await self._batch_begun(lines=3, until=3)
        await self._batch_begun(lines=BATCH_LINES, until=5)
        await self._ask("POST", f"{control}/v1/background/v1/embeddings", json=body)

    async def _chat(self, model: str, **body: Any) -> None:
        message = [{"role": "user", "content": "what wades here?"}]
        await self._ask(
            "POST",
            self._stack.gateway_url + CHAT,
            json={"model": model, "messages": message, **body},
            headers={SERVICE_HEADER: "2"},
        )

    async def _batch_begun(self, *, lines: int, until: int) -> None:
        control = self._stack.control_url
        form = aiohttp.FormData()
        form.add_field("purpose", "batch")
        content = "".join(json.dumps(_line(number)) + "\n" for number in range(lines))
        form.add_field("file", content.encode(), filename="birds.jsonl")
        file = await self._ask("POST", f"{control}/v1/files", data=form)
        wanted = {"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"}
        batch = await self._ask("POST", f"{control}/v1/batches", json=wanted)
        async with asyncio.timeout(60.0):
            while batch["request_counts"]["completed"] < until:
                await asyncio.sleep(0.1)
                batch = await self._ask("GET", f"{control}/v1/batches/{batch['id']}")

    async def _ask(self, method: str, url: str, **options: Any) -> Any:
        async with self._session.request(method, url, **options) as answer:
            told = await answer.text()
            if answer.status >= 300:
                raise SystemExit(f"{method} {url}: {answer.status} {told[:300]}")
            return json.loads(told)


def _line(number: int) -> dict[str, Any]:
    return {
        "custom_id": f"bird-{number}",
        "method": "POST",
        "url": CHAT,
        "body": {
            "model": "heron-chat",
            "messages": [{"role": "user", "content": f"bird {number}"}],
            "max_tokens": 40,
        },
    }


async def make(to: Path) -> None:
    """Make the data of this release."""
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        data_dir = folder / "data"
        (folder / "headstart.yaml").write_text(CONFIG)
        now_s = ScaledClock().now_s()
        anchor = (now_s, now_s)
        clock = ScaledClock(TIME_SCALE, anchor)
        stack = Stack(
            environment(folder, anchor), data_dir, emulator_args=emulator_arguments(folder)
        )
        async with stack, aiohttp.ClientSession() as session:
            await Making(stack, session).live()
            for service in ("workers", "gateway", "predictor", "controller"):
                await stack.hold(service)
            champions = DiskChampionStore(data_dir)
            sealing = Sealing(key=await champions.key(), versions=library_versions())
            await champions.put(seal(CHALLENGER, sealing))
            await asyncio.to_thread(keep, stack.redis_url, data_dir, clock.now_s(), to)


if __name__ == "__main__":
    asyncio.run(make(FIXTURES / installed_release()))
    sys.stdout.write(f"written to {FIXTURES / installed_release()}\n")
