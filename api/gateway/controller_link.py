"""What goes between this gateway and the controller: tables and answers in, beats out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping

from api.gateway.admission import Admission
from api.gateway.faults import Fault
from api.gateway.own_paths import Links
from api.gateway.peers import Peers
from api.gateway.residency import RouteBook
from api.gateway.waiting_room import WaitingRoom
from contracts.errors import HeadstartError
from contracts.ids import GatewayId, ModelId
from contracts.messages import GatewayBeat, LoadAnswer, ToController, ToGateways
from contracts.ports import Clock, Mailbox, SnapshotStore
from contracts.routing import RoutingTable

BEAT_S = 1.0
_BLOCK_REAL_S = 1.0
_RETRY_REAL_S = 0.5


class ControllerLink:
    """Listens and beats until cancelled; patient while Redis is away."""

    def __init__(
        self,
        *,
        gateway: GatewayId,
        book: RouteBook,
        admission: Admission,
        room: WaitingRoom,
        to_controller: Mailbox[ToController] | None,
        to_gateways: Mailbox[ToGateways] | None,
        snapshots: SnapshotStore | None,
        links: Links,
        clock: Clock,
        in_flight_away: Callable[[], Mapping[ModelId, int]] = dict,
        peers: Peers,
        admitted: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._gateway = gateway
        self._book = book
        self._admission = admission
        self._room = room
        self._to_controller = to_controller
        self._to_gateways = to_gateways
        self._snapshots = snapshots
        self._links = links
        self._clock = clock
        self._in_flight_away = in_flight_away
        self._peers = peers
        self._admitted = admitted
        self._hurry = room.idle
        self._beat_fault = Fault("beat_not_sent")
        self._listen_fault = Fault("redis_away")
        self._overhear_fault = Fault("peers_not_heard")

    def jobs(self) -> tuple[Callable[[], Coroutine[object, object, None]], ...]:
        """What has to run; nothing without Redis."""
        jobs: list[Callable[[], Coroutine[object, object, None]]] = []
        if self._to_gateways is not None:
            jobs.append(self.listen)
        if self._to_controller is not None:
            jobs.append(self.beat)
            jobs.append(self.overhear)
        return tuple(jobs)

    async def listen(self) -> None:
        """Take tables and answers as they come, and the stored table after each outage."""
        assert self._to_gateways is not None
        place: str | None = None
        while True:
            try:
                if place is None:
                    # First the place, then the stored table: nothing falls between the two.
                    place, _ = await self._to_gateways.receive("$", block_s=0.0)
                    await self._read_stored_table()
                    self._links.redis_is_up = True
                    self._listen_fault.end()
                place, messages = await self._to_gateways.receive(place, block_s=_BLOCK_REAL_S)
            except HeadstartError as error:
                self._links.redis_is_up = False
                self._listen_fault.begin(error)
                # The log may have been lost with the server: its places mean nothing then.
                place = None
                await self._clock.sleep(_RETRY_REAL_S * self._clock.scale)
                continue
            for message in messages:
                self.take(message)

    async def beat(self) -> None:
        """Say each second that we live, and at once when it matters to a drain."""
        while True:
            await self._send_beat()
            try:
                async with self._clock.timeout(BEAT_S):
                    await self._hurry.wait()
            except TimeoutError:
                pass
            self._hurry.clear()

    async def overhear(self) -> None:
        """Hear the beats of other gateways; while Redis is away all of them count as gone."""
        assert self._to_controller is not None
        place = "$"
        while True:
            try:
                place, messages = await self._to_controller.receive(place, block_s=_BLOCK_REAL_S)
            except HeadstartError as error:
                self._overhear_fault.begin(error)
                place = "$"
                await self._clock.sleep(_RETRY_REAL_S * self._clock.scale)
                messages = ()
            else:
                self._overhear_fault.end()
            now_s = self._clock.monotonic_s()
            for message in messages:
                if isinstance(message, GatewayBeat):
                    self._peers.hear(message, now_s)
            self._peers.forget_silent(now_s)

    async def say_goodbye(self) -> None:
        """The last beat: everything has ended here."""
        await self._send_beat(leaving=True)

    def take(self, message: ToGateways) -> None:
        """One message of the controller."""
        match message:
            case RoutingTable():
                self._take_table(message, is_live=True)
            case LoadAnswer():
                self._room.on_answer(message)

    def _take_table(self, table: RoutingTable, *, is_live: bool) -> None:
        before = set(self._book.draining.values())
        self._room.on_table(table, is_live=is_live)
        if set(self._book.draining.values()) - before:
            # From now on nothing new goes there: say so at once.
            self._hurry.set()

    async def _read_stored_table(self) -> None:
        stored = None if self._snapshots is None else await self._snapshots.routing()
        if stored is not None:
            self._take_table(stored, is_live=False)

    async def _send_beat(self, *, leaving: bool = False) -> None:
        if self._to_controller is None:
            return
        beat = GatewayBeat(
            gateway=self._gateway,
            at_s=self._clock.now_s(),
            in_flight=self._admission.running,
            waiting=self._room.waiting,
            drains=tuple(sorted(self._book.draining.values())),
            queued={priority: count for priority, count in self._admission.queued.items() if count},
            leaving=leaving,
            in_flight_away=self._in_flight_away(),
            preemptible=self._room.preemptible,
            capacity=dict(self._admission.capacity),
            oldest_queued_s=self._admission.oldest_s(self._clock.monotonic_s()),
            admitted=dict(self._admitted()),
        )
        try:
            await self._to_controller.send(beat)
        except HeadstartError as error:
            self._beat_fault.begin(error)
        else:
            self._beat_fault.end()
