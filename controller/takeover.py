"""What a new leader makes of the orders that the last one left behind. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from contracts.events import ActionFailed, LoadCause
from contracts.ids import ModelId
from controller.fold import LOAD_KIND, UNLOAD_KIND
from controller.stamps import Stamp


def orphaned(
    stamp: Callable[[], Stamp],
    *,
    loading: Mapping[ModelId, LoadCause | None],
    draining: list[ModelId],
) -> tuple[ActionFailed, ...]:
    """What a new leader declares about orders of the last one: they ended with it.

    Loads that a gateway runs go on, and are adopted as they are.
    """
    ours = [name for name, cause in loading.items() if cause is not LoadCause.GATEWAY]
    return tuple(
        ActionFailed(
            **stamp(), action_id="takeover", kind=kind, subject=model, error="the leader changed"
        )
        for kind, models in ((LOAD_KIND, ours), (UNLOAD_KIND, draining))
        for model in models
    )
