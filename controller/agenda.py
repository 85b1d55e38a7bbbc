"""What is declared ahead of time, put into the world before each plan. Pure but for its memory.

Groups of models, schedules, and the models that are marked to be loaded at start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from contracts.config import ControllerConfig, ModelProfile, WarmUpSchedule
from contracts.groups import Groups
from contracts.ids import ModelId
from contracts.world import OCCUPIES_MEMORY, WorldSnapshot
from controller.groups import said_to_be_on_host, with_groups
from controller.schedules import Timetable, timetable


class Agenda:
    """One term's memory of it: the timetable that holds, and which preloads it has asked for."""

    def __init__(self) -> None:
        self._schedules: tuple[WarmUpSchedule, ...] = ()
        self._timetable = Timetable()
        self._asked: set[ModelId] = set()
        self._profiles: Mapping[ModelId, ModelProfile] | None = None
        self._groups: Groups = {}
        self._on_host: frozenset[ModelId] = frozenset()

    def prepared(
        self,
        world: WorldSnapshot,
        profiles: Mapping[ModelId, ModelProfile],
        config: ControllerConfig,
    ) -> WorldSnapshot:
        """The same world with all that is declared of its models."""
        world = self._with_groups(world, profiles, config.planner.groups)
        world = self._with_schedules(world, config.planner.schedules)
        return self._with_preloads(world, profiles, config.preload)

    def _with_groups(
        self, world: WorldSnapshot, profiles: Mapping[ModelId, ModelProfile], groups: Groups
    ) -> WorldSnapshot:
        """Looked up anew when LocalAI has listed its models, or the configuration has changed."""
        if profiles is self._profiles and groups is self._groups:
            return world
        before, self._on_host = self._on_host, said_to_be_on_host(world, profiles, groups)
        self._profiles, self._groups = profiles, groups
        return with_groups(world, profiles, groups, before=before)

    def _with_schedules(
        self, world: WorldSnapshot, schedules: tuple[WarmUpSchedule, ...]
    ) -> WorldSnapshot:
        now_s = world.taken_at_s
        if schedules != self._schedules or not self._timetable.holds(now_s):
            self._schedules = schedules
            self._timetable = timetable(schedules, now_s)
        if not schedules and not world.scheduled and world.quiet_until_s is None:
            return world
        return replace(
            world,
            scheduled=self._timetable.uses(world.models),
            quiet_until_s=self._timetable.quiet_until_s,
        )

    def _with_preloads(
        self,
        world: WorldSnapshot,
        profiles: Mapping[ModelId, ModelProfile],
        allowed: bool | tuple[ModelId, ...],  # noqa: FBT001 - all, none or these
    ) -> WorldSnapshot:
        """Models that a file of LocalAI's marks are asked for once they are known to be there."""
        marked = allowed if isinstance(allowed, tuple) else _marked(profiles) if allowed else ()
        fresh = {name for name in marked if name in world.models and name not in self._asked}
        if not fresh:
            return world
        self._asked |= fresh
        absent = {n for n in fresh if world.models[n].residency not in OCCUPIES_MEMORY}
        return replace(world, preloads=world.preloads | absent) if absent else world


def _marked(profiles: Mapping[ModelId, ModelProfile]) -> tuple[ModelId, ...]:
    return tuple(name for name, profile in profiles.items() if profile.preload)
