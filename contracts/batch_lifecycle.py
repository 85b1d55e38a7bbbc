"""How a batch goes from one status to the next. Pure: time is an argument.

::

    validating ─▶ in_progress ─▶ finalizing ─▶ completed
        │             ├─▶ cancelling ─▶ cancelled
        │             ├─▶ (window over) finalizing ─▶ expired
        ▼             ▼
      failed        failed (its file is gone)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from contracts.batches import Batch, BatchFault, BatchStatus, LineCounts
from contracts.errors import Invalid

_NEXT: Mapping[BatchStatus, frozenset[BatchStatus]] = {
    BatchStatus.VALIDATING: frozenset(
        {
            BatchStatus.FAILED,
            BatchStatus.IN_PROGRESS,
            BatchStatus.CANCELLING,
            BatchStatus.EXPIRED,
        }
    ),
    BatchStatus.IN_PROGRESS: frozenset(
        {
            BatchStatus.FINALIZING,
            BatchStatus.CANCELLING,
            BatchStatus.EXPIRED,
            BatchStatus.FAILED,
        }
    ),
    BatchStatus.FINALIZING: frozenset(
        {BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.FAILED}
    ),
    BatchStatus.CANCELLING: frozenset({BatchStatus.CANCELLED}),
}


def moved(batch: Batch, status: BatchStatus, now_s: float) -> Batch:
    """The batch in its next status; raises Invalid where that does not follow."""
    if status not in _NEXT.get(batch.status, frozenset()):
        raise Invalid(
            f"batch {batch.batch_id} is {batch.status.value}, it cannot be {status.value}"
        )
    return replace(batch, status=status, reached_at_s={**batch.reached_at_s, status: now_s})


def failed(batch: Batch, faults: tuple[BatchFault, ...], now_s: float) -> Batch:
    """Its file is not taken, or is gone while it runs: nothing more of it can be run."""
    return replace(moved(batch, BatchStatus.FAILED, now_s), faults=faults)


def started(batch: Batch, total: int, now_s: float) -> Batch:
    """Its file is good, and its lines may be run."""
    begun = moved(batch, BatchStatus.IN_PROGRESS, now_s)
    return replace(begun, counts=LineCounts(total=total))


def cancelled_by_caller(batch: Batch, now_s: float) -> Batch:
    """Somebody asked for its end. Raises Invalid when it has ended, or nearly so."""
    if batch.status is BatchStatus.CANCELLING:
        return batch
    return moved(batch, BatchStatus.CANCELLING, now_s)


def end_of(batch: Batch, now_s: float) -> BatchStatus | None:
    """What the batch becomes once its files are written; None while it goes on."""
    if batch.status is BatchStatus.CANCELLING:
        return BatchStatus.CANCELLED
    if batch.status is BatchStatus.FINALIZING:
        return BatchStatus.COMPLETED
    if not batch.has_ended and now_s >= batch.expires_at_s:
        return BatchStatus.EXPIRED
    return None
