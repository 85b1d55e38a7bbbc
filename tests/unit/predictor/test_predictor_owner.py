"""One owner publishes, the others learn and take over: in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from contracts.config import PredictorConfig
from contracts.errors import Permanent, Transient
from contracts.events import AnyEvent
from contracts.forecasts import ModelForecast
from contracts.history import HistoryBucket, HistoryPage
from contracts.ids import ModelId
from contracts.ports import Entry
from contracts.predictors import PredictorBeat, Standing, owner_of
from predictor.announcer import Announcer
from predictor.engine import PredictorEngine
from predictor.ownership import Ownership
from predictor.service import PredictorPorts, PredictorService
from simulator.clock import VirtualClock
from simulator.memory_history import MemoryHistoryStore
from simulator.memory_ports import MemoryEventLog, MemoryForecastStore, MemoryLease
from simulator.memory_predictors import MemoryPredictorRoster
from tests.arrivals import received

CHAT = ModelId("chat")
START_S = 1_000_000.0 - 1_000_000.0 % 3600.0
LEASE_S = 5.0


class Writes(MemoryForecastStore):
    """Notes under which token each write came."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self.tokens: list[int | None] = []
        self.refused: list[int | None] = []
        self.watch: Callable[[], None] = lambda: None

    async def put(self, forecasts: tuple[ModelForecast, ...], *, token: int | None = None) -> None:
        try:
            await super().put(forecasts, token=token)
        except Transient:
            self.refused.append(token)
            raise
        self.tokens.append(token)
        self.watch()


class Stopping(MemoryEventLog):
    """Who reads before ``stopped_until_s`` is stopped until then, as by SIGSTOP."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock=clock)
        self._now_s, self._sleep = clock.now_s, clock.sleep
        self.stopped_until_s = 0.0

    async def read_after(
        self, entry_id: str, *, count: int, block_s: float = 0.0
    ) -> tuple[Entry[AnyEvent], ...]:
        if self._now_s() < self.stopped_until_s:
            await self._sleep(self.stopped_until_s - self._now_s())
            block_s = 0.0
        return await super().read_after(entry_id, count=count, block_s=block_s)


class Cast:
    """Any number of predictors over the same stores."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START_S)
        self.log = Stopping(self.clock)
        self.store = Writes(self.clock)
        self.history = MemoryHistoryStore()
        self.lease = MemoryLease()
        self.roster = MemoryPredictorRoster()

    @asynccontextmanager
    async def predictor(self, name: str) -> AsyncIterator[tuple[PredictorService, Kill]]:
        ports = PredictorPorts(
            clock=self.clock,
            events=self.log,
            forecasts=self.store,
            history=self.history,
            lease=self.lease,
            roster=self.roster,
        )
        service = PredictorService(
            PredictorEngine(PredictorConfig()), ports, publish_s=10.0, lease_s=LEASE_S, name=name
        )
        task = asyncio.create_task(service.run())
        kill = Kill(task)
        try:
            yield service, kill
        finally:
            await kill()

    async def owner(self) -> str | None:
        found = owner_of(await self.roster.all(), self.clock.now_s())
        return None if found is None else found.name

    async def made_at_s(self) -> float:
        forecast = await self.store.get(CHAT)
        assert forecast is not None
        assert forecast.next_use is not None
        return forecast.next_use.made_at_s


