"""The deciding code of every process as ``bench scale`` drives it: called directly, charged each.

What is left out is what waits: sockets, HTTP, Redis' client. ``bench gateway`` measures those.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from adapters.codec import decode, encode
from api.control.board import Board
from api.control.feed import EventFeed
from api.control.metrics import ControlMetrics, render
from api.gateway.admission import Admission, Ticket, Verdict
from api.gateway.meter import RequestMeter, Subject
from api.gateway.metrics import GatewayMetrics
from api.gateway.residency import Kind, RouteBook
from api.gateway.slots import SlotBook
from api.gateway.telemetry import Telemetry
from contracts.config import PlannerConfig, PredictorConfig, QueueConfig
from contracts.events import AnyEvent, PriorityClass, RequestDispatched, RequestReceived
from contracts.forecasts import ModelForecast
from contracts.ids import GatewayId, ModelId, RequestId
from contracts.messages import GatewayBeat, LoadWanted
from contracts.plan import Action, PlannerState
from contracts.routing import RoutingTable
from contracts.world import WorldSnapshot
from controller.beats import fold_beat
from controller.copies import copies_in_the_way
from controller.fold import commit, fold
from controller.homes import rehomed
from controller.lulls import background_limits
from controller.open_requests import fold_wanted
from controller.planner import plan
from controller.referee import Referee
from controller.routes import is_news, load_answer, routing_table
from controller.scoreboard import Scoreboard
from controller.strains import with_strains
from controller.thawed import frozen, thawed
from predictor.engine import PredictorEngine
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryEventLog
from simulator.scale_costs import CostBook
from simulator.scale_fleet import Ask

REALTIME = PriorityClass.REALTIME


class Tape(Telemetry):
    """Telemetry whose events are taken from it instead of being written."""

    def __init__(self, clock: VirtualClock, source: str) -> None:
        super().__init__(MemoryEventLog(clock=clock), clock, source)
        self.events: list[AnyEvent] = []

    def emit(self, event: AnyEvent) -> None:
        """Keep it."""
        self.events.append(event)


class Held:
    """One request in a gateway."""

    __slots__ = ("ask", "is_cold", "meter", "source", "ticket")

    def __init__(self, ask: Ask, source: GatewayId, ticket: Ticket, meter: RequestMeter) -> None:
        self.ask = ask
        self.source = source
        self.ticket = ticket
        self.meter = meter
        self.is_cold = False


class GatewayPart:
    """One gateway that takes all requests: routes, admission, events and figures.

    Every real one takes its share of the requests, and every routing table.
    """

    def __init__(self, book: CostBook, clock: VirtualClock, gateways: int) -> None:
        self._costs = book
        self._clock = clock
        self.names = [GatewayId(f"gateway-{number}") for number in range(gateways)]
        self._routes = RouteBook()
        capacity = dict.fromkeys(PriorityClass, 1_000_000)
        self._admission = Admission(QueueConfig(capacity=capacity), SlotBook({}))
        self._metrics = GatewayMetrics(self._routes.lists)
        self._tapes = [Tape(clock, name) for name in self.names]
        self._count = 0
        self._running: dict[GatewayId, Counter[ModelId]] = {name: Counter() for name in self.names}
        self.waiting: dict[ModelId, list[Held]] = {}

    def take_events(self) -> list[AnyEvent]:
        """What happened since the last time, oldest first."""
        events = [event for tape in self._tapes for event in tape.events]
        for tape in self._tapes:
            tape.events = []
        return sorted(events, key=lambda event: event.at_s)

    def take_table(self, data: bytes) -> None:
        """A routing table has come."""
        with self._costs.timed("gateway.table"):
            table = decode(data)
            assert isinstance(table, RoutingTable)
            if self._routes.accept(table):
                self._admission.tell(table.models.values())

    def receive(self, ask: Ask) -> Held:
        """A request comes in; what is waited for is kept in ``waiting``."""
        self._count += 1
        which = self._count % len(self._tapes)
        tape = self._tapes[which]
        ticket = Ticket(
            request_id=RequestId(f"{tape.source}-r{self._count}"),
            model=ask.model,
            priority=REALTIME,
            arrived_at_s=self._clock.monotonic_s(),
            client="c" * 16,
        )
        subject = Subject(
            request_id=ticket.request_id,
            model=ask.model,
            operation="chat",
            priority=REALTIME,
            client=ticket.client,
            stream=True,
        )
        meter = RequestMeter(subject, telemetry=tape, metrics=self._metrics, clock=self._clock)
        return Held(ask, self.names[which], ticket, meter)

    def lets_go(self, held: Held) -> bool:
        """Whether its model is resident; then it goes to its node."""
        now_s = self._clock.now_s()
        standing = self._routes.standing(held.ask.model, now_s)
        if standing.kind is not Kind.FORWARD or standing.node is None:
            held.is_cold = True
            return False
        if self._admission.arrive(held.ticket, ready=True) is not Verdict.GO:
            raise AssertionError("there is a slot for everybody here")
        self._running[held.source][held.ask.model] += 1
        held.meter.dispatched(
            node=standing.node, queue_wait_s=now_s - held.ask.at_s, cold=held.is_cold
        )
        return True

    def first_content(self, held: Held) -> None:
        """Its first content went out."""
        held.meter.first_content(self._clock.monotonic_s())

    def ended(self, held: Held) -> None:
        """Its whole answer went out."""
        held.meter.completed(status=200)
        self._admission.end(held.ticket, held.ask.service_s)
        self._running[held.source][held.ask.model] -= 1

    def beats(self, now_s: float) -> list[GatewayBeat]:
        """What all of them say each second."""
        waiting: dict[GatewayId, Counter[ModelId]] = {name: Counter() for name in self.names}
        for model, held in self.waiting.items():
            for one in held:
                waiting[one.source][model] += 1
        return [
            GatewayBeat(gateway=name, at_s=now_s, in_flight=+running, waiting=waiting[name])
            for name, running in self._running.items()
        ]


class ControllerPart:
    """The leader's work: fold what happened, plan, publish."""

    def __init__(self, book: CostBook, world: WorldSnapshot, config: PlannerConfig) -> None:
        self._costs = book
        self._config = config
        self.world = world
        self._state = PlannerState()
        self._scores = Scoreboard()
        self._referee = Referee()
        self.forecasts: dict[ModelId, ModelForecast] = {}
        self._table: RoutingTable | None = None
        self._round_began_s = book.cpu_s()

    def take(self, events: Sequence[AnyEvent]) -> None:
        """As ``Leader`` takes entries of the log."""
        with self._costs.timed("controller.fold", len(events)):
            self.world = thawed(self.world)
            for event in events:
                self.world = fold(self.world, event)
                if isinstance(event, RequestDispatched):
                    self._scores = self._scores.dispatched(event, self.world, self._config)
                self._referee.heard(event, self.world, self.forecasts, self._config)
            self.world = frozen(self.world, position="0-1")

    def hear(self, beats: Sequence[GatewayBeat]) -> None:
        """Beats of gateways, which say whose requests are still open."""
        with self._costs.timed("controller.beat", len(beats)):
            for beat in beats:
                self.world = fold_beat(self.world, beat)

    def wanted(self, messages: Sequence[LoadWanted]) -> None:
        """Gateways hold requests."""
        with self._costs.timed("controller.wanted", len(messages)):
            for message in messages:
                self.world = fold_wanted(self.world, message)

    def plan(self, now_s: float) -> tuple[Action, ...]:
        """One round up to the orders."""
        timed, config = self._costs.timed, self._config
        began_s = self._costs.cpu_s()
        self.world = replace(self.world, taken_at_s=max(now_s, self.world.taken_at_s))
        with timed("controller.strains"):
            self.world = with_strains(self.world, config)
        with timed("controller.homes"):
            self.world, _ = rehomed(self.world, config, {})
        with timed("controller.plan"):
            result = plan(
                world=self.world, forecasts=self.forecasts, state=self._state, config=config
            )
        self._state = result.state
        with timed("controller.commit"):
            self.world = commit(self.world, result.plan)
            copies_in_the_way(self.world, config, ())
        if result.plan.decisions:
            sizes = [len(encode(decision)) for decision in result.plan.decisions]
            self._costs.sized("decisions", sum(sizes))
            self._costs.charge("decisions", 0.0, len(sizes))
        self._round_began_s = began_s
        return result.plan.actions

    def table(self) -> bytes | None:
        """The routing table as it is sent; None: nobody needs to be told."""
        with self._costs.timed("controller.table"):
            table = routing_table(
                self.world,
                token=1,
                config=self._config,
                profiles={},
                draining={},
                aliases={},
            )
            news = is_news(table, self._table)
            data = encode(table) if news else None
        self._costs.charge("controller.round", self._costs.cpu_s() - self._round_began_s)
        if data is not None:
            self._table = table
            self._costs.sized("table", len(data))
        return data

    def answer(self, model: ModelId) -> None:
        """What a gateway is told that waits."""
        with self._costs.timed("controller.answer"):
            encode(load_answer(self.world, self._state, model))

    def bulletin(self) -> bytes:
        """What is published once a second."""
        with self._costs.timed("controller.bulletin"):
            background_limits(self.world, self.forecasts, self._config, slots=8)
            self._scores.figures()
            self._referee.figures(self.world, self.forecasts, self._config)
            data = encode(self.world)
        self._costs.sized("world", len(data))
        return data

    def take_forecasts(self, data: Sequence[bytes]) -> None:
        """Forecasts that were published."""
        with self._costs.timed("controller.forecast", len(data)):
            for one in data:
                forecast = decode(one)
                assert isinstance(forecast, ModelForecast)
                self.forecasts[forecast.model] = forecast


