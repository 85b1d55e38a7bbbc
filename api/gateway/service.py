"""One gateway, put together from ports: the app that serves, and what runs beside it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from api.gateway.admission import Admission
from api.gateway.app import GatewayApp
from api.gateway.backend_metrics import BackendMetrics
from api.gateway.controller_link import ControllerLink
from api.gateway.detours import Detours
from api.gateway.dispatch import Dispatcher
from api.gateway.fleet import Fleet, FleetDoors
from api.gateway.gate import Gate
from api.gateway.ghosts import GhostDesk
from api.gateway.group_shares import GroupShares
from api.gateway.health_checks import HealthCheckDesk
from api.gateway.inference import InferenceDesk
from api.gateway.jobs_desk import JobsDesk
from api.gateway.known_names import KnownNames
from api.gateway.list_desk import ListDesk
from api.gateway.live import LiveConfig
from api.gateway.lone_loads import LoneLoads
from api.gateway.makeshift import MakeshiftDesk
from api.gateway.metrics import GatewayMetrics
from api.gateway.model_lists import ModelLists
from api.gateway.own_paths import Links, OwnPaths
from api.gateway.peers import GONE_AFTER_S, Peers
from api.gateway.proxy import Relay
from api.gateway.recognition import Recogniser
from api.gateway.residency import RouteBook
from api.gateway.roll_call import RollCall
from api.gateway.slots import SlotBook
from api.gateway.telemetry import Telemetry
from api.gateway.waiting_room import WaitingRoom
from api.gateway.websockets import WebsocketDesk
from contracts.config import GatewayConfig, is_same_fleet
from contracts.errors import Invalid
from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId, NodeId
from contracts.messages import ToController, ToGateways
from contracts.ports import Clock, EventLog, LoadLock, Mailbox, ModelServer, SnapshotStore
from contracts.routing import RoutingTable
from contracts.upstream import Upstream

_log = structlog.get_logger("gateway")

_LEAVING_REAL_S = 2.0
_JOB_PAUSE_REAL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPorts:
    """The gateway's ways to the outside. Those that are None need a Redis, and there is none."""

    clock: Clock
    upstreams: Mapping[NodeId, Upstream]
    servers: Mapping[NodeId, ModelServer]
    events: EventLog | None = None
    to_controller: Mailbox[ToController] | None = None
    to_gateways: Mailbox[ToGateways] | None = None
    snapshots: SnapshotStore | None = None
    load_lock: LoadLock | None = None
    control: Upstream | None = None
    """The way to the control API, for files, batches and background jobs."""
    doors: FleetDoors | None = None
    """Opens and closes ``upstreams`` and ``servers`` of nodes that come and go; None: none does."""


