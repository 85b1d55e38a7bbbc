"""One turn of work on a batch: read, run what may run, and end it when all is done.

The batch's record says where it stands and the result log what is done, so a turn may end at any
moment, by a crash too, and the next one goes on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import BinaryIO, NoReturn

import structlog

from contracts import batch_lifecycle as lifecycle
from contracts.batches import Batch, BatchFault, BatchStatus, LineCounts
from contracts.errors import Invalid, Transient
from contracts.events import PriorityClass
from workers.batches.files import Ends, ends_of, write_files
from workers.batches.leeway import Leeway, leeway
from workers.batches.lines import BatchLine, Reading, read_lines
from workers.batches.sending import Sender
from workers.retry import Turn
from workers.tools import Tools

TURN_S = 300.0
"""So long before another batch of the queue gets its turn."""
LOOK_S = 1.0
"""How often the world, the limits and the batch's own record are looked at."""
HOLD_REAL_S = 15.0
"""A batch whose worker died is free for another after this long."""
ASIDE_S = 10.0
_RATE_WINDOW_S = 60.0
_TRIES = 5

_log = structlog.get_logger(__name__)


class BatchRun:
    """Works on one batch.

    Parameters
    ----------
    owner : str
        Whoever runs it: no other may meanwhile.
    """

    def __init__(self, batch_id: str, owner: str, tools: Tools) -> None:
        assert tools.batches is not None
        self._id = batch_id
        self._owner = owner
        self._tools = tools
        self._batches = tools.batches
        self._clock = tools.clock
        self._ends: deque[float] = deque()
        self._good = self._bad = 0

    async def take_turn(self) -> Batch | None:
        """Work until the batch has ended; None: there is no such batch.

        Raises Turn when others are to go first, Transient when a store is away.
        """
        if not await self._batches.take(self._id, self._owner, hold_s=HOLD_REAL_S):
            raise Turn("another worker has this batch", after_s=ASIDE_S)
        try:
            batch = await self._batches.get(self._id)
            if batch is None or batch.has_ended:
                return batch
            return await self._work(batch)
        finally:
            await self._batches.let_go(self._id, self._owner)

    async def _work(self, batch: Batch) -> Batch:
        reading = await self._read(batch)
        if batch.status is BatchStatus.VALIDATING:
            batch = await self._change(lambda b, now_s: _begun(b, reading, now_s))
            _log.info("batch_validated", batch=self._id, status=batch.status.value)
        elif reading.faults and batch.status in (BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING):
            # Lost or deleted under way: another job would find no more of it.
            return await self._fail(reading)
        if batch.status is BatchStatus.IN_PROGRESS:
            batch = await self._run(batch, reading.lines)
        end = lifecycle.end_of(batch, self._clock.now_s())
        return batch if end is None else await self._finish(batch, end, reading.lines)

    async def _fail(self, reading: Reading) -> Batch:
        batch = await self._change(lambda b, now_s: _begun_in_vain(b, reading, now_s))
        _log.warning("batch_failed", batch=self._id, code=reading.faults[0].code)
        return batch

    async def _read(self, batch: Batch) -> Reading:
        try:
            with await self._open(batch) as source:
                return await self._tools.aside(read_lines, source, batch.endpoint, batch.models)
        except Invalid:
            gone = BatchFault(
                code="input_file_deleted",
                message="The input file is gone.",
                param="input_file_id",
            )
            return Reading(lines=(), faults=(gone,))

    async def _open(self, batch: Batch) -> BinaryIO:
        assert self._tools.files is not None
        return await self._tools.aside(self._tools.files.open, batch.input_file_id)

    async def _run(self, batch: Batch, lines: tuple[BatchLine, ...]) -> Batch:
        assert self._tools.line_results is not None
        done = await self._tools.aside(self._done)
        self._good, self._bad = len(done.good), len(done.bad)
        left = [line for line in lines if line.number not in done.good | done.bad]
        segment = self._tools.line_results.begin(self._id)
        with await self._open(batch) as source:
            sender = Sender(
                batch,
                left,
                source=source,
                segment=segment,
                gateway=self._tools.gateway,
                clock=self._clock,
                on_end=self._count,
            )
            try:
                return await self._drive(batch, sender)
            finally:
                await sender.close()
                segment.close()

    def _done(self) -> Ends:
        assert self._tools.line_results is not None
        return ends_of(self._tools.line_results.records(self._id))

    async def _drive(self, batch: Batch, sender: Sender) -> Batch:
        """Send while the turn lasts; the batch as it is when nothing more is to be sent."""
        since_s = looked_s = self._clock.monotonic_s()
        may = await self._leeway(batch, sender)
        while not sender.is_done:
            now_s = self._clock.monotonic_s()
            if now_s - looked_s >= LOOK_S:
                looked_s = now_s
                batch = await self._look(batch)
                if lifecycle.end_of(batch, self._clock.now_s()) is not None:
                    return batch
                may = await self._leeway(batch, sender)
                if now_s - since_s >= TURN_S and await self._others_wait():
                    self._give_turn()
            sender.fill(may)
            await sender.moved(LOOK_S)
        return await self._change(
            lambda b, at_s: (
                lifecycle.moved(self._counted(b), BatchStatus.FINALIZING, at_s)
                if b.status is BatchStatus.IN_PROGRESS
                else b
            )
        )

    async def _look(self, batch: Batch) -> Batch:
        """Hold on to it, tell how far it is, and see whether somebody wants its end."""
        try:
            if not await self._batches.take(self._id, self._owner, hold_s=HOLD_REAL_S):
                raise Turn("another worker has taken this batch", after_s=ASIDE_S)
            return await self._change(lambda b, _: self._counted(b))
        except Transient as error:
            # The lines go on: what they bring is on the disk.
            _log.warning("batch_store_away", batch=self._id, error=str(error))
            return batch

    async def _leeway(self, batch: Batch, sender: Sender) -> Leeway:
        world = limits = None
        try:
            world = await self._tools.snapshots.world()
            limits = await self._tools.snapshots.limits(PriorityClass.BATCH)
        except Transient:
            pass  # nobody tells: the gateway alone decides
        rate = self._rate()
        left = batch.counts.total - self._good - self._bad
        return leeway(
            sender.models,
            world=world,
            limits=limits,
            batch=batch,
            left_s=left / rate if rate else None,
            now_s=self._clock.now_s(),
        )

    async def _others_wait(self) -> bool:
        """Whether another batch has been waiting for this worker."""
        try:
            others = await self._batches.list()
        except Transient:
            return False
        return any(not b.has_ended and b.batch_id != self._id for b in others)

    async def _finish(self, batch: Batch, end: BatchStatus, lines: tuple[BatchLine, ...]) -> Batch:
        """Write its files, then say that it has ended: in this order, so that it has them."""
        tools = self._tools
        assert tools.files is not None
        assert tools.line_results is not None
        files, results, now_s = tools.files, tools.line_results, self._clock.now_s()
        written = await self._tools.aside(
            lambda: write_files(batch, lines, end=end, results=results, files=files, now_s=now_s)
        )
        counts = LineCounts(total=len(lines), completed=written.good, failed=written.bad)
        ended = await self._change(
            lambda b, at_s: replace(
                lifecycle.moved(b, end, at_s),
                counts=counts,
                output_file_id=written.output_file_id,
                error_file_id=written.error_file_id,
                lines_per_s=None,
            )
        )
        await self._tools.aside(results.remove, self._id)
        _log.info("batch_ended", batch=self._id, status=end.value, lines=counts.total)
        return ended

    async def _change(self, change: Callable[[Batch, float], Batch]) -> Batch:
        """Change the record as it is now, whoever else changes it meanwhile."""
        for _ in range(_TRIES):
            batch = await self._batches.get(self._id)
            if batch is None:
                raise Invalid(f"batch {self._id} is gone")
            wanted = change(batch, self._clock.now_s())
            if wanted == batch:
                return batch
            changed = await self._batches.replace(wanted)
            if changed is not None:
                return changed
        raise Transient("the batch is being changed by others all the time")

    def _counted(self, batch: Batch) -> Batch:
        counts = replace(batch.counts, completed=self._good, failed=self._bad)
        progressed_at_s = batch.progressed_at_s
        if counts != batch.counts:
            progressed_at_s = self._clock.now_s()
        return replace(
            batch, counts=counts, lines_per_s=self._rate(), progressed_at_s=progressed_at_s
        )

    def _count(self, _line: BatchLine, good: bool) -> None:  # noqa: FBT001 - a callback
        self._good += good
        self._bad += not good
        self._ends.append(self._clock.monotonic_s())

    def _rate(self) -> float | None:
        """Lines per second over the last minute; None while there are none."""
        now_s = self._clock.monotonic_s()
        while self._ends and now_s - self._ends[0] > _RATE_WINDOW_S:
            self._ends.popleft()
        if not self._ends:
            return None
        return round(len(self._ends) / max(1.0, now_s - self._ends[0]), 3)

    def _give_turn(self) -> NoReturn:
        raise Turn("other batches wait", after_s=0.0)


def _begun_in_vain(batch: Batch, reading: Reading, now_s: float) -> Batch:
    if batch.status not in (BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING):
        return batch  # somebody asked for its end meanwhile
    return lifecycle.failed(batch, reading.faults, now_s)


def _begun(batch: Batch, reading: Reading, now_s: float) -> Batch:
    if batch.status is not BatchStatus.VALIDATING:
        return batch  # it was cancelled meanwhile
    if reading.faults:
        return lifecycle.failed(batch, reading.faults, now_s)
    return lifecycle.started(batch, len(reading.lines), now_s)
