"""What people set, as the store has it, put into the world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from contracts.config import ControllerConfig, ModelProfile
from contracts.ids import ModelId
from contracts.ports import ControlStore
from contracts.world import GpuYield, Mode, Sla, WorldSnapshot
from controller.catalogue import declared_slas, with_controls


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What is set now; ``mode`` None: nobody has, the configuration's holds."""

    mode: Mode | None
    slas: Mapping[ModelId, Sla]
    pins: frozenset[ModelId]
    gpu_yield: GpuYield | None = None


async def read_controls(store: ControlStore) -> Controls:
    """What is set now. Raises Transient where the store is away."""
    return Controls(
        mode=await store.mode(),
        slas=await store.slas(),
        pins=await store.pins(),
        gpu_yield=await store.gpu_yield(),
    )


def controlled(
    world: WorldSnapshot,
    controls: Controls,
    config: ControllerConfig,
    profiles: Mapping[ModelId, ModelProfile],
) -> WorldSnapshot:
    """The world as people want it run; what they set stands over what is configured."""
    default = Mode.ACTIVE if config.active_by_default else Mode.OBSERVE
    declared = declared_slas(profiles, percentile=config.planner.strain.percentile)
    world = with_controls(
        world,
        mode=controls.mode or default,
        slas=declared | dict(controls.slas),
        pins=controls.pins | {name for name, profile in profiles.items() if profile.pinned},
    )
    return replace(world, gpu_yield=controls.gpu_yield)
