"""The GPU is for another program: by somebody's word, or by a schedule's quiet hours. Pure.

What our models may not go on holding goes: idle ones at once, the least missed first, and those
that serve once their last request has ended; pins do not hold them. Nothing new is loaded there
meanwhile, but what runs on CPUs, and in quiet hours what a schedule names itself. When it is
over they come back as after any other program (``pressure.come_back``).
"""

from __future__ import annotations

from contracts.events import UnloadCause
from contracts.reasons import Reason
from contracts.world import GpuYield, ModelStatus, Residency, WorldSnapshot
from controller.draft import AT_ONCE, Draft, Evidence, Terms
from controller.eviction import is_spared
from controller.memory import gpu_bytes
from controller.policies.base import Context, Policy, Victim
from controller.precedence import is_due

QUIET_HOURS = "quiet hours"

_MIB = 1024**2


def handed_over(world: WorldSnapshot) -> GpuYield | None:
    """What holds now; somebody's word goes before quiet hours. None: the GPU is ours."""
    now_s, wish = world.taken_at_s, world.gpu_yield
    if wish is not None and wish.holds(now_s):
        return wish
    until_s = world.quiet_until_s
    if until_s is not None and now_s < until_s:
        return GpuYield(since_s=now_s, until_s=until_s, note=QUIET_HOURS)
    return None


def is_kept_off(world: WorldSnapshot, status: ModelStatus) -> bool:
    """Whether a load of ``status`` has to wait until the GPU is ours again."""
    wish = handed_over(world)
    if wish is None or _is_free_to_stay(world, status, wish):
        return False
    node = world.nodes[status.node]
    held = sum(
        gpu_bytes(other, node)
        for other in world.on_node(status.node)
        if other.residency in (Residency.HOT, Residency.LOADING)
    )
    # Of a model of unknown size nobody can say that it is small enough.
    needed_bytes = max(gpu_bytes(status, node), status.needed_bytes)
    return not needed_bytes or held + needed_bytes > wish.keep_bytes


def let_go(draft: Draft, context: Context, policy: Policy) -> None:
    """Unload what holds more of the GPU than it may, where it was handed over."""
    wish = handed_over(draft.world)
    if wish is None:
        return
    node = draft.world.nodes[context.node]
    models = [m for m in draft.on_node(context.node) if not _is_free_to_stay(draft.world, m, wish)]
    hot = [m for m in models if m.residency is Residency.HOT]
    over = sum(gpu_bytes(m, node) for m in hot) - wish.keep_bytes
    going = [m for m in hot if not is_spared(m, context.now_s)]
    for status in _in_order(context, policy, going):
        if over <= 0 and (wish.keep_bytes or not _size_is_unknown(status)):
            break
        over -= gpu_bytes(status, node)
        busy = bool(status.in_flight or status.waiting)
        victim = Victim(
            model=status.model,
            freed_bytes=status.occupied_bytes,
            loss=0.0,
            reason=Reason.GPU_YIELDED,
            evidence=_evidence(status, wish, context.now_s),
        )
        terms = Terms(context.config.turn_drain_s) if busy else AT_ONCE
        draft.unload(victim, context.node, UnloadCause.EVICTED, "", terms)


def _in_order(
    context: Context, policy: Policy, models: list[ModelStatus]
) -> tuple[ModelStatus, ...]:
    """Idle ones first, as the policy values them; then those that serve, by their last use."""
    by_name = {m.model: m for m in models if not m.in_flight and not m.waiting}
    ranked = [by_name.pop(v.model) for v in policy.victims(context, tuple(by_name.values()))]
    others = [m for m in models if m not in ranked]
    others.sort(key=lambda m: (m.model not in by_name, m.last_used_at_s or 0.0, m.model))
    return (*ranked, *others)


def _is_free_to_stay(world: WorldSnapshot, status: ModelStatus, wish: GpuYield) -> bool:
    if status.on_host or world.nodes[status.node].accelerator == "cpu":
        return True
    return wish.note == QUIET_HOURS and wish is not world.gpu_yield and is_due(world, status)


def _size_is_unknown(status: ModelStatus) -> bool:
    return status.footprint_bytes is None


def _evidence(status: ModelStatus, wish: GpuYield, now_s: float) -> Evidence:
    told: Evidence = (
        ("freed_mb", status.occupied_bytes // _MIB),
        ("keep_mb", wish.keep_bytes // _MIB),
        ("in_flight", status.in_flight),
    )
    if wish.until_s is not None:
        told = (*told, ("rest_s", round(wish.until_s - now_s, 1)))
    return (*told, ("note", wish.note)) if wish.note else told