class PredictorPart:
    """The predictor's work: learn from every event, renew and publish."""

    def __init__(self, book: CostBook, models: int) -> None:
        self._costs = book
        self._engine = PredictorEngine(PredictorConfig(max_models=max(models, 5000)))
        self._published_s = float("-inf")

    def take(self, events: Sequence[AnyEvent]) -> None:
        """As the service takes entries of the log."""
        with self._costs.timed("predictor.observe", len(events)):
            for event in events:
                self._engine.observe(event)

    def publish(self, now_s: float, *, publish_s: float = 10.0) -> list[bytes]:
        """Everything each ten seconds, else what changed, once a second."""
        if now_s - self._published_s >= publish_s:
            self._published_s = now_s
            with self._costs.timed("predictor.tick"):
                forecasts = self._engine.tick(now_s)
        else:
            with self._costs.timed("predictor.renew"):
                forecasts = self._engine.renewals(now_s)
        with self._costs.timed("predictor.encode", len(forecasts)):
            data = [encode(forecast) for forecast in forecasts]
        self._costs.sized("forecasts", sum(map(len, data)))
        return data


class ControlPart:
    """The control API's work while nobody looks, but for a scraper."""

    def __init__(self, book: CostBook, clock: VirtualClock) -> None:
        self._costs = book
        self._board = Board(default_target_s=2.0)
        self._clock = clock
        self._metrics = ControlMetrics(
            self._board, EventFeed(boot="b"), MemoryEventLog(clock=clock), clock
        )

    def take(self, events: Sequence[AnyEvent]) -> None:
        """As the followers take entries of the log."""
        board = self._board
        with self._costs.timed("control.observe", len(events)):
            for event in events:
                board.history.counting_since(event.at_s)
                board.tally.observe(event)
                board.kpis.observe(event)
                if isinstance(event, RequestReceived) and event.model is not None:
                    board.history.arrived(event.model, event.at_s)

    def take_forecasts(self, data: Sequence[bytes]) -> None:
        """Forecasts that were published."""
        with self._costs.timed("control.forecast", len(data)):
            found = [decode(one) for one in data]
            self._board.take_forecasts(f for f in found if isinstance(f, ModelForecast))

    def look(self, world: bytes, table: bytes | None) -> None:
        """What is read once a second."""
        board = self._board
        with self._costs.timed("control.look"):
            seen = decode(world)
            assert isinstance(seen, WorldSnapshot)
            board.world = seen
            if table is not None:
                routing = decode(table)
                assert isinstance(routing, RoutingTable)
                board.routing = routing
            board.kpis.saw(seen, self._clock.now_s())

    def scrape(self) -> None:
        """Prometheus asks."""
        with self._costs.timed("control.scrape"):
            page = render(self._metrics.read())
        self._costs.sized("control_page", len(page))
