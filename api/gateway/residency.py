"""What this gateway knows of where models are, and what follows for a request.

Pure: it keeps the last routing table and what this process itself has seen since. With no
table, or nothing known about a model, requests are forwarded: the data path survives the
control path.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from api.gateway.durations import Durations
from api.gateway.standings import Copy, Kind, LoadProgress, Seen, Standing
from contracts.ids import ModelId, NodeId
from contracts.reasons import Reason
from contracts.routing import ModelRoute, RoutingTable
from contracts.variants import is_made
from contracts.world import OCCUPIES_MEMORY, Residency

__all__ = ["Kind", "LoadProgress", "RouteBook", "Standing"]

MAX_MODELS = 5_000
_LOAD_SAMPLES = 32
_DEFAULT_COOLDOWN_S = 10.0
GHOST_UNHEARD_S = 10.0
"""A ghost that was seen here is taken to be news to the controller for so long."""

INTERRUPTED_S = 30.0
"""A load whose owner died is killed, and LocalAI takes that for a failure: it cools down.
For so long a failure is put down to that, and whoever waits goes on waiting."""

_PASS_THROUGH = Standing(kind=Kind.FORWARD, reason=Reason.PASS_THROUGH)


class RouteBook:
    """The last routing table, and what was seen since.

    Attributes
    ----------
    is_shut : callable
        Whether a model is not to be asked for on a node for now; nobody is unless set.
    on_loaded : callable
        Called when a model was loaded on a node anew.
    on_table : callable
        Told each table that counts, before anybody goes by it.
    has_made : bool
        Whether variants that we made are among the models.
    """

    def __init__(self) -> None:
        self.is_shut: Callable[[NodeId, ModelId], bool] = lambda _node, _model: False
        self.on_loaded: Callable[[ModelId, NodeId], None] = lambda _model, _node: None
        self.on_table: Callable[[RoutingTable], None] = lambda _table: None
        self.has_made = False
        self._table: RoutingTable | None = None
        self._seen: dict[ModelId, Seen] = {}
        self._stopping: set[ModelId] = set()
        self._interrupted_until_s: dict[ModelId, float] = {}
        self._messages: OrderedDict[ModelId, str] = OrderedDict()
        self._load_times = Durations(_LOAD_SAMPLES)
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
        self.on_table(table)
        self._table = table
        self.has_made = any(map(is_made, table.models))
        self._seen = {
            model: seen
            for model, seen in self._seen.items()
            if seen.at_s > table.made_at_s or self._is_news_yet(model, seen)
        }
        return True

    def copies(self, model: ModelId) -> tuple[Copy, ...]:
        """Every node that knows ``model``, its home first; nothing without a table of it."""
        table = self._table
        route = None if table is None else table.models.get(model)
        if table is None or route is None:
            return ()
        home = self._home(route)
        is_hot = self._residency(route) is Residency.HOT
        is_leaving = model in table.draining or model in self._stopping
        others = (
            Copy(
                node=node,
                is_home=False,
                is_resident=residency is Residency.HOT,
                is_alive=self._is_alive(node),
            )
            for node, residency in sorted(route.places.items())
            if node != home
        )
        at_home = Copy(
            node=home,
            is_home=True,
            is_resident=is_hot and not is_leaving,
            is_alive=self._is_alive(home),
        )
        return (at_home, *others)

    def copy_count(self, model: ModelId) -> int:
        """On how many nodes that answer it is resident; at least 1."""
        table = self._table
        route = None if table is None else table.models.get(model)
        if route is None or not route.places:
            return 1
        return max(1, sum(copy.is_resident and copy.is_alive for copy in self.copies(model)))

    def standing(self, model: ModelId | None, now_s: float) -> Standing:
        """What may be done with a request for ``model``; ``now_s`` is epoch seconds."""
        table = self._table
        route = None if table is None or model is None else table.models.get(model)
        if table is None or model is None or route is None:
            return _PASS_THROUGH
        seen = self._seen.get(model)
        residency, node = (
            (route.residency, route.node) if seen is None else (seen.residency, seen.node)
        )
        is_cold = residency is not Residency.HOT
        if not table.mode.orders:
            return Standing(
                kind=Kind.FORWARD, reason=Reason.OBSERVE_ONLY, is_cold=is_cold, node=node
            )
        is_leaving = model in table.draining or model in self._stopping
        if not is_cold and not is_leaving:
            return _resident_on(node)
        if (other := self._copy_elsewhere(route)) is not None:
            return _resident_on(other)
        if is_leaving:
            return Standing(kind=Kind.WAIT, reason=Reason.DRAINING, is_cold=True, node=node)
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

    def is_loading(self, model: ModelId, node: NodeId | None = None) -> bool:
        """Whether the last table says that it is being loaded, and on this node if one is named."""
        route = None if self._table is None else self._table.models.get(model)
        if route is None:
            return False
        at_home = route.residency if node in (None, route.node) else None
        return (at_home if node is None else route.places.get(node, at_home)) is Residency.LOADING

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
        self._seen[model] = Seen(at_s=now_s, residency=Residency.HOT, node=node)
        self._load_times.note(model, load_s)
        self.on_loaded(model, node)

    def note_residents(
        self, node: NodeId, residents: Collection[ModelId], *, now_s: float
    ) -> tuple[ModelId, ...]:
        """What the node itself lists: others have loaded and stopped there. Of which it is news."""
        news = []
        for route in () if self._table is None else self._table.models.values():
            if self._home(route) != node or self.is_ghost(route.model):
                continue
            is_there = route.model in residents
            if is_there != (self._residency(route) is Residency.HOT):
                residency = Residency.HOT if is_there else Residency.COLD
                self._seen[route.model] = Seen(at_s=now_s, residency=residency, node=node)
                news.append(route.model)
        return tuple(news)

    def note_ghost(self, model: ModelId, node: NodeId, *, now_s: float) -> None:
        """LocalAI lists it on ``node``, but its process is dead: it has to be loaded again.

        Tables that still call it resident are not believed for a while: the controller may
        have made them before it heard.
        """
        table = self._table
        route = None if table is None else table.models.get(model)
        if route is None or self._home(route) == node:
            self._seen[model] = Seen(at_s=now_s, residency=Residency.COLD, node=node, is_ghost=True)

    def is_ghost(self, model: ModelId) -> bool:
        """Whether its process was found dead, and nothing was heard of it since."""
        seen = self._seen.get(model)
        return seen is not None and seen.is_ghost

    def is_own_load(self, model: ModelId) -> bool:
        """Whether it is resident since this gateway loaded it, as far as is known."""
        seen = self._seen.get(model)
        return seen is not None and seen.residency is Residency.HOT

    def note_failed(
        self, model: ModelId, node: NodeId, *, now_s: float, retry_after_s: float | None
    ) -> None:
        """A load that this gateway ordered alone has failed."""
        rest_s = _DEFAULT_COOLDOWN_S if retry_after_s is None else retry_after_s
        self._seen[model] = Seen(
            at_s=now_s, residency=Residency.FAILED, node=node, cooldown_until_s=now_s + rest_s
        )

    def begin_stop(self, model: ModelId) -> None:
        """This gateway is about to stop it: nothing new goes there."""
        self._stopping.add(model)

    def end_stop(self, model: ModelId, node: NodeId, *, now_s: float, stopped: bool) -> None:
        """The stop has ended."""
        self._stopping.discard(model)
        if stopped:
            self._seen[model] = Seen(at_s=now_s, residency=Residency.COLD, node=node)

    def missing_bytes(self, model: ModelId) -> int:
        """What ``model`` needs beyond what its node has free; 0 where that is not known."""
        table = self._table
        route = None if table is None else table.models.get(model)
        if table is None or route is None or not route.footprint_bytes:
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

    def load_p99_s(self, model: ModelId) -> float | None:
        """The longest of its last loads, or what one is expected to take; None: not known."""
        longest_s = self._load_times.longest_s(model)
        if longest_s is not None:
            return longest_s
        route = None if self._table is None else self._table.models.get(model)
        return None if route is None else route.expected_load_s

    def load_budget_s(self, model: ModelId, at_least_s: float) -> float:
        """How long a request may wait for a load: twice the measured 95th percentile."""
        measured_s = self._load_times.percentile_s(model, 0.95)
        if measured_s is not None:
            return max(at_least_s, 2.0 * measured_s)
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
        elapsed_s, expected_s = max(0.0, now_s - started_at_s), route.expected_load_s
        if expected_s is not None and elapsed_s >= expected_s:
            expected_s = None  # it was expected by now: nobody knows any more
        return LoadProgress(state="loading", elapsed_s=elapsed_s, expected_s=expected_s)

    def _last_used_s(self, route: ModelRoute) -> float:
        return max(route.last_used_at_s or 0.0, self._used_at_s.get(route.model, 0.0))

    def _residency(self, route: ModelRoute) -> Residency:
        seen = self._seen.get(route.model)
        return route.residency if seen is None else seen.residency

    def _home(self, route: ModelRoute) -> NodeId:
        seen = self._seen.get(route.model)
        return route.node if seen is None else seen.node

    def _is_alive(self, node: NodeId) -> bool:
        known = None if self._table is None else self._table.nodes.get(node)
        return known is None or known.alive

    def _copy_elsewhere(self, route: ModelRoute) -> NodeId | None:
        """Another node where it is resident and may be asked for."""
        if not route.places:
            return None
        return next(
            (
                copy.node
                for copy in self.copies(route.model)
                if copy.is_resident
                and not copy.is_home
                and copy.is_alive
                and not self.is_shut(copy.node, route.model)
            ),
            None,
        )

    def _is_news_yet(self, model: ModelId, seen: Seen) -> bool:
        """Whether a table does not know yet of the ghost that was seen here."""
        table = self._table
        route = None if table is None else table.models.get(model)
        return (
            table is not None
            and route is not None
            and seen.is_ghost
            and route.residency is Residency.HOT
            and table.made_at_s < seen.at_s + GHOST_UNHEARD_S
        )

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
                self._load_times.note(model, table.made_at_s - before.load_started_at_s)
                self.on_loaded(model, route.node)


@lru_cache(maxsize=64)
def _resident_on(node: NodeId) -> Standing:
    """What most requests find."""
    return Standing(kind=Kind.FORWARD, reason=Reason.RESIDENT, node=node)
