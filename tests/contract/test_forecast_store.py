from __future__ import annotations

import asyncio

import pytest

from adapters.redis_forecasts import RedisForecastStore
from contracts.forecasts import (
    NEXT_USE_GRID_S,
    QUANTILE_LEVELS,
    Forecast,
    ForecastStatus,
    HorizonForecast,
    ModelForecast,
    NextUse,
    Signal,
)
from contracts.ids import ModelId
from contracts.ports import ForecastStore
from simulator.memory_ports import MemoryForecastStore


@pytest.fixture
def store(backend) -> ForecastStore:
    return MemoryForecastStore() if backend.client is None else RedisForecastStore(backend.client)


def forecast(name: str, *, made_at_s: float = 1.0) -> ModelForecast:
    model = ModelId(name)
    horizon = HorizonForecast(
        horizon_s=60.0,
        mean=1.5,
        quantiles=tuple(float(level) for level in QUANTILE_LEVELS),
        method="naive",
        status=ForecastStatus.READY,
        loss=None,
        floor_loss=0.25,
        coverage_ratio=None,
    )
    arrivals = Forecast(
        model=model,
        signal=Signal.ARRIVALS,
        made_at_s=made_at_s,
        expires_at_s=made_at_s + 60.0,
        horizons=(horizon,),
    )
    next_use = NextUse(
        model=model,
        made_at_s=made_at_s,
        expires_at_s=made_at_s + 60.0,
        last_arrival_at_s=None,
        cumulative_hazard=tuple(delay_s / 100.0 for delay_s in NEXT_USE_GRID_S),
        method="hazard",
        status=ForecastStatus.WARMING_UP,
        brier=0.1,
        floor_brier=0.2,
    )
    return ModelForecast(model=model, next_use=next_use, signals=(arrivals,))


async def test_the_newest_forecast_of_each_model_is_kept(store: ForecastStore):
    await store.put((forecast("a"), forecast("b")))
    await store.put((forecast("a", made_at_s=2.0),))
    assert await store.get(ModelId("a")) == forecast("a", made_at_s=2.0)
    assert await store.get_all() == {
        "a": forecast("a", made_at_s=2.0),
        "b": forecast("b"),
    }


async def test_an_unknown_model_has_none(store: ForecastStore):
    assert await store.get(ModelId("a")) is None
    assert await store.get_all() == {}


async def test_updates_tell_what_is_new_once_each(store: ForecastStore):
    await store.put((forecast("old"),))
    place, nothing = await store.updates("$", block_s=0.0)
    assert nothing == ()
    await store.put((forecast("a"), forecast("b")))
    await store.put((forecast("a", made_at_s=2.0),))
    place, new = await store.updates(place, block_s=0.0)
    assert new == (forecast("a", made_at_s=2.0), forecast("b"))
    assert await store.updates(place, block_s=0.0) == (place, ())


async def test_a_waiting_reader_is_woken(store: ForecastStore):
    reading = asyncio.create_task(store.updates("$", block_s=5.0))
    await asyncio.sleep(0.05)
    await store.put((forecast("a"),))
    async with asyncio.timeout(2.0):
        assert (await reading)[1] == (forecast("a"),)


async def test_removed_models_are_gone_also_from_updates(store: ForecastStore):
    place, _ = await store.updates("$", block_s=0.0)
    await store.put((forecast("a"), forecast("b")))
    await store.remove((ModelId("a"), ModelId("unknown")))
    await store.remove(())
    assert await store.get(ModelId("a")) is None
    assert (await store.updates(place, block_s=0.0))[1] == (forecast("b"),)


async def test_many_forecasts_at_once(store: ForecastStore):
    place, _ = await store.updates("$", block_s=0.0)
    many = tuple(forecast(f"m{number}") for number in range(450))
    await store.put(many)
    await store.put(())
    assert len(await store.get_all()) == 450
    assert len((await store.updates(place, block_s=0.0))[1]) == 450
