"""Past counts: on their way into the rings, told again, and a life that ends at any moment."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from contracts.config import PredictorConfig
from contracts.errors import Transient
from contracts.events import AnyEvent, RequestCompleted
from contracts.history import HISTORY_RINGS, HistoryBucket, HistoryPage
from contracts.ids import ModelId, RequestId
from contracts.ports import Entry
from predictor.engine import PredictorEngine
from predictor.history import HistoryBook, retold
from predictor.history_keeper import HistoryKeeper
from predictor.service import PredictorPorts, PredictorService
from simulator.clock import VirtualClock
from simulator.memory_history import MemoryHistoryStore
from simulator.memory_ports import MemoryEventLog, MemoryForecastStore
from tests.arrivals import received

CHAT = ModelId("chat")
START_S = 1_000_000.0 - 1_000_000.0 % 3600.0


def completed(at_s: float, model: ModelId = CHAT) -> RequestCompleted:
    return RequestCompleted(
        event_id=f"{model}!{at_s}",
        at_s=at_s,
        source="test",
        request_id=RequestId("r"),
        model=model,
        status=200,
        duration_s=3.0,
        service_s=2.0,
        input_tokens=100,
        output_tokens=None,
    )


def minutes(pages: tuple[HistoryPage, ...], width_s: float = 60.0) -> list[tuple[int, int]]:
    """Minutes since the start, with what came in each."""
    return [
        (bucket.number - round(START_S / width_s), bucket.arrivals)
        for page in pages
        if page.width_s == width_s
        for bucket in page.buckets
    ]


def test_requests_of_known_models_are_counted_at_every_width() -> None:
    book = HistoryBook()
    book.observe(received(START_S + 5.0), known=True)
    book.observe(received(START_S + 50.0), known=True)
    book.observe(received(START_S + 70.0), known=True)
    book.observe(received(START_S + 70.0, ModelId("junk")), known=False)
    book.observe(replace(received(START_S + 71.0), is_retry=True), known=True)
    book.observe(completed(START_S + 72.0), known=False)
    book.observe(completed(START_S + 72.0, ModelId("junk")), known=False)
    pages = book.pages()

    assert {page.model for page in pages} == {CHAT}
    assert {page.width_s for page in pages} == set(HISTORY_RINGS)
    assert minutes(pages) == [(0, 2), (1, 1)]
    assert minutes(pages, 3600.0) == [(0, 3)]
    hour = next(page for page in pages if page.width_s == 3600.0).buckets[0]
    assert (hour.input_tokens, hour.output_tokens, hour.busy_s) == (100.0, 0.0, 2.0)


def test_only_what_has_changed_is_written_again_and_closed_buckets_go() -> None:
    book = HistoryBook()
    for minute in range(4):
        book.observe(received(START_S + 60.0 * minute), known=True)
    assert len(minutes(book.pages())) == 4
    book.flushed()
    assert book.pages() == ()
    book.observe(received(START_S + 190.0), known=True)
    assert minutes(book.pages()) == [(3, 2)]
    before = book.too_late
    book.observe(received(START_S), known=True)
    assert book.too_late > before
    book.drop(CHAT)
    assert book.pages() == ()


def test_what_is_not_stored_yet_never_takes_more_than_the_rings() -> None:
    # As while a long log is read: nothing is stored before its end.
    book = HistoryBook()
    for step in range(20_000):
        book.observe(received(10.0 * step), known=True)
    book.observe(received(10.0 * 20_000 - 25.0), known=True)  # a straggler, too late for tens
    pages = {page.width_s: page for page in book.pages()}
    for width_s, slots in HISTORY_RINGS.items():
        numbers = [bucket.number for bucket in pages[width_s].buckets]
        newest = int(10.0 * 19_999 // width_s)
        assert numbers == list(range(max(0, newest - slots + 1), newest + 1))
    assert book.too_late == 1
    assert pages[60.0].buckets[-2].arrivals == 7


def test_what_another_has_written_up_to_a_place_is_let_go_and_the_rest_kept() -> None:
    book = HistoryBook()
    book.observe(received(START_S), known=True)
    mark = book.changes
    for minute in range(1, 4):
        book.observe(received(START_S + 60.0 * minute), known=True)
    book.flushed(mark)
    assert minutes(book.pages()) == [(1, 1), (2, 1), (3, 1)]
    book.flushed()
    assert book.pages() == ()


async def test_rings_that_are_written_meanwhile_are_read_as_of_one_place() -> None:
    events: list[AnyEvent] = [received(START_S + 20.0 * call) for call in range(12)]
    entries = [Entry(f"{number + 1}-0", event) for number, event in enumerate(events)]
    engine = PredictorEngine(PredictorConfig())

    class Busy(MemoryHistoryStore):
        """The owner writes once more while an heir reads."""

        owner: HistoryKeeper | None = None

        async def read(self, model: ModelId) -> tuple[HistoryPage, ...]:
            found = await super().read(model)
            if self.owner is not None:
                owner, self.owner = self.owner, None
                for entry in entries[6:9]:
                    engine.observe(entry.value)
                    owner.note(entry)
                await owner.flush("9-0", START_S + 500.0)
            return found

    store = Busy()
    owner = HistoryKeeper(store, engine, flush_s=10.0)
    for entry in entries[:6]:
        engine.observe(entry.value)
        owner.note(entry)
    await owner.flush("6-0", START_S + 200.0)
    store.owner = owner
    heir_engine = PredictorEngine(PredictorConfig())
    heir = HistoryKeeper(store, heir_engine, flush_s=10.0)
    log = MemoryEventLog(clock=VirtualClock(START_S + 600.0))
    await log.append(tuple(events))

    async def pass_time(until_s: float) -> None:
        heir_engine.pass_time(until_s, steps=10_000)

    await heir.retell(log, START_S + 600.0, pass_time)
    for entry in entries:
        heir_engine.observe(entry.value)
        heir.note(entry)
    await heir.take_over(7)
    await heir.flush("12-0", START_S + 600.0, token=7)

    pages = await store.read(CHAT)
    assert sum(count for _, count in minutes(pages)) == 12
    assert sum(count for _, count in minutes(pages, 3600.0)) == 12


def test_a_ring_is_told_again_once_by_its_finest_width() -> None:
    book = HistoryBook()
    for second in range(0, 7200, 30):
        book.observe(received(START_S + second), known=True)
    pages = {CHAT: book.pages()}
    told = retold(pages, before_s=START_S + 7200.0)
    some = retold(pages, before_s=START_S + 3600.0)

    assert len(told) == 240
    assert [event.at_s for event in told] == sorted(event.at_s for event in told)
    assert len({event.event_id for event in told}) == 240
    assert len(some) == 120
    assert retold({CHAT: ()}, before_s=START_S) == ()


def test_beyond_the_finer_ring_the_coarser_one_tells() -> None:
    hours = HISTORY_RINGS[3600.0]
    first = round(START_S / 3600.0)
    coarse = HistoryPage(
        model=CHAT,
        width_s=3600.0,
        buckets=tuple(HistoryBucket(number=first + hour, arrivals=6) for hour in range(hours)),
    )
    fine_from = round(START_S / 60.0) + 60 * hours - 60
    fine = HistoryPage(
        model=CHAT,
        width_s=60.0,
        buckets=tuple(HistoryBucket(number=fine_from + n, arrivals=1000) for n in range(60)),
    )
    told = retold({CHAT: (fine, coarse)}, before_s=START_S + 3600.0 * hours)

    # The last 25 hours are the minutes' affair, of which only the last hour was used.
    assert len(told) == 200 * 60 + 6 * (hours - 25)


async def test_rings_are_read_although_their_owner_writes_all_the_time() -> None:
    """As many at a time as can be read between two writes, and one at last."""
    models = [ModelId(f"m{number}") for number in range(60)]

    class Restless(MemoryHistoryStore):
        reads = 0

        async def read(self, model: ModelId) -> tuple[HistoryPage, ...]:
            self.reads += 1
            if self.reads % 3 == 0:  # the place moves on after each third read
                await self.write((), place=f"{100 + self.reads}-0")
            return await super().read(model)

    store = Restless()
    engine = PredictorEngine(PredictorConfig())
    owner = HistoryKeeper(store, engine, flush_s=10.0)
    for number, model in enumerate(models):
        event = received(START_S + number, model)
        engine.observe(event)
        owner.note(Entry(f"{number + 1}-0", event))
    await owner.flush("60-0", START_S + 100.0)
    heir = HistoryKeeper(store, PredictorEngine(PredictorConfig()), flush_s=10.0)

    async def pass_time(_until_s: float) -> None:
        return

    await heir.retell(MemoryEventLog(clock=VirtualClock(START_S)), START_S + 100.0, pass_time)
    assert store.reads < 300
    assert {page.model for page in heir.book.pages()} <= set(models)
    assert len(await store.models()) == 60


async def test_a_keeper_that_was_killed_loses_nothing_and_counts_nothing_twice() -> None:
    store, engine = MemoryHistoryStore(), PredictorEngine(PredictorConfig())
    events: list[AnyEvent] = [received(START_S + 20.0 * call) for call in range(30)]
    entries = [Entry(f"{number + 1}-0", event) for number, event in enumerate(events)]
    keeper = HistoryKeeper(store, engine, flush_s=10.0)
    for entry in entries[:17]:
        engine.observe(entry.value)
        keeper.note(entry)
        await keeper.flush(entry.entry_id, entry.value.at_s)
        await keeper.flush(entry.entry_id, entry.value.at_s + 1.0)  # not yet time
    for entry in entries[17:20]:  # these it has counted and not written
        engine.observe(entry.value)
        keeper.note(entry)

    again = PredictorEngine(PredictorConfig())
    clock = VirtualClock(START_S + 700.0)
    log = MemoryEventLog(clock=clock)
    await log.append(tuple(events[10:]))  # the log has forgotten the first
    heir = HistoryKeeper(store, again, flush_s=10.0)

    async def pass_time(until_s: float) -> None:
        again.pass_time(until_s, steps=10_000)

    await heir.retell(log, clock.now_s(), pass_time)
    for entry in entries[10:]:
        again.observe(entry.value)
        heir.note(entry)
        await heir.flush(entry.entry_id, entry.value.at_s)
    pages = await store.read(CHAT)

    assert sum(count for _, count in minutes(pages)) == 30
    assert sum(count for _, count in minutes(pages, 600.0)) == 30
    assert again.models == (CHAT,)
    await heir.drop((CHAT,))
    assert await store.read(CHAT) == ()


async def test_the_service_keeps_the_rings_and_comes_back_from_them_alone() -> None:
    clock = VirtualClock(START_S)
    store = MemoryHistoryStore()

    async def life(log: MemoryEventLog, seconds: float) -> PredictorEngine:
        engine = PredictorEngine(PredictorConfig())
        ports = PredictorPorts(
            clock=clock, events=log, forecasts=MemoryForecastStore(clock=clock), history=store
        )
        running = asyncio.create_task(PredictorService(engine, ports, publish_s=10.0).run())
        await clock.advance(seconds)
        running.cancel()
        return engine

    log = MemoryEventLog(clock=clock)
    await log.append(tuple(received(START_S - 3600.0 + 60.0 * call) for call in range(60)))
    first = await life(log, 20.0)
    second = await life(MemoryEventLog(clock=clock), 1.0)

    assert sum(count for _, count in minutes(await store.read(CHAT))) == 60
    assert second.models == first.models == (CHAT,)
    curve, before = (engine.next_use(CHAT, clock.now_s()) for engine in (second, first))
    assert curve is not None
    assert before is not None
    assert curve.last_arrival_at_s is not None
    assert before.last_arrival_at_s is not None
    assert abs(curve.last_arrival_at_s - before.last_arrival_at_s) <= 10.0
    assert curve.status is before.status


async def test_a_store_that_is_away_is_told_and_nothing_is_lost() -> None:
    store, engine = MemoryHistoryStore(), PredictorEngine(PredictorConfig())
    keeper = HistoryKeeper(store, engine, flush_s=10.0)
    event = received(START_S)
    engine.observe(event)
    keeper.note(Entry("1-0", event))
    store.fault = Transient("away")
    try:
        await keeper.flush("1-0", START_S)
    except Transient:
        store.fault = None
    await keeper.flush("1-0", START_S + 1.0)

    assert sum(count for _, count in minutes(await store.read(CHAT))) == 1
