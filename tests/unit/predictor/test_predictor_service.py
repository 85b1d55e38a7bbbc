from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from structlog.testing import capture_logs

from contracts.config import PredictorConfig
from contracts.errors import Transient
from contracts.events import RequestCompleted
from contracts.forecasts import ModelForecast
from contracts.ids import ModelId, RequestId
from predictor.engine import PredictorEngine
from predictor.service import PredictorPorts, PredictorService
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryEventLog, MemoryForecastStore
from tests.arrivals import received

CHAT = ModelId("chat")
START_S = 1_000_000.0


def not_found(model: ModelId, at_s: float) -> RequestCompleted:
    return RequestCompleted(
        event_id=f"{model}!{at_s}",
        at_s=at_s,
        source="test",
        request_id=RequestId("r"),
        model=model,
        status=404,
        duration_s=0.1,
        service_s=0.1,
        input_tokens=None,
        output_tokens=None,
    )


class CountingStore(MemoryForecastStore):
    puts = 0

    async def put(self, forecasts: tuple[ModelForecast, ...], *, token: int | None = None) -> None:
        await super().put(forecasts, token=token)
        self.puts += 1


@dataclass
class Stage:
    clock: VirtualClock
    log: MemoryEventLog
    store: CountingStore
    engine: PredictorEngine

    @classmethod
    def fresh(cls) -> Stage:
        clock = VirtualClock(START_S)
        return cls(
            clock,
            MemoryEventLog(clock=clock),
            CountingStore(clock=clock),
            PredictorEngine(PredictorConfig()),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[PredictorService]:
        ports = PredictorPorts(clock=self.clock, events=self.log, forecasts=self.store)
        service = PredictorService(self.engine, ports, publish_s=10.0)
        task = asyncio.create_task(service.run())
        try:
            yield service
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_what_the_log_holds_is_learned_before_the_first_forecast() -> None:
    stage = Stage.fresh()
    await stage.log.append(
        tuple(received(START_S - 10.0 - 60.0 * call) for call in range(99, -1, -1))
    )
    async with stage.running() as service:
        await stage.clock.advance(2.0)

        forecast = await stage.store.get(CHAT)
        assert service.events_read == 100
        assert forecast is not None
        assert forecast.next_use is not None
        assert forecast.next_use.probability_between(START_S, 40.0, 60.0) > 0.9
        assert forecast.next_use.last_arrival_at_s == START_S - 10.0
        assert forecast.signals


async def test_every_forecast_is_renewed_before_it_expires() -> None:
    stage = Stage.fresh()
    await stage.log.append((received(START_S),))
    async with stage.running():
        for _ in range(30):
            await stage.clock.advance(7.0)
            forecast = await stage.store.get(CHAT)
            assert forecast is not None
            assert forecast.next_use is not None
            assert forecast.next_use.is_valid(stage.clock.now_s())
            assert stage.clock.now_s() - forecast.next_use.made_at_s <= 11.0


async def test_an_arrival_renews_its_own_model_within_a_second_and_not_more_often() -> None:
    stage = Stage.fresh()
    await stage.log.append((received(START_S),))
    async with stage.running():
        await stage.clock.advance(2.0)
        before = stage.store.puts
        for step in range(20):
            await stage.log.append((received(stage.clock.now_s() + step / 1000),))
            await stage.clock.advance(0.1)
        await stage.clock.advance(1.1)

        newest = await stage.store.get(CHAT)
        assert 2 <= stage.store.puts - before <= 4
        assert newest is not None
        assert newest.next_use is not None
        assert newest.next_use.last_arrival_at_s is not None
        assert newest.next_use.last_arrival_at_s > START_S + 3.8


async def test_old_history_is_counted_and_the_last_day_is_learned_from() -> None:
    stage = Stage.fresh()
    week_s = 7 * 86_400.0
    await stage.log.append(tuple(received(START_S - week_s + 1800.0 * call) for call in range(336)))
    async with stage.running() as service:
        await stage.clock.advance(2.0)

        forecast = await stage.store.get(CHAT)
        assert service.events_read == 336
        assert forecast is not None
        assert forecast.next_use is not None
        assert forecast.next_use.brier is not None
        assert forecast.next_use.probability_between(START_S, 0.0, 60.0) > 0.5


async def test_records_at_the_end_that_cannot_be_read_are_passed_over() -> None:
    stage = Stage.fresh()
    await stage.log.append((received(START_S - 5.0),))
    stage.log.append_unreadable()
    async with stage.running() as service:
        await stage.clock.advance(2.0)
        assert await stage.store.get(CHAT) is not None
        await stage.log.append((received(stage.clock.now_s()),))
        await stage.clock.advance(2.0)

        assert service.events_read == 2


async def test_forecasts_of_models_that_nothing_is_known_of_are_removed() -> None:
    stage = Stage.fresh()
    stranger = PredictorEngine(PredictorConfig())
    stranger.observe(received(START_S - 10.0, "gone"))
    await stage.store.put(stranger.tick(START_S))
    async with stage.running():
        await stage.clock.advance(1.0)

        assert await stage.store.get_all() == {}


async def test_an_outage_is_told_once_and_ends_with_nothing_missed() -> None:
    stage = Stage.fresh()
    await stage.log.append((received(START_S),))
    with capture_logs() as lines:
        async with stage.running():
            await stage.clock.advance(2.0)
            stage.log.fault = stage.store.fault = Transient("away")
            await stage.clock.advance(30.0)
            stage.log.fault = stage.store.fault = None
            await stage.log.append((received(stage.clock.now_s()),))
            await stage.clock.advance(2.0)

            forecast = await stage.store.get(CHAT)
            assert forecast is not None
            assert forecast.next_use is not None
            assert forecast.next_use.last_arrival_at_s == START_S + 32.0
    events = [line["event"] for line in lines]
    assert events == ["predictor_caught_up", "predictor_store_away", "predictor_store_back"]


async def test_it_waits_for_a_server_that_is_not_there_at_the_start() -> None:
    stage = Stage.fresh()
    stage.log.fault = Transient("away")
    async with stage.running():
        await stage.clock.advance(30.0)
        stage.log.fault = None
        await stage.log.append((received(stage.clock.now_s()),))
        await stage.clock.advance(2.0)

        assert await stage.store.get(CHAT) is not None


async def test_a_model_that_was_made_up_by_a_client_loses_its_forecast() -> None:
    stage = Stage.fresh()
    await stage.log.append((received(START_S),))
    async with stage.running():
        await stage.clock.advance(2.0)
        assert await stage.store.get(CHAT) is not None
        await stage.log.append((not_found(CHAT, START_S + 2.0),))
        await stage.clock.advance(2.0)

        assert await stage.store.get(CHAT) is None


async def test_a_model_that_came_back_while_the_store_was_away_keeps_its_forecast() -> None:
    stage = Stage.fresh()
    await stage.log.append((received(START_S),))
    async with stage.running():
        await stage.clock.advance(2.0)
        stage.store.fault = Transient("away")
        await stage.log.append((not_found(CHAT, START_S + 2.0),))
        await stage.clock.advance(2.0)
        await stage.log.append((received(START_S + 4.0),))
        await stage.clock.advance(1.5)
        stage.store.fault = None
        await stage.clock.advance(1.0)

        assert await stage.store.get(CHAT) is not None
