"""Lines on their way: sent through the gateway, again if need be, their ends written down."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import BinaryIO

import structlog

from contracts.batches import Batch, ResultSegment
from contracts.errors import Transient
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.jobs import json_bytes
from contracts.ports import Clock, Exchange, InferenceGateway
from workers.batches.leeway import Leeway
from workers.batches.lines import BatchLine, read_body
from workers.batches.merging import MAX_MERGED_LINES, MERGING_ENDPOINT, mergeable, merged, split
from workers.batches.ordering import next_model
from workers.batches.outcomes import Again, Tries, answered, judge, request_id

GATEWAY_PAUSE_S = 2.0
"""After no answer at all nothing is sent for so long: the gateway starts again, or Redis."""
_LINES_AT_ONCE = 64

_log = structlog.get_logger(__name__)


class Sender:
    """Works off the lines of one batch.

    Parameters
    ----------
    source : BinaryIO
        The input file; a line's body is read when it is sent.
    segment : ResultSegment
        Where ends are written.
    on_end : callable
        Called with a line and whether it went well, once that is written.
    """

    def __init__(
        self,
        batch: Batch,
        lines: Sequence[BatchLine],
        *,
        source: BinaryIO,
        segment: ResultSegment,
        gateway: InferenceGateway,
        clock: Clock,
        on_end: Callable[[BatchLine, bool], None],
    ) -> None:
        self._batch = batch
        self._source = source
        self._segment = segment
        self._gateway = gateway
        self._clock = clock
        self._on_end = on_end
        self._waiting: dict[ModelId, deque[BatchLine]] = {}
        for line in lines:
            self._waiting.setdefault(line.model, deque()).append(line)
        self._in_flight: Counter[ModelId] = Counter()
        self._current: ModelId | None = None
        self._tries: dict[int, Tries] = {}
        self._alone: set[int] = set()
        self._not_before_s: dict[ModelId, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()
        self.fault: Exception | None = None

    @property
    def is_done(self) -> bool:
        """Whether every line has its end."""
        return not self._waiting and not self._tasks

    @property
    def models(self) -> frozenset[ModelId]:
        """Those whose lines wait or run."""
        return frozenset(self._waiting) | frozenset(self._in_flight)

    @property
    def in_flight(self) -> int:
        """Requests that run."""
        return len(self._tasks)

    def fill(self, leeway: Leeway) -> None:
        """Begin as many lines as there is leeway for."""
        now_s = self._clock.monotonic_s()
        self._moved.clear()
        while len(self._tasks) < min(leeway.slots, _LINES_AT_ONCE):
            remaining = {
                model: len(lines)
                for model, lines in self._waiting.items()
                if self._not_before_s.get(model, now_s) <= now_s
            }
            model = next_model(
                remaining,
                self._in_flight,
                resident=leeway.resident,
                loadable=leeway.loadable,
                current=self._current,
            )
            if model is None:
                return
            self._current = model
            self._begin(model)

    async def moved(self, longest_s: float) -> None:
        """Wait until a request has ended, or ``longest_s``. Raises what a request met."""
        try:
            async with self._clock.timeout(longest_s):
                await self._moved.wait()
        except TimeoutError:
            pass
        if self.fault is not None:
            raise self.fault

    async def close(self) -> None:
        """Break off what runs: its connections close, and its lines have no end yet."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, model: ModelId) -> None:
        queue = self._waiting[model]
        bodies = [self._read(line) for line in list(queue)[: self._at_most(queue[0])]]
        count = mergeable(bodies) if self._merges(queue[0]) else 1
        lines = [queue.popleft() for _ in range(count)]
        if not queue:
            del self._waiting[model]
        self._in_flight[model] += 1
        task = asyncio.get_running_loop().create_task(self._send(lines, bodies[:count]))
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(model, done))

    def _at_most(self, first: BatchLine) -> int:
        return MAX_MERGED_LINES if self._merges(first) else 1

    def _merges(self, first: BatchLine) -> bool:
        return self._batch.endpoint == MERGING_ENDPOINT and first.number not in self._alone

    def _read(self, line: BatchLine) -> dict[str, object]:
        self._source.seek(line.offset)
        return dict(read_body(self._source.read(line.size_bytes)))

    def _ended(self, model: ModelId, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._in_flight[model] -= 1
        if not self._in_flight[model]:
            del self._in_flight[model]
        if not task.cancelled() and task.exception() is not None:
            self.fault = task.exception()  # type: ignore[assignment] # never BaseException here
        self._moved.set()

    async def _send(self, lines: list[BatchLine], bodies: Sequence[dict[str, object]]) -> None:
        first = lines[0]
        tries = self._tries.get(first.number, Tries())
        body = merged(bodies) if len(lines) > 1 else bodies[0]
        headers = {
            "X-Headstart-Class": PriorityClass.BATCH.value,
            "X-Request-ID": request_id(self._batch.batch_id, first.number),
        }
        if tries.gives_way:
            headers["X-Headstart-Preempt"] = "anytime"
        try:
            exchange = await self._gateway.exchange(self._batch.endpoint, json_bytes(body), headers)
        except Transient as error:
            _log.info("batch_line_unanswered", batch=self._batch.batch_id, error=str(error))
            self._put_back(lines, GATEWAY_PAUSE_S, tries)
            return
        again = judge(exchange, tries)
        if again is not None:
            self._again(lines, again)
        elif len(lines) == 1:
            self._write(first, exchange)
        else:
            self._write_split(lines, bodies, exchange)

    def _again(self, lines: list[BatchLine], again: Again) -> None:
        self._put_back(lines, again.after_s, again.tries)

    def _put_back(self, lines: list[BatchLine], after_s: float, tries: Tries) -> None:
        model = lines[0].model
        self._waiting.setdefault(model, deque()).extendleft(reversed(lines))
        self._not_before_s[model] = self._clock.monotonic_s() + after_s
        for line in lines:
            self._tries[line.number] = tries

    def _write(self, line: BatchLine, exchange: Exchange) -> None:
        record = answered(self._batch.batch_id, line.number, line.custom_id, exchange)
        self._segment.append(line.number, record)
        self._tries.pop(line.number, None)
        self._on_end(line, record.startswith(b"+"))

    def _write_split(
        self, lines: list[BatchLine], bodies: Sequence[dict[str, object]], exchange: Exchange
    ) -> None:
        good = 200 <= exchange.status < 300
        answers = split(exchange.body, bodies) if good else None
        if answers is None:
            # One of them is at fault, or the server takes no arrays: each has its own try.
            self._alone.update(line.number for line in lines)
            self._put_back(lines, 0.0, Tries())
            return
        for line, answer in zip(lines, answers, strict=True):
            self._write(
                line,
                Exchange(
                    status=exchange.status,
                    body=answer,
                    content_type=exchange.content_type,
                    request_id=exchange.request_id,
                ),
            )
