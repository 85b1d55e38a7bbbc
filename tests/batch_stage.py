"""A batch and all around it, on stores in memory and virtual time."""

from __future__ import annotations

import io
import json
from typing import Any, TypeAlias

from contracts.batches import Batch, BatchStatus, FilePurpose, StoredFile
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId
from contracts.limits import ClassLimits
from contracts.ports import Exchange
from contracts.reasons import Reason
from contracts.world import ModelStatus, QueueStatus, Residency, WorldSnapshot
from simulator.clock import VirtualClock
from simulator.memory_batches import MemoryBatchStore, MemoryFileStore, MemoryResultLog
from simulator.memory_jobs import MemoryInferenceGateway, MemoryJobQueue, MemoryJobResults
from simulator.memory_ports import MemoryForecastStore, MemorySnapshotStore
from workers.batches.run import BatchRun
from workers.queues import QUEUES
from workers.tools import Tools

CHAT, EMBED = "/v1/chat/completions", "/v1/embeddings"
START_S = 1_000_000.0
Line: TypeAlias = dict[str, Any]


async def _here(function, *args):
    return function(*args)


class Stage:
    """One batch, and everything around it."""

    def __init__(self, lines: list[Line] | bytes, endpoint: str = CHAT) -> None:
        self.clock = VirtualClock(START_S)
        self.gateway = MemoryInferenceGateway()
        self.gateway.script = lambda _path, body: said(json.loads(body)["model"])
        self.files, self.results = MemoryFileStore(), MemoryResultLog()
        self.batches, self.snapshots = MemoryBatchStore(), MemorySnapshotStore()
        self.jobs = MemoryJobQueue(QUEUES)
        self.batch = Batch(
            batch_id="batch_1",
            endpoint=endpoint,
            input_file_id="file-in",
            completion_window="24h",
            status=BatchStatus.VALIDATING,
            created_at_s=START_S,
            expires_at_s=START_S + 24 * 3600.0,
        )
        data = lines if isinstance(lines, bytes) else b"".join(as_line(one) for one in lines)
        self.files.add(
            StoredFile(
                file_id="file-in",
                filename="in.jsonl",
                purpose=FilePurpose.BATCH,
                size_bytes=0,
                created_at_s=START_S,
            ),
            io.BytesIO(data),
        )
        self.tools = Tools(
            clock=self.clock,
            results=MemoryJobResults(),
            jobs=self.jobs,
            gateway=self.gateway,
            snapshots=self.snapshots,
            forecasts=MemoryForecastStore(),
            logs={},
            batches=self.batches,
            files=self.files,
            line_results=self.results,
            aside=_here,
        )

    async def turn(self, owner: str = "w1", *, limit_s: float = 86_400.0) -> Batch:
        if await self.batches.get("batch_1") is None:
            await self.batches.add(self.batch)
        run = BatchRun("batch_1", owner, self.tools)
        batch = await self.clock.run(run.take_turn(), limit_s=limit_s)
        assert batch is not None
        return batch

    async def now(self) -> Batch:
        batch = await self.batches.get("batch_1")
        assert batch is not None
        return batch

    def read(self, file_id: str | None) -> list[Line]:
        assert file_id is not None
        with self.files.open(file_id) as file:
            return [json.loads(line) for line in file.read().splitlines()]

    def sent(self) -> list[str]:
        return [json.loads(body)["model"] for _, body, _ in self.gateway.calls]


def as_line(line: Line) -> bytes:
    whole = {"method": "POST", "url": CHAT, "body": {"model": "m"}} | line
    return json.dumps(whole).encode() + b"\n"


def lines(*models: str, url: str = CHAT, **body: object) -> list[Line]:
    return [
        {"custom_id": f"c{n}", "url": url, "body": {"model": model, **body}}
        for n, model in enumerate(models)
    ]


def said(text: str, status: int = 200, **more) -> Exchange:
    return Exchange(status=status, body=json.dumps({"said": text}).encode(), **more)


def world(clock: VirtualClock, hot: set[str], *, realtime: int = 0) -> WorldSnapshot:
    return WorldSnapshot(
        taken_at_s=clock.now_s(),
        models={
            ModelId(name): ModelStatus(
                model=ModelId(name),
                node=NodeId("n"),
                residency=Residency.HOT if name in hot else Residency.COLD,
            )
            for name in ("a", "b", "c")
        },
        queues=(QueueStatus(priority=PriorityClass.REALTIME, waiting=realtime),),
    )


async def limit(stage: Stage, slots: int, *loadable: str) -> None:
    await stage.snapshots.put_limits(
        ClassLimits(
            priority=PriorityClass.BATCH,
            slots=slots,
            loadable=tuple(ModelId(name) for name in loadable),
            valid_until_s=START_S + 1e6,
            reason=Reason.DEMAND,
        )
    )
