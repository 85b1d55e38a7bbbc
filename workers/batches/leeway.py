"""What a batch may do now: how many lines at once, and on which models. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from contracts.batches import Batch, BatchStatus
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.limits import ClassLimits
from contracts.reasons import Reason
from contracts.world import Residency, WorldSnapshot

WORLD_EXPIRES_S = 30.0
URGENT_SHARE = 0.1
"""The last tenth of its window is a batch's own: it loads what it needs."""
URGENT_SLOTS = 2
PATIENCE_SHARE = 0.05
"""A batch that nobody leaves room waits for this share of the time it has left, shared out among
the models that it still needs, and then loads one of them: so it costs people a load now and
then, and is not left to the last hours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leeway:
    """``slots`` lines at once; on ``resident`` models, and one load of the ``loadable``."""

    slots: int
    resident: frozenset[ModelId]
    loadable: frozenset[ModelId]
    reason: Reason


def leeway(
    models: Collection[ModelId],
    *,
    world: WorldSnapshot | None,
    limits: ClassLimits | None,
    batch: Batch,
    left_s: float | None,
    now_s: float,
) -> Leeway:
    """What the batch may do.

    Parameters
    ----------
    models : collection
        Those that its lines ask for.
    left_s : float or None
        How long its remaining lines take as it goes; None: nothing measured.

    Notes
    -----
    While somebody of a higher class waits, nothing is begun. A batch that has waited long for
    room takes it (``PATIENCE_SHARE``). Without limits, or with expired
    ones, one line runs at a time, and nothing is loaded. A world that is unknown or old says
    nothing of who is resident: then the gateway alone decides, one line and one model at a time.
    """
    wanted = frozenset(models)
    urgent = _is_urgent(batch, left_s, now_s)
    if world is None or now_s - world.taken_at_s > WORLD_EXPIRES_S:
        return Leeway(slots=1, resident=frozenset(), loadable=wanted, reason=Reason.PASS_THROUGH)
    resident = frozenset(
        model
        for model in wanted
        if model not in world.models or world.models[model].residency is Residency.HOT
    )
    if urgent:
        return Leeway(
            slots=max(URGENT_SLOTS, limits.slots if _holds(limits, now_s) and limits else 0),
            resident=resident,
            loadable=wanted - resident,
            reason=Reason.WAITED_LONGEST,
        )
    if _realtime_waits(world):
        return Leeway(
            slots=0, resident=resident, loadable=frozenset(), reason=Reason.HIGHER_CLASS_WAITS
        )
    if limits is None or not _holds(limits, now_s):
        return Leeway(slots=1, resident=resident, loadable=frozenset(), reason=Reason.NOT_RESIDENT)
    if not resident and _has_waited(batch, len(wanted), now_s):
        return Leeway(
            slots=limits.slots,
            resident=resident,
            loadable=wanted,
            reason=Reason.WAITED_LONGEST,
        )
    return Leeway(
        slots=limits.slots,
        resident=resident,
        loadable=(wanted - resident) & frozenset(limits.loadable),
        reason=limits.reason,
    )


def _holds(limits: ClassLimits | None, now_s: float) -> bool:
    return (
        limits is not None
        and limits.priority is PriorityClass.BATCH
        and now_s < limits.valid_until_s
    )


def _is_urgent(batch: Batch, left_s: float | None, now_s: float) -> bool:
    rest_s = batch.expires_at_s - now_s
    window_s = batch.expires_at_s - batch.created_at_s
    return rest_s <= URGENT_SHARE * window_s or (left_s is not None and left_s >= rest_s)


def _has_waited(batch: Batch, models_left: int, now_s: float) -> bool:
    """Whether it has had no line done for long enough to load a model that people leave no room."""
    last_s = batch.progressed_at_s or batch.reached_at_s.get(BatchStatus.IN_PROGRESS, now_s)
    patience_s = PATIENCE_SHARE * (batch.expires_at_s - now_s) / max(1, models_left)
    return now_s - last_s >= patience_s


def _realtime_waits(world: WorldSnapshot) -> bool:
    return any(queue.waiting and queue.priority is PriorityClass.REALTIME for queue in world.queues)
