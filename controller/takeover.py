"""What a new leader makes of the orders that the last one left behind. Pure."""

from __future__ import annotations

from collections.abc import Callable

from contracts.events import ActionFailed, LoadCause
from contracts.world import Residency, WorldSnapshot
from controller.fold import LOAD_KIND, UNLOAD_KIND
from controller.stamps import Stamp


def orphaned(stamp: Callable[[], Stamp], world: WorldSnapshot) -> tuple[ActionFailed, ...]:
    """What a new leader declares about orders of the last one: they ended with it.

    Loads that a gateway runs go on, and are adopted as they are.
    """
    models = world.models.values()
    loading = [
        one.model
        for one in models
        if one.residency is Residency.LOADING and one.load_cause is not LoadCause.GATEWAY
    ]
    draining = [one.model for one in models if one.residency is Residency.DRAINING]
    return tuple(
        ActionFailed(
            **stamp(), action_id="takeover", kind=kind, subject=model, error="the leader changed"
        )
        for kind, subjects in ((LOAD_KIND, loading), (UNLOAD_KIND, draining))
        for model in subjects
    )
