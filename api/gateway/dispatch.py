"""From a pass to an answer's head: choose a node, send, and where that failed try another.

What a request taught is told to the circuits once: as soon as its first content has come, or
when it ends. A request is sent again only while nothing of it can have been done: the
connection was refused, or (for methods that change nothing) broke, or the node does not know
the model; its body must still be here; and no byte of an answer was passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from api.gateway.body import Sendable
from api.gateway.breaker import Breakers, Trial, Verdict
from api.gateway.durations import Durations
from api.gateway.headers import RequestHead
from api.gateway.ledger import Ledger
from api.gateway.live import LiveConfig
from api.gateway.meter import Subject
from api.gateway.problems import Problem, no_backend
from api.gateway.proxy import AnswerCut, Relay
from api.gateway.residency import RouteBook
from api.gateway.roll_call import RollCall
from api.gateway.router import Place, choose, is_makeshift
from api.gateway.slots import SlotBook
from api.gateway.standings import Copy
from api.gateway.timeouts import Limits, limits_of
from contracts.config import NodeConfig
from contracts.ids import ModelId, NodeId
from contracts.ports import Clock
from contracts.reasons import Reason
from contracts.upstream import Broken, Unanswered, Unreachable, UpstreamResponse

MAX_TRIES = 3
"""Nodes that one request is sent to at most."""

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_NOT_FOUND, _CLIENT_ERROR, _SERVER_ERROR = 404, 400, 500
_FOR_NOW = frozenset({503})
"""LocalAI says itself when to come back: it cools down, or has no slot."""
_SAMPLES = 99


class Dispatcher:
    """Knows what goes where, and how it fared.

    Attributes
    ----------
    breakers : Breakers
        The circuits of all nodes.
    ledger : Ledger
        What is in flight.
    retries : mapping
        Requests that were sent once more, by why.
    on_makeshift : callable
        Told of each request that goes to a CPU while its model's GPU does not hold the model.
    on_first_content : callable
        Told how long the first content of an answer took, and of which node it is.
    """

    def __init__(
        self,
        *,
        config: LiveConfig,
        book: RouteBook,
        relay: Relay,
        slots: SlotBook,
        roll_call: RollCall,
        clock: Clock,
    ) -> None:
        self._live = config
        self._book = book
        self._slots = slots
        self._roll_call = roll_call
        self.relay = relay
        self.clock = clock
        self.breakers = Breakers()
        self.ledger = Ledger()
        self.first_bytes = Durations(_SAMPLES)
        self.retries: dict[str, int] = {}
        self.on_makeshift: Callable[[Subject], None] = lambda _subject: None
        self.on_first_content: Callable[[NodeId, float], None] = lambda _node, _took_s: None
        slots.copies = book.copy_count
        book.is_shut = self.is_shut
        book.on_loaded = self._on_loaded
        relay.fleet.in_flight = self.ledger.of_node
        relay.fleet.on_left.append(self._on_left)

    @property
    def nodes(self) -> Mapping[NodeId, NodeConfig]:
        """Those that are there now."""
        return self.relay.fleet.nodes

    def open(self, subject: Subject, node: NodeId | None) -> Errand:
        """The way of one request; ``node`` is where it goes if nothing better is known."""
        self.breakers.failures = self._live.now.balancing.circuit_failures
        return Errand(self, subject, node)

    def is_shut(self, node: NodeId, model: ModelId) -> bool:
        """Whether a circuit lets no request for ``model`` through to ``node``."""
        return self.breakers.rest_s(node, model, self.clock.monotonic_s()) > 0.0

    def is_away(self, node: NodeId) -> bool:
        """Whether ``node`` took no connection lately."""
        return self.breakers.rest_s(node, None, self.clock.monotonic_s()) > 0.0

    def in_flight_away(self) -> dict[ModelId, int]:
        """Requests on another node than the home that the last table names."""
        if len(self.nodes) < 2 or self._book.table is None:
            return {}
        homes = {model: route.node for model, route in self._book.table.models.items()}
        return self.ledger.away(homes)

    def limits(self, model: ModelId | None) -> Limits:
        """How long a request to ``model`` may take for what."""
        config = self._live.now
        if model is None:
            return limits_of(config, None, load_p99_s=None, ttft_p99_s=None)
        return limits_of(
            config,
            model,
            load_p99_s=self._book.load_p99_s(model),
            ttft_p99_s=self.first_bytes.longest_s(model),
        )

    def choose(self, subject: Subject, node: NodeId | None, tried: frozenset[NodeId]) -> NodeConfig:
        """The node for a request that was sent to ``tried`` in vain. Raises Problem (503)."""
        now_s = self.clock.monotonic_s()
        if len(self.nodes) == 1:
            only = self.relay.node_for(None)
            rest_s = self.breakers.rest_s(only.node, subject.model, now_s)
            if rest_s > 0.0:
                raise _shut(subject.model, rest_s)
            return only
        places = [place for place in self._places(subject, node, now_s) if place.node not in tried]
        balancing = self._live.now.balancing
        choice = choose(
            places,
            subject.priority,
            strategy=balancing.strategy,
            weights=balancing.weights,
            turns=self.ledger.turns(subject.model) if subject.model is not None else None,
        )
        if choice is None:
            rests_s = [self.breakers.rest_s(place.node, subject.model, now_s) for place in places]
            raise _shut(subject.model, min(rests_s, default=0.0))
        if is_makeshift(places, choice.node):
            self.on_makeshift(subject)
        if subject.model is not None:
            self.ledger.note_client(subject.client, subject.model, choice.node, now_s)
            if choice.turns is not None:
                self.ledger.keep_turns(subject.model, choice.turns)
        return self.nodes[choice.node]

    def others(self, subject: Subject, tried: frozenset[NodeId]) -> bool:
        """Whether another node is there to be asked for the model."""
        now_s = self.clock.monotonic_s()
        return any(
            place.closed and place.node not in tried for place in self._places(subject, None, now_s)
        )

    def strangers(self, subject: Subject, tried: frozenset[NodeId]) -> NodeId | None:
        """A node that was not asked yet, whether it is known to have the model or not.

        Lists are as old as the last look at them: the model may have moved meanwhile.
        """
        now_s = self.clock.monotonic_s()
        known = {place.node for place in self._places(subject, None, now_s)}
        return min(
            (
                node
                for node in self.nodes
                if node not in tried and not self.breakers.rest_s(node, subject.model, now_s)
            ),
            key=lambda node: (node not in known, node),
            default=None,
        )

    def ask_for_lists(self) -> None:
        """A node did not know a model that it should have."""
        self._roll_call.ask_now()

    def note_retry(self, why: str) -> None:
        """A request is sent once more."""
        self.retries[why] = self.retries.get(why, 0) + 1

    def _places(self, subject: Subject, node: NodeId | None, now_s: float) -> list[Place]:
        """The nodes of this gateway that know the model; the primary where nothing is known."""
        model = subject.model
        copies = () if model is None else self._book.copies(model) or self._roll_call.copies(model)
        here = [copy for copy in copies if copy.node in self.nodes]
        if not here:
            default = self.relay.node_for(node).node
            here = [Copy(node=default, is_home=True, is_resident=False)]
        last = None if model is None else self.ledger.last_node(subject.client, model, now_s)
        slots = None if model is None else self._slots.of_a_copy(model, now_s)
        return [self._place(copy, model, slots, last, now_s) for copy in here]

    def _place(
        self,
        copy: Copy,
        model: ModelId | None,
        slots: int | None,
        last: NodeId | None,
        now_s: float,
    ) -> Place:
        config = self.nodes[copy.node]
        table = self._book.table
        told = None if table is None else table.nodes.get(copy.node)
        own = self.ledger.of_node(copy.node)
        return Place(
            node=copy.node,
            accelerator=config.accelerator,
            is_home=copy.is_home,
            is_primary=copy.node == self.relay.primary,
            is_resident=copy.is_resident,
            is_alive=copy.is_alive,
            closed=not self.breakers.rest_s(copy.node, model, now_s),
            in_flight=self.ledger.of_model(copy.node, model),
            slots=slots,
            node_in_flight=own if told is None else max(own, told.in_flight),
            was_last=copy.node == last,
        )

    def _on_left(self, node: NodeId) -> None:
        self.breakers.forget_node(node)
        self.ledger.forget_node(node)
        self._roll_call.forget(node)

    def _on_loaded(self, model: ModelId, node: NodeId) -> None:
        """A new process: what the one before it did says nothing of it."""
        self.breakers.forget(node, model)


class Errand:
    """One request on its way; ``close`` must be called in the end.

    Attributes
    ----------
    limits : Limits
        How long it may take for what.
    node : NodeId or None
        Where it was sent last.
    """

    __slots__ = (
        "_dispatcher",
        "_home",
        "_is_counted",
        "_sent_s",
        "_subject",
        "_trial",
        "_tried",
        "limits",
        "node",
    )

    def __init__(self, dispatcher: Dispatcher, subject: Subject, home: NodeId | None) -> None:
        self._dispatcher = dispatcher
        self._subject = subject
        self._home = home
        self._tried: frozenset[NodeId] = frozenset()
        self._trial: Trial | None = None
        self._sent_s = 0.0
        self._is_counted = False
        self.limits = dispatcher.limits(subject.model)
        self.node: NodeId | None = None

    def begin(self) -> NodeConfig:
        """Choose the next node, and count the request there. Raises Problem (503)."""
        return self._go(self._dispatcher.choose(self._subject, self._home, self._tried))

    async def send(
        self,
        head: RequestHead,
        body: Sendable | None,
        *,
        drop: Iterable[bytes] = (),
        on_node: Callable[[NodeConfig], None] = lambda _node: None,
    ) -> UpstreamResponse:
        """Send it until there is the head of an answer. Raises Problem or CallerLeft.

        ``on_node`` is told each node just before the request goes there.
        """
        dispatcher = self._dispatcher
        node = self.begin()
        while True:
            on_node(node)
            try:
                response = await dispatcher.relay.send(
                    head, body, node, drop=drop, limits=self.limits
                )
            except Problem as problem:
                if not self._may_go_on(problem, head, body):
                    raise
                node = self.begin()
                continue
            if response.status == _NOT_FOUND and (other := self._stranger(body)) is not None:
                response.close()
                self._end(Verdict.UNJUDGED)
                dispatcher.note_retry("not_found")
                dispatcher.ask_for_lists()
                node = self._go(dispatcher.nodes[other])
                continue
            return response

    def note_first_content(self) -> None:
        """Its first content has come: whatever follows, the model works."""
        if self._trial is None:
            return
        dispatcher, model = self._dispatcher, self._subject.model
        took_s = dispatcher.clock.monotonic_s() - self._sent_s
        if model is not None:
            dispatcher.first_bytes.note(model, took_s)
        dispatcher.on_first_content(self._trial.node, took_s)
        self._judge(Verdict.WORKED)

    def answered(self, status: int, *, is_whole: bool) -> None:
        """Its answer was relayed to its end; not ``is_whole``: it ended in an error."""
        if status >= _SERVER_ERROR:
            self._judge(Verdict.UNJUDGED if status in _FOR_NOW else Verdict.FAILED)
        elif status < _CLIENT_ERROR:
            self._judge(Verdict.WORKED if is_whole else Verdict.FAILED)

    def broke(self, error: Problem | AnswerCut) -> None:
        """Its answer broke off."""
        if isinstance(error, AnswerCut):
            cause = error.__cause__
            if error.by_caller or not isinstance(cause, Problem):
                return
            error = cause
        self._judge(verdict_of(error))

    def close(self) -> None:
        """It has ended, one way or another."""
        self._end(Verdict.UNJUDGED)

    def _go(self, node: NodeConfig) -> NodeConfig:
        dispatcher, model = self._dispatcher, self._subject.model
        self._sent_s = dispatcher.clock.monotonic_s()
        self._tried |= {node.node}
        self._trial = dispatcher.breakers.begin(node.node, model, self._sent_s)
        dispatcher.ledger.begin(node.node, model)
        self._is_counted = True
        self.node = node.node
        return node

    def _may_go_on(self, problem: Problem, head: RequestHead, body: Sendable | None) -> bool:
        """Judge a request that got no answer: whether another node may be asked."""
        verdict = verdict_of(problem)
        self._end(verdict)
        is_unsent = verdict is Verdict.REFUSED
        is_repeatable = is_unsent or (verdict is Verdict.FAILED and head.method in _SAFE_METHODS)
        if not is_repeatable or not self._may_try_again(body):
            return False
        if not self._dispatcher.others(self._subject, self._tried):
            return False
        self._dispatcher.note_retry("refused" if is_unsent else "broken")
        return True

    def _stranger(self, body: Sendable | None) -> NodeId | None:
        """Once: where else to ask for a model that a node says it does not have."""
        if len(self._tried) > 1 or self._subject.model is None or not self._may_try_again(body):
            return None
        return self._dispatcher.strangers(self._subject, self._tried)

    def _may_try_again(self, body: Sendable | None) -> bool:
        return len(self._tried) < MAX_TRIES and (body is None or body.can_be_sent_again)

    def _judge(self, verdict: Verdict) -> None:
        if self._trial is not None:
            dispatcher = self._dispatcher
            dispatcher.breakers.end(self._trial, verdict, dispatcher.clock.monotonic_s())
            self._trial = None

    def _end(self, verdict: Verdict) -> None:
        self._judge(verdict)
        if self.node is not None and self._is_counted:
            self._dispatcher.ledger.end(self.node, self._subject.model)
            self._is_counted = False


def verdict_of(problem: Problem) -> Verdict:
    """What a request that failed on the way says of its node and model."""
    match problem.__cause__:
        case Unreachable() | Unanswered():
            return Verdict.REFUSED
        case Broken():
            return Verdict.FAILED
        case _:
            pass
    return Verdict.SILENT if problem.type == "upstream_timeout" else Verdict.UNJUDGED


def _shut(model: ModelId | None, rest_s: float) -> Problem:
    what = "No LocalAI" if model is None else f"No LocalAI that has {model}"
    return no_backend(
        f"{what} can be asked now: the last requests failed. Try again later.",
        retry_after_s=max(1.0, rest_s),
        decision=Reason.UPSTREAM_ERROR,
    )