class Kill:
    """Ends a predictor as kill -9 does: without a word."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    async def __call__(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def test_one_publishes_and_the_other_learns_the_same() -> None:
    cast = Cast()
    await cast.log.append(tuple(received(START_S - 3600.0 + 60.0 * call) for call in range(60)))
    async with cast.predictor("a") as (first, _), cast.predictor("b") as (second, _):
        for _ in range(12):
            await cast.clock.advance(5.0)
            await cast.log.append((received(cast.clock.now_s()),))
        await cast.clock.advance(2.0)

        beats = await cast.roster.all()
        owner = next(beat for beat in beats if beat.standing is Standing.OWNER)
        assert {beat.standing for beat in beats} == {Standing.OWNER, Standing.STANDBY}
        assert set(cast.store.tokens) == {owner.token}
        assert first.events_read == second.events_read == 72
        assert {beat.place for beat in beats} == {"72-0"}
        assert all(beat.start_s is not None and beat.models == 1 for beat in beats)


async def test_forecasts_are_fresh_again_within_ten_seconds_of_the_owners_death() -> None:
    cast = Cast()
    await cast.log.append((received(START_S),))
    async with cast.predictor("a") as (_, kill):
        await cast.clock.advance(1.0)
        async with cast.predictor("b"):
            await cast.clock.advance(20.0)
            assert await cast.owner() == "a"
            await kill()
            died_s = cast.clock.now_s()
            await cast.log.append((received(died_s + 0.5),))
            while await cast.made_at_s() <= died_s:
                await cast.clock.advance(0.5)

            assert cast.clock.now_s() - died_s <= LEASE_S + 1.5
            await cast.clock.advance(20.0)
            assert await cast.owner() == "b"
            assert len(set(cast.store.tokens)) == 2
            assert cast.store.tokens == sorted(token or 0 for token in cast.store.tokens)


async def test_an_owner_that_ends_well_is_followed_at_once() -> None:
    cast = Cast()
    await cast.log.append((received(START_S),))
    async with cast.predictor("a") as (first, end):
        await cast.clock.advance(1.0)
        async with cast.predictor("b"):
            await cast.clock.advance(5.0)
            await end()
            await first.close()
            ended_s = cast.clock.now_s()
            await cast.clock.advance(2.0)

            assert await cast.made_at_s() >= ended_s
            assert [beat.name for beat in await cast.roster.all()] == ["b"]


async def test_rings_are_written_by_one_and_hold_each_event_once_after_a_takeover() -> None:
    cast = Cast()
    async with cast.predictor("a") as (_, kill):
        await cast.clock.advance(1.0)
        async with cast.predictor("b"):
            for _ in range(30):
                await cast.clock.advance(4.0)
                await cast.log.append((received(cast.clock.now_s()),))
            await kill()
            for _ in range(10):
                await cast.clock.advance(4.0)
                told = (received(cast.clock.now_s()),)
                await cast.log.append(told)
                await cast.log.append(told)  # as after a failover
            await cast.clock.advance(15.0)

            pages = {page.width_s: page for page in await cast.history.read(CHAT)}
            for page in pages.values():
                assert sum(bucket.arrivals for bucket in page.buckets) == 40
            assert await cast.history.place() == "50-0"


async def test_who_was_taken_over_from_unnoticed_is_refused_and_stands_by() -> None:
    cast = Cast()
    await cast.log.append((received(START_S),))
    with capture_logs() as lines:
        async with cast.predictor("a") as (first, _):
            await cast.clock.advance(2.0)
            token = await cast.lease.acquire("z", now_s=START_S + 100.0, lease_s=1000.0)
            await cast.store.remove((), token=token)
            # It renews its lease in a second and does not know yet.
            await cast.log.append((received(cast.clock.now_s()),))
            written = len(cast.store.tokens)
            await cast.clock.advance(30.0)

            assert len(cast.store.tokens) == written
            assert first.beat().standing is Standing.STANDBY
            assert first.beat().token is None
    events = [line["event"] for line in lines]
    assert "predictor_taken_over_from" in events or "predictor_refused" in events


async def test_a_write_that_comes_too_late_is_refused_by_the_store() -> None:
    cast = Cast()
    await cast.log.append((received(START_S),))
    async with cast.predictor("a") as (first, _):
        await cast.clock.advance(2.0)
        # The store alone knows of a greater token: as if it were stopped right before the write.
        await cast.store.remove((), token=(first.beat().token or 0) + 1)
        await cast.log.append((received(cast.clock.now_s()),))
        await cast.clock.advance(1.1)

        assert first.refused == 1
        await cast.clock.advance(5.0)
        # Nobody else wants the lease: a new term has a greater token.
        assert first.beat().standing is Standing.OWNER
        assert cast.store.tokens[-1] == first.beat().token


async def test_an_outage_of_the_store_ends_with_the_same_owner() -> None:
    cast = Cast()
    await cast.log.append((received(START_S),))
    async with cast.predictor("a") as (first, _), cast.predictor("b"):
        await cast.clock.advance(5.0)
        owner = await cast.owner()
        for port in (cast.log, cast.store, cast.lease, cast.roster):
            port.fault = Transient("away")
        await cast.clock.advance(20.0)
        for port in (cast.log, cast.store, cast.lease, cast.roster):
            port.fault = None
        await cast.log.append((received(cast.clock.now_s()),))
        await cast.clock.advance(4.0)

        assert await cast.owner() is not None
        assert await cast.made_at_s() > START_S + 25.0
        assert owner in {"a", "b"}
        assert first.events_read == 2


async def test_a_standby_that_was_stopped_catches_up_before_it_may_own() -> None:
    cast = Cast()
    await cast.log.append((received(START_S),))
    async with cast.predictor("a"):
        await cast.clock.advance(1.0)
        async with cast.predictor("b") as (second, _):
            await cast.clock.advance(5.0)
            cast.log.stopped_until_s = cast.clock.now_s() + 90.0
            await cast.clock.advance(89.0)
            await cast.log.append((received(cast.clock.now_s()),))
            with capture_logs() as lines:
                await cast.clock.advance(4.0)

            assert second.events_read == 2
            assert "predictor_caught_up" in [line["event"] for line in lines]


async def test_an_owner_that_was_stopped_says_nothing_before_it_has_heard_all() -> None:
    """It has its lease again, as nobody else wanted it, and more to read than one look gives."""
    cast = Cast()
    await cast.log.append((received(START_S),))
    async with cast.predictor("a") as (first, _):
        await cast.clock.advance(5.0)
        cast.log.stopped_until_s = cast.clock.now_s() + 90.0
        await cast.clock.advance(89.0)
        now_s = cast.clock.now_s()
        await cast.log.append(tuple(received(now_s + 0.001 * call) for call in range(2_000)))
        heard: list[int] = []
        cast.store.watch = lambda: heard.append(first.events_read)
        await cast.clock.advance(30.0)

        assert set(heard) == {2_001}
        assert first.beat().standing is Standing.OWNER


async def test_a_standby_that_was_stopped_is_told_the_rings_once_where_the_log_is_empty() -> None:
    cast = Cast()
    bucket = HistoryBucket(number=int(START_S // 10.0) - 60, arrivals=5)
    await cast.history.write((HistoryPage(model=CHAT, width_s=10.0, buckets=(bucket,)),), place="7")
    async with cast.predictor("a"):
        await cast.clock.advance(1.0)
        with capture_logs() as lines:
            async with cast.predictor("b"):
                await cast.clock.advance(5.0)
                cast.log.stopped_until_s = cast.clock.now_s() + 90.0
                await cast.clock.advance(93.0)

    said = [line["event"] for line in lines]
    assert said.count("predictor_caught_up") == 3  # the owner once more, the other twice
    assert said.count("predictor_history_told") == 1


async def test_a_lease_that_cannot_be_given_back_is_told() -> None:
    clock, lease = VirtualClock(START_S), MemoryLease()
    ownership = Ownership("a", lease, clock, lease_s=LEASE_S)
    lease.fault = Permanent("no")
    with capture_logs() as lines:
        await ownership.give_back()
        await Ownership("a", None, clock, lease_s=LEASE_S).give_back()

    assert [line["event"] for line in lines] == ["predictor_lease_not_released"]


async def test_a_roster_that_is_away_is_told_once() -> None:
    clock, roster = VirtualClock(START_S), MemoryPredictorRoster()

    def beat() -> PredictorBeat:
        return PredictorBeat(
            name="a", host="h", standing=Standing.STANDBY, at_s=clock.now_s(), since_s=START_S
        )

    announcer = Announcer(roster, clock, beat)
    roster.fault = Transient("away")
    with capture_logs() as lines:
        running = asyncio.create_task(announcer.run())
        await clock.advance(9.0)
        roster.fault = None
        await clock.advance(3.0)
        roster.fault = Transient("away")
        await announcer.leave()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert [line["event"] for line in lines] == [
        "predictor_roster_away",
        "predictor_roster_back",
        "predictor_not_signed_off",
    ]
    roster.fault = None
    assert [each.name for each in await roster.all()] == ["a"]
    await Announcer(None, clock, beat).leave()
