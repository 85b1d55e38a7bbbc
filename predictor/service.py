"""The predictor as a process: telemetry in, forecasts out.

State lives in memory, and the event log is the truth that it is rebuilt from. So the log is read
by place from its beginning and then followed. A consumer group would not do: it remembers what an
earlier life has read, and this life knows nothing of that. The log is bounded; what was before
its beginning is told from the rings of past counts.

Several may run. All of them learn, one publishes: the one that holds the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import structlog

from contracts.errors import NotLeader, Permanent, Transient
from contracts.events import AnyEvent
from contracts.history import HistoryStore
from contracts.ids import ModelId
from contracts.ports import Clock, Entry, EventLog, ForecastStore, Lease, entry_order
from contracts.predictors import EngineSnapshots, PredictorBeat, PredictorRoster, Standing
from predictor.announcer import Announcer
from predictor.engine import PredictorEngine
from predictor.engine_snapshot import Learned
from predictor.history import HistoryBook
from predictor.history_keeper import BEGINNING, HistoryKeeper
from predictor.ownership import Ownership
from predictor.publisher import Publisher
from predictor.snapshot_watch import LOOK_S, ChampionWatch
from predictor.snapshots import Snapshots

_log = structlog.get_logger("headstart.predictor")

_BATCH = 500
_LEARN_AGAIN_S = 86_400.0
"""History that weights and scores are rebuilt from; what they had learned before that has faded
in them anyway. A hundred models take some forty seconds for it."""
_STEPS_AT_ONCE = 50
"""Steps of history between two chances for signals to be heard."""
_MAX_WAIT_S = 1.0
_MIN_WAIT_S = 0.01
_RETRY_S = 0.5
"""Real seconds between two attempts while the server is away."""
_GOODBYE_S = 2.0
"""Real seconds that the end of the process may wait for a server that hangs."""
_LONG_START_S = 10.0
"""A start that took longer, in real seconds, is remembered at once."""
_STOPPED_S = 60.0
"""A process that did nothing for so long was stopped while the world went on: it catches up
before it says anything. While the whole machine sleeps this clock stands still."""

Attempt = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PredictorPorts:
    """The outside, as the service needs it."""

    clock: Clock
    events: EventLog
    forecasts: ForecastStore
    champions: ChampionWatch | None = None
    """Where a challenger may come from; None: there is none."""
    history: HistoryStore | None = None
    """Rings of past counts; None: what the log has forgotten is forgotten."""
    lease: Lease | None = None
    """Whose holder publishes; None: there is no other predictor."""
    roster: PredictorRoster | None = None
    """Where predictors tell of themselves; None: nowhere."""
    snapshots: EngineSnapshots | None = None
    """Where what was learned is kept; None: the log is read from its beginning at each start."""


class PredictorService:
    """Reads the log, lets the engine learn, and publishes what it expects while it owns.

    Parameters
    ----------
    engine : PredictorEngine
        A fresh one; nothing else may feed it.
    ports : PredictorPorts
    publish_s : float
        How often every model's forecast is renewed.
    lease_s : float
        Another publishes after this long without this one.
    name, host : str
        Of this process, unlike any other's, and of the machine.
    made_with : mapping or None
        What a snapshot has to be made with to be gone on from.
    """

    def __init__(
        self,
        engine: PredictorEngine,
        ports: PredictorPorts,
        *,
        publish_s: float,
        lease_s: float = 5.0,
        name: str = "predictor",
        host: str = "",
        made_with: Mapping[str, str] | None = None,
    ) -> None:
        self._engine = engine
        self._clock = ports.clock
        self._events = ports.events
        self._champions = ports.champions
        self._history = (
            None
            if ports.history is None
            else HistoryKeeper(ports.history, engine, flush_s=publish_s)
        )
        self._host = host
        self._publish_s = publish_s
        self._ownership = Ownership(name, ports.lease, ports.clock, lease_s=lease_s)
        self._publisher = Publisher(engine, ports.forecasts, publish_s=publish_s)
        self._snapshots = Snapshots(ports.snapshots, ports.clock, made_with or {})
        self._announcer = Announcer(ports.roster, ports.clock, self.beat)
        self._looked_at_s = float("-inf")
        self._awake_at_s = float("inf")
        self._place = BEGINNING
        self._gone: dict[ModelId, None] = {}
        self._away = False
        self._standing = Standing.CATCHING_UP
        self._since_s = ports.clock.now_s()
        self._term: int | None = None
        self._start_s: float | None = None
        self.events_read = 0
        """Events taken from the log so far."""
        self.refused = 0
        """Writes that were refused since another had taken over."""

    async def run(self) -> None:
        """Rebuild from the log, then follow it; until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._announcer.run())
            group.create_task(self._ownership.run())
            group.create_task(self._work())

    async def close(self) -> None:
        """After ``run`` was cancelled: let another publish at once."""
        await self._snapshots.close()
        try:
            async with self._clock.timeout(_GOODBYE_S * self._clock.scale):
                await self._ownership.give_back()
                await self._announcer.leave()
        except TimeoutError:
            _log.warning("predictor_left_without_goodbye")

    def beat(self) -> PredictorBeat:
        """What there is to tell of this predictor."""
        return PredictorBeat(
            name=self._ownership.name,
            host=self._host,
            standing=self._standing,
            at_s=self._clock.now_s(),
            since_s=self._since_s,
            token=self._term if self._standing is Standing.OWNER else None,
            place=self._place,
            models=len(self._engine.models),
            refused=self.refused,
            start_s=self._start_s,
        )

    async def _work(self) -> None:
        began_s = self._clock.monotonic_s()
        await self._look_for_champion()
        while not await self._attempt(self._go_on_from_snapshot):
            await self._clock.sleep(_RETRY_S * self._clock.scale)
        await self._learn_what_was_missed()
        self._start_s = self._clock.monotonic_s() - began_s
        self._snapshots.begin(at_once=self._start_s > _LONG_START_S * self._clock.scale)
        while True:
            if not await self._attempt(self._follow):
                await self._clock.sleep(_RETRY_S * self._clock.scale)
                self._awake_at_s = self._clock.monotonic_s()  # and the store was not

    async def _go_on_from_snapshot(self) -> None:
        found = await self._snapshots.newest(self._events)
        if found is None:
            return
        found.put_into(self._engine)
        self._take_challenger()
        if self._history is not None:
            self._history.go_on_from(found.book)
        self._place = found.place

    def _learned(self) -> Learned:
        book = HistoryBook() if self._history is None else self._history.book
        return Learned(self._engine, book, self._place)

    async def _learn_what_was_missed(self) -> None:
        self._stands(Standing.CATCHING_UP)
        self._ownership.competes = False
        while not await self._attempt(self._catch_up):
            await self._clock.sleep(_RETRY_S * self._clock.scale)
        self._ownership.competes = True

    async def _catch_up(self) -> None:
        """Learn from what the log holds, as if it happened again, before anything is said."""
        end = await self._events.last_id()
        learn_from_s = self._clock.now_s() - _LEARN_AGAIN_S
        if self._history is not None and self._place == BEGINNING:
            await self._history.retell(
                self._events,
                self._clock.now_s(),
                lambda until_s: self._pass_time(until_s, learn_from_s),
            )
        while entry_order(self._place) < entry_order(end):
            entries = await self._events.read_after(self._place, count=_BATCH)
            for entry in entries:
                await self._pass_time(entry.value.at_s, learn_from_s)
                self._take(entry)
            if not entries:
                self._place = end  # the last ones cannot be read
            await self._clock.sleep(0.0)
        await self._pass_time(self._clock.now_s(), learn_from_s)
        _log.info(
            "predictor_caught_up",
            events=self.events_read,
            models=len(self._engine.models),
            place=self._place,
        )

    async def _pass_time(self, until_s: float, learn_from_s: float) -> None:
        """Let the engine score and learn at the times at which it would have done so.

        Older history than ``learn_from_s`` is only counted, which takes microseconds an event.
        """
        until_s = min(until_s, self._clock.now_s())
        if until_s >= learn_from_s:
            while not self._engine.pass_time(until_s, steps=_STEPS_AT_ONCE):
                await self._clock.sleep(0.0)

    async def _look_for_champion(self) -> None:
        """Take over what a worker has trained, once a minute; what is wrong with it is told."""
        now_s = self._clock.now_s()
        if self._champions is None or 0.0 <= now_s - self._looked_at_s < LOOK_S:
            return
        self._looked_at_s = now_s
        if await self._champions.look():
            self._take_challenger()

    def _take_challenger(self) -> None:
        found = None if self._champions is None else self._champions.challenger
        self._engine.take_challenger(found, promoted=found is not None and found.promoted)

    async def _follow(self) -> None:
        await self._look_for_champion()
        for entry in await self._events.read_after(
            self._place, count=_BATCH, block_s=self._wait_s()
        ):
            self._take(entry)
        if self._clock.monotonic_s() - self._awake_at_s > _STOPPED_S:
            await self._learn_what_was_missed()
        self._awake_at_s = self._clock.monotonic_s()
        now_s = self._clock.now_s()
        await self._snapshots.keep(self._learned)
        if self._ownership.is_unsure:
            return
        if not self._ownership.holds():
            await self._stand_by(now_s)
            return
        try:
            await self._own(now_s, self._ownership.token)
        except NotLeader as error:
            self.refused += 1
            self._stands(Standing.STANDBY)
            _log.warning("predictor_refused", error=str(error))
            await self._ownership.give_back()

    async def _stand_by(self, now_s: float) -> None:
        """Learn as the owner does, and say nothing."""
        self._stands(Standing.STANDBY)
        self._publisher.stand_by()
        self._engine.advance(now_s)
        dropped = self._engine.take_dropped()
        if self._history is not None:
            self._history.forget(dropped)
            await self._history.follow(self._place, now_s)

    async def _own(self, now_s: float, token: int | None) -> None:
        if self._standing is not Standing.OWNER or token != self._term:
            await self._publisher.take_over(token)
            if self._history is not None:
                await self._history.take_over(token)
            self._term = token
            self._stands(Standing.OWNER)
        self._publisher.renew(now_s)
        self._gone.update(dict.fromkeys(self._engine.take_dropped()))
        # One may be back: the store was away, or another one owned meanwhile.
        gone = tuple(model for model in self._gone if not self._engine.knows(model))
        if gone:
            if self._history is not None:
                await self._history.drop(gone, token=token)
            await self._publisher.remove(gone, token)
        self._gone.clear()
        if self._ownership.holds():
            await self._publisher.send(token)
        if self._history is not None and self._ownership.holds():
            await self._history.flush(self._place, now_s, token=token)

    def _stands(self, standing: Standing) -> None:
        if standing is not self._standing:
            self._standing, self._since_s = standing, self._clock.now_s()

    def _take(self, entry: Entry[AnyEvent]) -> None:
        # What the log tells twice counts once, in the rings too.
        if self._engine.observe(entry.value) and self._history is not None:
            self._history.note(entry)
        self._place = entry.entry_id
        self.events_read += 1

    def _wait_s(self) -> float:
        """Real seconds to wait for events: until something is to be published."""
        if self._standing is not Standing.OWNER:
            is_due = self._ownership.holds()
            return _MIN_WAIT_S if is_due else max(_MAX_WAIT_S / self._clock.scale, _MIN_WAIT_S)
        wait_s = self._publisher.due_in_s(self._clock.now_s()) / self._clock.scale
        return min(max(wait_s, _MIN_WAIT_S), _MAX_WAIT_S)

    async def _attempt(self, step: Attempt) -> bool:
        """Whether ``step`` got through; one line when the server goes away, one when it is back."""
        try:
            await step()
        except (Transient, Permanent) as error:
            if not self._away:
                self._away = True
                _log.warning("predictor_store_away", error=str(error))
            return False
        if self._away:
            self._away = False
            _log.info("predictor_store_back")
        return True