class GatewayService:
    """``app`` is the ASGI callable; ``run`` is everything beside it.

    Raises Invalid when the configuration names no LocalAI.
    """

    def __init__(self, gateway: GatewayId, config: GatewayConfig, ports: GatewayPorts) -> None:
        if not config.nodes:
            raise Invalid("no LocalAI is configured: set HEADSTART_LOCALAI_URL")
        self._live = live = LiveConfig(config)
        self._ports = ports
        clock = ports.clock
        self._book = book = RouteBook()
        self._admission = Admission(
            config.queue, SlotBook(config.slots), GroupShares(config.groups)
        )
        self.telemetry = Telemetry(ports.events, clock, gateway)
        self._metrics = metrics = GatewayMetrics(book.lists)
        self._links = Links(None if ports.to_gateways is None else False)
        self._fleet = fleet = Fleet(live, ports.servers, ports.doors, clock)
        book.on_table = fleet.follow
        self._relay = relay = Relay(live, ports.upstreams, clock, fleet)
        self._roll_call = RollCall(
            servers=fleet.servers,
            primary=lambda: fleet.primary,
            book=book,
            clock=clock,
            is_moving=fleet.is_moving,
        )
        self._dispatcher = Dispatcher(
            config=live,
            book=book,
            relay=relay,
            slots=self._admission.slots,
            roll_call=self._roll_call,
            clock=clock,
        )
        self._makeshifts = MakeshiftDesk(
            gateway=gateway, to_controller=ports.to_controller, clock=clock
        )
        self._dispatcher.on_makeshift = self._makeshifts.note
        self._model_lists = ModelLists(relay=relay, is_shut=self._dispatcher.is_away, clock=clock)
        BackendMetrics(metrics.registry, self._dispatcher, self._model_lists)
        self._lone_loads, self.room = self._make_room(gateway)
        peers = Peers(gateway, gone_after_s=max(GONE_AFTER_S, clock.scale))
        self._admission.slots.share = peers.slots
        self._admission.places = peers.places
        self.gate = Gate(live, book, clock, peers)
        self.link = ControllerLink(
            gateway=gateway,
            book=book,
            admission=self._admission,
            room=self.room,
            to_controller=ports.to_controller,
            to_gateways=ports.to_gateways,
            snapshots=ports.snapshots,
            links=self._links,
            clock=clock,
            in_flight_away=self._dispatcher.in_flight_away,
            peers=peers,
            admitted=lambda: self.gate.admitted,
        )
        self.app = self._make_app(gateway)
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving_since_s: float | None = None
        metrics.read_from(self)

    async def start(self) -> None:
        """Begin what runs beside the app. The app serves at once, whatever is away."""
        for job in (self.telemetry.run, *self._roll_call.jobs(), *self.link.jobs()):
            running = _kept_running(job, self._ports.clock)
            self._tasks.append(asyncio.get_running_loop().create_task(running))

    @property
    def shutdown_grace_s(self) -> float:
        """How long what runs may go on after ``leave``."""
        return self._live.now.shutdown_grace_s

    def reload(self, config: GatewayConfig) -> None:
        """Requests that come from now on are served by ``config``; those that are here keep theirs.

        Where the gateway listens, which LocalAIs there are and its Redis stay as they are until a
        restart; addresses and keys of the same LocalAIs may change (``is_same_fleet``).
        """
        now = self._live.now
        nodes = config.nodes if is_same_fleet(now.nodes, config.nodes) else now.nodes
        kept = replace(config, host=now.host, port=now.port, nodes=nodes)
        self._live.replace(kept)
        self._fleet.reload(kept)
        self.gate.renew()
        self._admission.configure(kept.queue, kept.slots, kept.groups)
        self.room.reconsider_all()
        if now.asks_for_keys and not kept.asks_for_keys:
            _log.warning("keys_gone", consequence="no key is asked for any more")

    def refused_at_edge(self, code: str) -> None:
        """A caller was refused before its request was anybody's."""
        self._metrics.refused(code)

    def leave(self) -> None:
        """The server was told to stop: who waits is told so; what runs has the grace from here."""
        if self._leaving_since_s is None:
            self._leaving_since_s = self._ports.clock.monotonic_s()
            self.room.shut()

    def leave_now(self) -> None:
        """There is no grace any more."""
        self.leave()
        self._leaving_since_s = -math.inf
        self._lone_loads.give_up()

    async def stop(self) -> None:
        """End, after the last request has: write what is left and say goodbye."""
        self.leave()
        await self.room.close()
        await self._lone_loads.close(self._rest_of_grace_s())
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        try:
            async with self._ports.clock.timeout(_LEAVING_REAL_S * self._ports.clock.scale):
                await self.link.say_goodbye()
                await self.telemetry.close()
        except TimeoutError:
            _log.warning("leaving_unsaid", events_lost=self.telemetry.pending)
        await self._fleet.close()
        for upstream in tuple(self._ports.upstreams.values()):
            await upstream.close()
        if self._ports.control is not None:
            await self._ports.control.close()

    @property
    def routing(self) -> RoutingTable | None:
        """The table that requests go by; None before the first."""
        return self._book.table

    def in_flight(self) -> Mapping[ModelId, int]:
        """Requests that LocalAI works on for us, by model."""
        return self._admission.running

    def waiting(self) -> Mapping[ModelId, int]:
        """Requests that wait, by model."""
        return self.room.waiting

    def queued(self) -> Mapping[PriorityClass, int]:
        """Requests that wait, by class."""
        return self._admission.queued

    def events(self) -> Mapping[str, int]:
        """Telemetry events by their fate."""
        return {"written": self.telemetry.written, "dropped": self.telemetry.dropped}

    def table_age_s(self) -> float | None:
        """Age of the last routing table."""
        table = self._book.table
        return None if table is None else max(0.0, self._ports.clock.now_s() - table.made_at_s)

    def _rest_of_grace_s(self) -> float:
        now_s = self._ports.clock.monotonic_s()
        since_s = now_s if self._leaving_since_s is None else self._leaving_since_s
        return max(0.0, self.shutdown_grace_s - (now_s - since_s))

    def _make_room(self, gateway: GatewayId) -> tuple[LoneLoads, WaitingRoom]:
        """Where requests wait for their models, and what loads these without a controller."""
        ports, clock = self._ports, self._ports.clock
        lone_loads = LoneLoads(
            owner=gateway,
            servers=self._fleet.servers,
            lock=ports.load_lock,
            book=self._book,
            admission=self._admission,
            telemetry=self.telemetry,
            metrics=self._metrics,
            clock=clock,
        )
        room = WaitingRoom(
            gateway=gateway,
            config=self._live,
            book=self._book,
            admission=self._admission,
            lone_loads=lone_loads,
            to_controller=ports.to_controller,
            clock=clock,
        )
        return lone_loads, room

    def _make_app(self, gateway: GatewayId) -> GatewayApp:
        config, clock = self._live, self._ports.clock
        # Gateways of one deployment have the same nodes, and others have not.
        salt = "\0".join(sorted({node.behind or node.url for node in config.now.nodes}))
        recogniser = Recogniser(gateway=gateway, config=config, book=self._book, salt=salt)
        relay = self._relay
        desk = self._inference_desk(gateway, recogniser)
        websockets = WebsocketDesk(
            config=config,
            desk=desk,
            recogniser=recogniser,
            room=self.room,
            relay=relay,
            dispatcher=self._dispatcher,
            clock=clock,
        )
        own = OwnPaths(
            relay=relay, book=self._book, links=self._links, metrics=self._metrics, clock=clock
        )
        return GatewayApp(
            config=config,
            desk=desk,
            health_checks=HealthCheckDesk(
                config=config,
                recogniser=recogniser,
                book=self._book,
                relay=relay,
                metrics=self._metrics,
                clock=clock,
            ),
            jobs=JobsDesk(
                self._ports.control,
                config=config,
                relay=relay,
                metrics=self._metrics,
                clock=clock,
            ),
            websockets=websockets,
            relay=relay,
            own=own,
            recogniser=recogniser,
            telemetry=self.telemetry,
            metrics=self._metrics,
            gate=self.gate,
            lists=ListDesk(config, self.gate, self._book, clock),
            model_lists=self._model_lists,
        )

    def _inference_desk(self, gateway: GatewayId, recogniser: Recogniser) -> InferenceDesk:
        clock = self._ports.clock
        return InferenceDesk(
            config=self._live,
            recogniser=recogniser,
            room=self.room,
            relay=self._relay,
            dispatcher=self._dispatcher,
            ghosts=GhostDesk(
                gateway=gateway,
                book=self._book,
                servers=self._fleet.servers,
                to_controller=self._ports.to_controller,
                clock=clock,
            ),
            detours=Detours(
                book=self._book,
                admission=self._admission,
                held=self.room.held,
                clock=clock,
            ),
            names=KnownNames(book=self._book, servers=self._fleet.servers, clock=clock),
            telemetry=self.telemetry,
            metrics=self._metrics,
            clock=clock,
        )


async def _kept_running(job: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """A job that fails is a bug and told as one; the gateway has it begin again."""
    while True:
        try:
            await job()
        except Exception:  # noqa: BLE001 - whatever it was, the gateway needs its jobs
            _log.exception("gateway_job_failed")
            await clock.sleep(_JOB_PAUSE_REAL_S * clock.scale)
        else:
            return
