from __future__ import annotations

from contracts.config import PredictorConfig
from contracts.events import PriorityClass, RequestReceived
from contracts.ids import ModelId, RequestId
from predictor.engine import PredictorEngine

CRON = ModelId("cron")


def received(model: ModelId, at_s: float, event_id: str | None = None) -> RequestReceived:
    name = event_id or f"{model}@{at_s}"
    return RequestReceived(
        event_id=name,
        at_s=at_s,
        source="test",
        request_id=RequestId(name),
        model=model,
        operation="chat",
        priority=PriorityClass.REALTIME,
        client="c",
        stream=False,
    )


def test_a_caller_that_comes_every_five_minutes_is_expected_then_and_not_before() -> None:
    engine = PredictorEngine(PredictorConfig())
    for call in range(60):
        engine.observe(received(CRON, 1000.0 + 300.0 * call + (call * 7 % 5) - 2.0))
    last_s = 1000.0 + 300.0 * 59

    just_after = engine.next_use(CRON, last_s + 10.0)
    just_before = engine.next_use(CRON, last_s + 285.0)

    assert just_after is not None
    assert just_before is not None
    assert just_after.probability_between(last_s + 10.0, 0.0, 30.0) < 0.05
    assert just_before.probability_between(last_s + 285.0, 0.0, 30.0) > 0.9


def test_a_doubled_event_counts_once() -> None:
    once, twice = PredictorEngine(PredictorConfig()), PredictorEngine(PredictorConfig())
    for call in range(10):
        event = received(CRON, 60.0 * call)
        once.observe(event)
        twice.observe(event)
        twice.observe(event)

    assert once.next_use(CRON, 600.0) == twice.next_use(CRON, 600.0)
    assert twice.doubled == 10
