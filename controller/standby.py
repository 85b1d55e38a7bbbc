"""Models that people want back whenever nothing else needs the memory. Pure.

They give way to whatever is asked for, as any other does, and come back when that is gone.
"""

from __future__ import annotations

from contracts.events import LoadCause
from contracts.reasons import Reason
from contracts.world import ModelStatus, Residency
from controller.draft import Draft
from controller.policies.base import Context, Policy
from controller.yielding import handed_over


def stand_by(draft: Draft, context: Context, policy: Policy) -> None:
    """Load one of them, if there is room for it without anybody's going."""
    if not context.config.standby:
        return
    room = draft.room(context.node, context.config, policy.model_limit(context))
    if room.loading or room.draining or handed_over(draft.world) is not None:
        return
    for status in draft.on_node(context.node):
        if not _is_away(status, context):
            continue
        if not room.shortage(status) and not room.slots_short(status):
            away_s = (("away_s", round(context.now_s - status.residency_since_s, 1)),)
            draft.load(status, LoadCause.OPERATOR, Reason.STANDBY, (), away_s)
            return


def _is_away(status: ModelStatus, context: Context) -> bool:
    if status.model not in context.config.standby or status.kept_out:
        return False
    cooldown_s = status.cooldown_until_s
    if status.residency is Residency.FAILED:
        return cooldown_s is None or context.now_s >= cooldown_s
    return status.residency is Residency.COLD
