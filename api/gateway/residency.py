"""What this gateway knows of where models are, and what follows for a request.

Pure: it keeps the last routing table and what this process itself has seen since. With no
table, or nothing known about a model, requests are forwarded: the data path survives the
control path.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from contracts.ids import ModelId, NodeId
from contracts.reasons import Reason
from contracts.routing import ModelRoute, RoutingTable
from contracts.world import OCCUPIES_MEMORY, Mode, Residency

MAX_MODELS = 5_000
_LOAD_SAMPLES = 32
_DEFAULT_COOLDOWN_S = 10.0
INTERRUPTED_S = 30.0
"""A load whose owner died is killed, and LocalAI takes that for a failure: it cools down.
For so long a failure is put down to that, and whoever waits goes on waiting."""


class Kind(StrEnum):
    """What may be done with a request now."""

    FORWARD = "forward"
    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a model stands for a request of now.

    Attributes
    ----------
    is_cold : bool
        It is known not to be resident.
    retry_after_s : float or None
        When it cools down: for how long yet.
    message : str
        What LocalAI said when its load failed.
    """

    kind: Kind
    reason: Reason
    is_cold: bool = False
    node: NodeId | None = None
    retry_after_s: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """The ``loading`` object of an answer. None: not known."""

    state: str
    elapsed_s: float | None
    expected_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What this process saw of a model itself, until a newer table says otherwise."""

    at_s: float
    residency: Residency
    node: NodeId
    cooldown_until_s: float | None = None
    message: str = ""


class RouteBook:
    """The last routing table, and what was seen since."""

    def __init__(self) -> None:
        self._table: RoutingTable | None = None
        self._seen: dict[ModelId, _Seen] = {}
        self._stopping: set[ModelId] = set()
        self._interrupted_until_s: dict[ModelId, float] = {}
        self._messages: OrderedDict[ModelId, str] = OrderedDict()
        self._load_times_s: OrderedDict[ModelId, deque[float]] = OrderedDict()
        self._used_at_s: OrderedDict[ModelId, float] = OrderedDict()

    @property
    def table(self) -> RoutingTable | None:
        """The last table that counts; None before the first."""
        return self._table

    @property
    def aliases(self) -> Mapping[str, ModelId]:
        """Alias to model."""
        return {} if self._table is None else self._table.aliases

    @property
    def draining(self) -> Mapping[ModelId, str]:
        """Model to the drain that gateways acknowledge."""
        return {} if self._table is None else self._table.draining

    def lists(self, model: str | None) -> bool:
        """Whether the table has this model."""
        return self._table is not None and model is not None and model in self._table.models

    def names(self, text: str) -> bool:
        """Whether the text is the name or the alias of a model."""
        return self.lists(text) or text in self.aliases

    def accept(self, table: RoutingTable, *, is_live: bool = True) -> bool:
        """Take a table; False for one of an earlier leader.

        One that was stored (not ``is_live``) may also be older than the last of its leader;
        those that are sent come in their order, even while the leader's clock steps.
        """
        last = self._table
        if last is not None:
            is_older = table.made_at_s < last.made_at_s and not is_live
            if table.token < last.token or (table.token == last.token and is_older):
                return False
            self._learn_load_times(last, table)
            if table.token != last.token:
                self._note_interrupted(last, table.made_at_s)
        self._table = table
        self._seen = {
            model: seen for model, seen in self._seen.items() if seen.at_s > table.made_at_s
        }
        return True

    def standing(self, model: ModelId | None, now_s: float) -> Standing:
        """What may be done with a request for ``model``; ``now_s`` is epoch seconds."""
        table = self._table
        route = None if table is None or model is None else table.models.get(model)
        if table is None or model is None or route is None:
            return Standing(kind=Kind.FORWARD, reason=Reason.PASS_THROUGH)
        seen = self._seen.get(model)
        residency = route.residency if seen is None else seen.residency
        node = route.node if seen is None else seen.node
        is_cold = residency is not Residency.HOT
        if table.mode is Mode.OBSERVE:
            return Standing(
                kind=Kind.FORWARD, reason=Reason.OBSERVE_ONLY, is_cold=is_cold, node=node
            )
        if model in table.draining or model in self._stopping:
            return Standing(kind=Kind.WAIT, reason=Reason.DRAINING, is_cold=True, node=node)
        if not is_cold:
            return Standing(kind=Kind.FORWARD, reason=Reason.RESIDENT, node=node)
        if residency is Residency.FAILED:
            until_s = route.cooldown_until_s if seen is None else seen.cooldown_until_s
            rest_s = 0.0 if until_s is None else until_s - now_s
            if rest_s > 0.0 and self.is_interrupted(model, now_s):
                return Standing(kind=Kind.WAIT, reason=Reason.COOL_DOWN, is_cold=True, node=node)
            if rest_s > 0.0:
                return Standing(
                    kind=Kind.REFUSE,
                    reason=Reason.COOL_DOWN,
                    is_cold=True,
                    node=node,
                    retry_after_s=rest_s,
                    message=route.failure or self._messages.get(model, ""),
                )
        reason = Reason.LOADING if residency is Residency.LOADING else Reason.DEMAND
        return Standing(kind=Kind.WAIT, reason=reason, is_cold=True, node=node)

    def is_loading(self, model: ModelId) -> bool:
        """Whether the last table says that it is being loaded."""
        route = None if self._table is None else self._table.models.get(model)
        return route is not None and route.residency is Residency.LOADING

    def is_interrupted(self, model: ModelId, now_s: float) -> bool:
        """Whether a failure of its load is put down to whoever ordered it having died."""
        return now_s < self._interrupted_until_s.get(model, 0.0)

    def note_interrupted(self, model: ModelId, now_s: float) -> None:
        """Whoever ordered its load has died, or so it seems."""
        self._interrupted_until_s[model] = now_s + INTERRUPTED_S

    def note_message(self, model: ModelId, message: str) -> None:
        """What LocalAI said about the last load of ``model``."""
        if message:
            self._messages[model] = message
            self._messages.move_to_end(model)
            if len(self._messages) > MAX_MODELS:
                self._messages.popitem(last=False)

    def note_used(self, model: ModelId, now_s: float) -> None:
        """A request for ``model`` was let go, or has ended; tables tell of it a little late."""
        self._used_at_s[model] = now_s
        self._used_at_s.move_to_end(model)
        if len(self._used_at_s) > MAX_MODELS:
            self._used_at_s.popitem(last=False)

    def note_loaded(self, model: ModelId, node: NodeId, *, now_s: float, load_s: float) -> None:
        """This gateway has loaded it alone."""
        self._seen[model] = _Seen(at_s=now_s, residency=Residency.HOT, node=node)
        self._note_load_time(model, load_s)

    def is_own_load(self, model: ModelId) -> bool:
        """Whether it is resident since this gateway loaded it, as far as is known."""
        seen = self._seen.get(model)
        return seen is not None and seen.residency is Residency.HOT

    def note_failed(
        self, model: ModelId, node: NodeId, *, now_s: float, retry_after_s: float | None
    ) -> None:
        """A load that this gateway ordered alone has failed."""
        rest_s = _DEFAULT_COOLDOWN_S if retry_after_s is None else retry_after_s
        self._seen[model] = _Seen(
            at_s=now_s, residency=Residency.FAILED, node=node, cooldown_until_s=now_s + rest_s
        )

    def begin_stop(self, model: ModelId) -> None:
        """This gateway is about to stop it: nothing new goes there."""
        self._stopping.add(model)

    def end_stop(self, model: ModelId, node: NodeId, *, now_s: float, stopped: bool) -> None:
        """The stop has ended."""
        self._stopping.discard(model)
        if stopped:
            self._seen[model] = _Seen(at_s=now_s, residency=Residency.COLD, node=node)

    def missing_bytes(self, model: ModelId) -> int:
        """What ``model`` needs beyond what its node has free; 0 where that is not known."""
        table = self._table
        route = None if table is None else table.models.get(model)
        if table is None or route is None or route.footprint_bytes is None:
            return 0
        node = table.nodes.get(route.node)
        if node is None or node.free_bytes is None:
            return 0
        return max(0, route.footprint_bytes - self._free_bytes(table, node.node, node.free_bytes))

    def stoppable(self, model: ModelId) -> tuple[ModelRoute, ...]:
        """Whom to stop for ``model``, the longest idle first, as far as the last table knows."""
        table = self._table
        route = None if table is None else table.models.get(model)
        if table is None or route is None:
            return ()
        hot = [
            other
            for other in table.models.values()
            if other.node == route.node
            and other.model != model
            and not other.pinned
            and other.footprint_bytes
            and self._residency(other) is Residency.HOT
        ]
        return tuple(sorted(hot, key=lambda other: (self._last_used_s(other), other.model)))

    def load_budget_s(self, model: ModelId, at_least_s: float) -> float:
        """How long a request may wait for a load: twice the measured 95th percentile."""
        times_s = sorted(self._load_times_s.get(model, ()))
        if times_s:
            return max(at_least_s, 2.0 * times_s[math.ceil(0.95 * len(times_s)) - 1])
        route = None if self._table is None else self._table.models.get(model)
        expected_s = None if route is None else route.expected_load_s
        return at_least_s if expected_s is None else max(at_least_s, 2.0 * expected_s)

    def progress(self, model: ModelId, *, now_s: float, waited_s: float) -> LoadProgress:
        """How far the load of ``model`` is, as far as anybody knows."""
        route = None if self._table is None else self._table.models.get(model)
        if route is None:
            return LoadProgress(state="waiting", elapsed_s=waited_s, expected_s=None)
        started_at_s = route.load_started_at_s
        if route.residency is not Residency.LOADING or started_at_s is None:
            return LoadProgress(
                state="waiting", elapsed_s=waited_s, expected_s=route.expected_load_s
            )
        return LoadProgress(
            state="loading",
            elapsed_s=max(0.0, now_s - started_at_s),
            expected_s=route.expected_load_s,
        )

    def _last_used_s(self, route: ModelRoute) -> float:
        return max(route.last_used_at_s or 0.0, self._used_at_s.get(route.model, 0.0))

    def _residency(self, route: ModelRoute) -> Residency:
        seen = self._seen.get(route.model)
        return route.residency if seen is None else seen.residency

    def _free_bytes(self, table: RoutingTable, node: NodeId, free_bytes: int) -> int:
        """The table's figure, corrected by what this process loaded and stopped since."""
        for model, seen in self._seen.items():
            route = table.models.get(model)
            if route is None or seen.node != node or route.footprint_bytes is None:
                continue
            # The table counts a model from the moment its load starts until it is gone.
            was_held = route.residency in OCCUPIES_MEMORY
            is_held = seen.residency in OCCUPIES_MEMORY
            free_bytes += route.footprint_bytes * (int(was_held) - int(is_held))
        return free_bytes

    def _note_interrupted(self, last: RoutingTable, now_s: float) -> None:
        """Another controller leads: the loads of the one before it may have died with it."""
        self._interrupted_until_s = {
            model: until_s
            for model, until_s in self._interrupted_until_s.items()
            if until_s > now_s
        }
        for model, route in last.models.items():
            if route.residency is Residency.LOADING:
                self.note_interrupted(model, now_s)

    def _learn_load_times(self, last: RoutingTable, table: RoutingTable) -> None:
        for model, route in table.models.items():
            before = last.models.get(model)
            if (
                before is not None
                and before.residency is Residency.LOADING
                and route.residency is Residency.HOT
                and before.load_started_at_s is not None
            ):
                self._note_load_time(model, table.made_at_s - before.load_started_at_s)

    def _note_load_time(self, model: ModelId, load_s: float) -> None:
        times_s = self._load_times_s.setdefault(model, deque(maxlen=_LOAD_SAMPLES))
        times_s.append(max(0.0, load_s))
        self._load_times_s.move_to_end(model)
        if len(self._load_times_s) > MAX_MODELS:
            self._load_times_s.popitem(last=False)
