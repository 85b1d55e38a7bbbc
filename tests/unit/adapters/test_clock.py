from __future__ import annotations

import asyncio
import time

import pytest

from adapters.clock import MAX_SCALE, ScaledClock
from contracts.errors import Invalid
from contracts.ports import Clock

DEV = {"HEADSTART_ENV": "dev"}


class Machine:
    """Wall and monotonic clock of a pretended machine."""

    def __init__(self) -> None:
        self.wall_s = 1_000_000.0
        self.monotonic_s = 50.0

    def clock(self, scale: float, anchor: tuple[float, float] | None = None) -> ScaledClock:
        return ScaledClock(
            scale,
            anchor,
            real_now_s=lambda: self.wall_s,
            real_monotonic_s=lambda: self.monotonic_s,
        )


def test_real_time_by_default() -> None:
    clock: Clock = ScaledClock.from_environment({})
    assert clock.scale == 1.0
    assert clock.now_s() == pytest.approx(time.time(), abs=1.0)
    assert clock.monotonic_s() == pytest.approx(time.monotonic(), abs=1.0)


def test_a_scaled_clock_starts_at_the_present_and_runs_ahead() -> None:
    machine = Machine()
    clock = machine.clock(30.0)
    assert clock.now_s() == 1_000_000.0
    started_s = clock.monotonic_s()
    machine.wall_s += 2.0
    machine.monotonic_s += 2.0
    assert clock.now_s() == 1_000_060.0
    assert clock.monotonic_s() - started_s == 60.0


def test_processes_that_share_an_anchor_agree_whenever_they_start() -> None:
    machine = Machine()
    first = machine.clock(30.0, (1_000_000.0, 9 * 3600.0))
    machine.wall_s += 100.0
    second = machine.clock(30.0, (1_000_000.0, 9 * 3600.0))
    assert first.now_s() == second.now_s() == 9 * 3600.0 + 3000.0


def test_a_step_of_the_wall_clock_does_not_touch_durations() -> None:
    machine = Machine()
    clock = machine.clock(1.0)
    machine.wall_s -= 3600.0
    assert clock.now_s() == 1_000_000.0 - 3600.0
    assert clock.monotonic_s() == 50.0


async def test_sleep_and_timeout_are_shortened() -> None:
    clock = ScaledClock(1000.0)
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    await clock.sleep(20.0)
    assert 0.02 <= loop.time() - started_s < 1.0
    started_s = loop.time()
    with pytest.raises(TimeoutError):
        async with clock.timeout(20.0):
            await asyncio.Event().wait()
    assert 0.019 <= loop.time() - started_s < 1.0


async def test_a_time_that_is_past_yields_or_ends_at_once() -> None:
    clock = ScaledClock()
    turns: list[str] = []
    other = asyncio.create_task(_note(turns))
    await clock.sleep(-5.0)
    assert turns == ["other"]
    await other
    with pytest.raises(TimeoutError):
        async with clock.timeout(-1.0):
            await asyncio.Event().wait()


async def _note(turns: list[str]) -> None:
    turns.append("other")


def test_scale_and_anchor_from_the_environment() -> None:
    clock = ScaledClock.from_environment(
        DEV | {"HEADSTART_TIME_SCALE": "30", "HEADSTART_TIME_ANCHOR": f"{time.time()}:1000"}
    )
    assert clock.scale == 30.0
    assert clock.now_s() == pytest.approx(1000.0, abs=30.0)


def test_empty_variables_count_as_not_set() -> None:
    environ = {"HEADSTART_TIME_SCALE": " ", "HEADSTART_TIME_ANCHOR": ""}
    assert ScaledClock.from_environment(environ).scale == 1.0


def test_real_time_may_be_said_in_production() -> None:
    environ = {"HEADSTART_TIME_SCALE": "1", "HEADSTART_TIME_ANCHOR": "5:5"}
    assert ScaledClock.from_environment(environ).scale == 1.0


@pytest.mark.parametrize("scale", ["0", "-1", "fast", "nan", "inf", str(MAX_SCALE * 2)])
def test_a_scale_that_is_none_is_refused(scale: str) -> None:
    with pytest.raises(Invalid, match=r"^HEADSTART_TIME_SCALE = .*must be a number above 0"):
        ScaledClock.from_environment(DEV | {"HEADSTART_TIME_SCALE": scale})


@pytest.mark.parametrize("environment", ["", "production", "staging"])
def test_time_runs_fast_only_in_development(environment: str) -> None:
    environ = {"HEADSTART_TIME_SCALE": "30", "HEADSTART_ENV": environment}
    with pytest.raises(Invalid, match="only with HEADSTART_ENV=dev"):
        ScaledClock.from_environment(environ)
    with pytest.raises(Invalid, match="only with HEADSTART_ENV=dev"):
        ScaledClock.from_environment({"HEADSTART_TIME_ANCHOR": "1:2"})


@pytest.mark.parametrize("anchor", ["1", "1:2:3", "a:2", "1:nan", ":"])
def test_an_anchor_that_is_none_is_refused(anchor: str) -> None:
    with pytest.raises(Invalid, match="real_epoch_s:clock_epoch_s"):
        ScaledClock.from_environment(DEV | {"HEADSTART_TIME_ANCHOR": anchor})


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf"), MAX_SCALE * 2])
def test_the_constructor_refuses_what_is_no_scale(scale: float) -> None:
    with pytest.raises(Invalid, match="time scale"):
        ScaledClock(scale)
