"""What is learned depends on what happened, not on when somebody looked."""

from __future__ import annotations

import random
from collections.abc import Callable

from contracts.config import PredictorConfig
from contracts.events import RequestReceived
from predictor.engine import PredictorEngine

START_S = 1_000_000.0 - 1_000_000.0 % 3600.0


def test_a_history_told_again_teaches_what_it_taught_live(
    received: Callable[..., RequestReceived],
) -> None:
    rng = random.Random(4)
    events = [
        received(f"m{rng.randrange(3)}", at_s, f"e{number}")
        for number, at_s in enumerate(sorted(START_S + 2400.0 * rng.random() for _ in range(150)))
    ]
    live, again = PredictorEngine(PredictorConfig()), PredictorEngine(PredictorConfig())
    waiting, now_s = list(events), START_S
    while now_s < START_S + 2400.0:
        now_s += rng.uniform(3.0, 12.0)  # ticks come when they come
        while waiting and waiting[0].at_s <= now_s:
            live.observe(waiting.pop(0))
        live.tick(now_s)
    for event in events:
        again.pass_time(event.at_s, steps=1000)
        again.observe(event)
    again.pass_time(now_s, steps=1000)
    end_s = now_s - now_s % 10.0 + 10.0

    told, retold = live.tick(end_s), again.tick(end_s)
    assert {forecast.model for forecast in told} == {forecast.model for forecast in retold}
    assert {forecast.model: forecast for forecast in told} == {
        forecast.model: forecast for forecast in retold
    }
