"""The plan of one run while it is written: the world as far as decided, and what was said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from contracts.config import PlannerConfig
from contracts.events import LoadCause, UnloadCause
from contracts.ids import ModelId, NodeId
from contracts.plan import Action, Decision, LoadModel, Outcome, UnloadModel
from contracts.reasons import Reason
from contracts.world import ModelStatus, Residency, WorldSnapshot
from controller.eviction import names
from controller.memory import Room, room
from controller.policies.base import Victim

Evidence = tuple[tuple[str, float | str], ...]
Said = tuple[Outcome, Reason]

NOT_ORDERED = ("mode", "observe")
"""Evidence on decisions that are recorded but not carried out."""


def is_ordered(world: WorldSnapshot) -> bool:
    """Whether plans of this world are carried out."""
    return world.mode.orders


@dataclass(frozen=True, slots=True)
class Terms:
    """How victims go: at once or not at all (None), or within so long, cancelling what may be."""

    drain_s: float | None = None
    preempt: bool = False


AT_ONCE = Terms()


@dataclass(slots=True)
class Draft:
    """The plan while it is written; ``world`` follows what was decided so far.

    A node's models and room are read once and again only after something was decided, so
    that a run which changes nothing looks at each model a few times and not a few dozen.
    """

    policy: str
    world: WorldSnapshot
    sequence: int
    last_said: Mapping[str, Said]
    actions: list[Action] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    said: dict[str, Said] = field(default_factory=dict)
    greatest_evicted_value: float = 0.0
    _models: dict[NodeId, tuple[ModelStatus, ...]] = field(default_factory=dict)
    _rooms: dict[tuple[NodeId, int | None], Room] = field(default_factory=dict)

    def on_node(self, node: NodeId) -> tuple[ModelStatus, ...]:
        """The node's models by name, as far as decided."""
        models = self._models.get(node)
        if models is None:
            models = self._models[node] = self.world.on_node(node)
        return models

    def room(self, node: NodeId, config: PlannerConfig, model_limit: int | None) -> Room:
        """The node's room as far as decided; ``model_limit`` is the policy's own."""
        found = self._rooms.get((node, model_limit))
        if found is None:
            found = room(
                self.world, node, config, model_limit=model_limit, models=self.on_node(node)
            )
            self._rooms[node, model_limit] = found
        return found

    def say(
        self, subject: ModelId | NodeId, outcome: Outcome, reason: Reason, evidence: Evidence = ()
    ) -> None:
        """Record a decision; one that holds since an earlier run is not worded again."""
        self.said[subject] = (outcome, reason)
        ordered = is_ordered(self.world)
        changes = ordered and outcome is Outcome.CHANGE
        if not changes and self.last_said.get(subject) == (outcome, reason):
            return
        self._record(subject, outcome, reason, evidence)

    def note(self, subject: ModelId, reason: Reason, evidence: Evidence) -> None:
        """Record a change that is beside what is said of the subject; not ordered, once."""
        beside = f"{reason} {subject}"
        self.said[beside] = (Outcome.CHANGE, reason)
        if is_ordered(self.world) or beside not in self.last_said:
            self._record(subject, Outcome.CHANGE, reason, evidence)

    def _record(
        self, subject: ModelId | NodeId, outcome: Outcome, reason: Reason, evidence: Evidence
    ) -> None:
        ordered = is_ordered(self.world)
        self.decisions.append(
            Decision(
                policy=self.policy,
                subject=subject,
                outcome=outcome,
                reason=reason,
                evidence=evidence if ordered else (*evidence, NOT_ORDERED),
                decision_id=f"d{self.sequence}-{len(self.decisions)}",
                made_at_s=self.world.taken_at_s,
            )
        )

    def unload(
        self,
        victim: Victim,
        node: NodeId,
        cause: UnloadCause,
        wanted_by: str,
        terms: Terms = AT_ONCE,
    ) -> None:
        """Order an unload and say so."""
        self.actions.append(
            UnloadModel(
                action_id=f"a{self.sequence}-{len(self.actions)}",
                model=victim.model,
                node=node,
                cause=cause,
                reason=victim.reason,
                drain_s=terms.drain_s,
                preempt=terms.preempt,
            )
        )
        room_for = (("room_for", wanted_by),) if wanted_by else ()
        self.say(victim.model, Outcome.CHANGE, victim.reason, victim.evidence + room_for)
        self._mark(victim.model, node, Residency.DRAINING)

    def load(
        self,
        status: ModelStatus,
        cause: LoadCause,
        reason: Reason,
        victims: tuple[Victim, ...],
        evidence: Evidence,
        terms: Terms = AT_ONCE,
    ) -> None:
        """Order a load and the unloads that make its room, and say so."""
        for victim in victims:
            self.unload(victim, status.node, UnloadCause.EVICTED, status.model, terms)
            if victim.reason is Reason.LEAST_VALUE_PER_BYTE:
                self.greatest_evicted_value = max(self.greatest_evicted_value, victim.loss)
        self.actions.append(
            LoadModel(
                action_id=f"a{self.sequence}-{len(self.actions)}",
                model=status.model,
                node=status.node,
                cause=cause,
                reason=reason,
                after=names(victims),
            )
        )
        evicted = (("evicts", ", ".join(names(victims))),) if victims else ()
        self.say(status.model, Outcome.CHANGE, reason, evidence + evicted)
        self._mark(status.model, status.node, Residency.LOADING)

    def _mark(self, model: ModelId, node: NodeId, residency: Residency) -> None:
        status = replace(self.world.models[model], residency=residency)
        self.world = replace(self.world, models={**self.world.models, model: status})
        self._models.pop(node, None)
        self._rooms.clear()
