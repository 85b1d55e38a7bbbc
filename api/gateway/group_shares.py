"""What each group of work has running and waiting at one gateway, and may have. Pure.

A group has a number of requests that run at once, and of cores where its models run on CPUs:
one request may always run, however many cores it takes. Of those that wait it has a number of
places; where none is set it takes as many as leave one place of each class's queue to every
other group that has nobody waiting there, so that no group finds the queue full of another's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from contracts.events import PriorityClass
from contracts.groups import GroupConfig, Groups, group_of
from contracts.ids import ModelId

NO_GROUP = ""
MAX_MODELS = 5_000
"""Models whose group is remembered; beyond it all are looked up anew."""


class GroupShares:
    """The accounts of all groups. Where none is configured nothing is counted."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._told: Mapping[ModelId, str] = {}
        self._cores: Mapping[ModelId, float] = {}
        self._known: dict[ModelId, str] = {}
        self._running: Counter[str] = Counter()
        self._running_cores: Counter[str] = Counter()
        self._waiting: Counter[tuple[str, PriorityClass]] = Counter()
        self._counted: dict[ModelId, list[tuple[str, float]]] = {}

    @property
    def are_on(self) -> bool:
        """Whether there are groups at all."""
        return bool(self._groups)

    def configure(self, groups: Groups) -> None:
        """The configuration has changed. What runs stays counted where it began."""
        self._groups = groups
        self._known.clear()

    def tell(self, groups: Mapping[ModelId, str], cores: Mapping[ModelId, float]) -> None:
        """What the controller knows: groups of models, and cores of those that run on CPUs."""
        if groups != self._told:
            self._told = groups
            self._known.clear()
        self._cores = cores

    def group(self, model: ModelId) -> str:
        """The group of ``model``: as the controller says, else by its name alone."""
        found = self._known.get(model)
        if found is None:
            told = self._told.get(model, NO_GROUP)
            found = told if told in self._groups else group_of(model, None, self._groups)
            if len(self._known) >= MAX_MODELS:
                self._known.clear()
            self._known[model] = found
        return found

    def may_run(self, model: ModelId) -> bool:
        """Whether its group has room for one more request that runs."""
        group = self._groups.get(self.group(model))
        if group is None:
            return True
        if group.concurrency is not None and self._running[group.name] >= group.concurrency:
            return False
        cores = self._cores_of(model, group)
        taken = self._running_cores[group.name]
        return group.cpu_cores is None or not cores or not taken or taken + cores <= group.cpu_cores

    def may_wait(
        self, model: ModelId, priority: PriorityClass, *, capacity: int, queued: int
    ) -> bool:
        """Whether one more of its group may wait in a queue that holds ``queued`` already."""
        name = self.group(model)
        group = self._groups.get(name)
        if group is not None and group.queue is not None:
            waiting = sum(self._waiting[name, each] for each in PriorityClass)
            return waiting < group.queue
        others = [other for other in (*self._groups, NO_GROUP) if other != name]
        if capacity <= len(others):
            return True  # too small to be shared
        absent = sum(1 for other in others if not self._waiting[other, priority])
        return capacity - queued > absent

    def begin(self, model: ModelId) -> None:
        """One request of ``model`` runs."""
        name = self.group(model)
        group = self._groups.get(name)
        cores = 0.0 if group is None else self._cores_of(model, group)
        self._running[name] += 1
        if cores:
            self._running_cores[name] += cores  # type: ignore[assignment]  # a counter of halves
        # What it was counted under when it began: groups and cores may be told anew meanwhile.
        self._counted.setdefault(model, []).append((name, cores))

    def end(self, model: ModelId) -> None:
        """It runs no more. One that began before there were groups was not counted."""
        counted = self._counted.get(model)
        if not counted:
            return
        name, cores = counted.pop()
        if not counted:
            del self._counted[model]
        self._running[name] -= 1
        self._running_cores[name] -= cores  # type: ignore[assignment]  # a counter of halves
        if not self._running[name]:
            del self._running[name]
            self._running_cores.pop(name, None)

    def queue(self, model: ModelId, priority: PriorityClass) -> str:
        """One request of ``model`` waits; the name that it is counted under."""
        name = self.group(model)
        self._waiting[name, priority] += 1
        return name

    def unqueue(self, name: str, priority: PriorityClass) -> None:
        """It waits no more."""
        self._waiting[name, priority] -= 1

    def is_bounded(self, model: ModelId) -> bool:
        """Whether the end of one of its requests may let another model's go."""
        if not self._groups:
            return False
        group = self._groups.get(self.group(model))
        return group is not None and not (group.concurrency is None and group.cpu_cores is None)

    def _cores_of(self, model: ModelId, group: GroupConfig) -> float:
        """Cores that one request takes; 0: it runs on a GPU, as far as is known."""
        told = self._cores.get(model)
        if told is not None:
            return told
        return 1.0 if group.is_cpu_only else 0.0
