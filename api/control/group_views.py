"""Groups of work as people see them: what each may take, and takes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.control.schemas import Schema
from contracts.groups import GroupConfig, Groups
from contracts.world import Residency, WorldSnapshot


class GroupView(Schema):
    """One group of work. Without a bound a limit is null."""

    object: Literal["group"] = "group"
    id: str
    models: int = Field(description="How many models belong to it.")
    resident_models: int
    occupied_bytes: int = Field(description="What they take now, on all nodes.")
    memory_limit_bytes: int | None = Field(description="What they may take, on each node.")
    gpu_limit: float | None
    cpu_limit_cores: float | None
    in_flight: int
    waiting: int = Field(description="Requests that wait until a model of it is resident.")
    concurrency: int | None
    queue: int | None
    precedence: int


def group_views(world: WorldSnapshot, groups: Groups) -> list[GroupView]:
    """Every group, those that go first when room is short before others."""
    ordered = sorted(groups.values(), key=lambda group: (group.precedence, group.name))
    return [_view(world, group) for group in ordered]


def _view(world: WorldSnapshot, group: GroupConfig) -> GroupView:
    ours = [status for status in world.models.values() if status.group == group.name]
    return GroupView(
        id=group.name,
        models=len(ours),
        resident_models=sum(status.residency is Residency.HOT for status in ours),
        occupied_bytes=sum(status.occupied_bytes for status in ours),
        memory_limit_bytes=group.memory_bytes,
        gpu_limit=group.gpus,
        cpu_limit_cores=group.cpu_cores,
        in_flight=sum(status.in_flight for status in ours),
        waiting=sum(status.waiting for status in ours),
        concurrency=group.concurrency,
        queue=group.queue,
        precedence=group.precedence,
    )
