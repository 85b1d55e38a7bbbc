"""Everything that Headstart has written, wherever that is: looked at, and taken away."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from adapters.champion_files import CHAMPION_FOLDER, KEY_FILE
from adapters.clock import ScaledClock
from adapters.engine_snapshots import FOLDER as LEARNED_FOLDER
from adapters.file_lock import FileLock
from adapters.file_store import FILES_FOLDER, RESULTS_FOLDER
from adapters.folder_format import FORMAT_LOCK_FILE
from adapters.localai_model_files import LocalAIModelFiles
from adapters.redis_client import connect
from adapters.redis_footprint import RedisFootprint
from adapters.settings import Settings
from contracts.config import NodeConfig
from contracts.data_format import FORMAT_FILE
from contracts.errors import HeadstartError
from contracts.ids import ModelId, NodeId
from contracts.variants import MARK, is_made
from workers.queues import QUEUES

OURS_IN_DATA_DIR = (
    "redis",
    "logs",
    FILES_FOLDER,
    RESULTS_FOLDER,
    CHAMPION_FOLDER,
    LEARNED_FOLDER,
    KEY_FILE,
    FORMAT_FILE,
    FORMAT_LOCK_FILE,
)
"""What we write there. Whatever else lies in that folder is somebody else's, and stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeModel:
    """One model file that we wrote into a LocalAI."""

    node: NodeId
    model: ModelId
    of: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One file or folder of ours in the data folder."""

    path: Path
    size_bytes: int
    files: int


@dataclass(slots=True, kw_only=True)
class Leftovers:
    """What there is.

    Attributes
    ----------
    elsewhere : list of str
        What is not ours to remove from here.
    faults : list of str
        What could not be looked at, and why.
    """

    variants: list[MadeModel] = field(default_factory=list)
    redis_keys: dict[str, int] = field(default_factory=dict)
    folders: list[Folder] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    is_running: bool = False
    faults: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of ours was found."""
        return not (self.variants or any(self.redis_keys.values()) or self.folders)


class LocalAIs:
    """The model files of all LocalAIs of a configuration."""

    def __init__(self, nodes: tuple[NodeConfig, ...]) -> None:
        clock = ScaledClock(1.0)
        self._files = {node.node: LocalAIModelFiles(node, clock) for node in nodes}

    async def variants(self, faults: list[str]) -> list[MadeModel]:
        """Every model that is ours, by its name and its mark."""
        found = []
        for node, files in self._files.items():
            try:
                for model in await files.names():
                    document = await files.read(model) if is_made(model) else None
                    mark = None if document is None else document.get(MARK)
                    if isinstance(mark, dict) and mark.get("made") is True:
                        of, kind = str(mark.get("of", "")), str(mark.get("kind", ""))
                        found.append(MadeModel(node=node, model=model, of=of, kind=kind))
            except HeadstartError as error:
                faults.append(str(error))
        return found

    async def remove(self, variants: list[MadeModel]) -> None:
        """Take them away, each with its process; weights stay. Raises HeadstartError."""
        for one in variants:
            await self._files[one.node].remove(one.model)

    async def close(self) -> None:
        """Close all connections."""
        for files in self._files.values():
            await files.close()


@asynccontextmanager
async def localais(settings: Settings) -> AsyncIterator[LocalAIs]:
    """Those of the configuration, for as long as the block runs."""
    opened = LocalAIs(settings.gateway_config().nodes)
    try:
        yield opened
    finally:
        await opened.close()


async def look(settings: Settings) -> Leftovers:
    """Look everywhere. What cannot be looked at is told, and hides nothing else."""
    found = Leftovers(folders=folders_of(settings.data_dir))
    async with localais(settings) as servers:
        found.variants = await servers.variants(found.faults)
    if settings.redis_url is None:
        found.is_running = _is_locked(settings.data_dir / "redis" / "owner.lock")
    else:
        for url in _redis_urls(settings):
            async with _footprint(url) as store:
                try:
                    for prefix, count in (await store.count()).items():
                        found.redis_keys[prefix] = found.redis_keys.get(prefix, 0) + count
                    found.is_running |= await store.is_led(ScaledClock(1.0).now_s())
                except HeadstartError as error:
                    found.faults.append(str(error))
    store_url = settings.workers_config().files_url
    if store_url is not None:
        found.elsewhere.append(f"files of batches in {store_url}")
    return found


async def remove(settings: Settings, found: Leftovers) -> list[str]:
    """Take away what was found; what was done, in words. Raises HeadstartError."""
    done = []
    async with localais(settings) as servers:
        await servers.remove(found.variants)
    done += [f"{one.node}: model {one.model}" for one in found.variants]
    if any(found.redis_keys.values()):
        removed = 0
        for url in _redis_urls(settings):
            async with _footprint(url) as store:
                removed += await store.remove()
        done.append(f"redis: {removed} keys")
    for folder in found.folders:
        if folder.path.is_dir():
            shutil.rmtree(folder.path)
        else:
            folder.path.unlink(missing_ok=True)
        done.append(str(folder.path))
    data_dir = settings.data_dir
    if found.folders and data_dir.is_dir() and not any(data_dir.iterdir()):
        data_dir.rmdir()
        done.append(str(data_dir))
    return done


def folders_of(data_dir: Path) -> list[Folder]:
    """What is ours in the data folder."""
    return [_measured(path) for name in OURS_IN_DATA_DIR if (path := data_dir / name).exists()]


def _redis_urls(settings: Settings) -> list[str]:
    """Where our keys are: of a cluster's deployment, those of jobs are elsewhere."""
    return [url for url in dict.fromkeys((settings.redis_url, settings.jobs_url)) if url]


@asynccontextmanager
async def _footprint(url: str) -> AsyncIterator[RedisFootprint]:
    client = connect(url)
    try:
        yield RedisFootprint(client, QUEUES)
    finally:
        await client.aclose()


def _is_locked(path: Path) -> bool:
    """Whether a running process holds it."""
    if not path.exists():
        return False
    lock = FileLock(path)
    is_free = lock.take()
    lock.release()
    return not is_free


def _measured(path: Path) -> Folder:
    files = [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
    return Folder(path=path, size_bytes=sum(one.stat().st_size for one in files), files=len(files))
