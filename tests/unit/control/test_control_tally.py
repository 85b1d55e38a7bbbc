from __future__ import annotations

from typing import Any

from api.control.tally import Attainment, RequestTally
from contracts.events import (
    AnyEvent,
    FirstTokenSent,
    ModelUnloaded,
    Origin,
    PriorityClass,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestPhase,
    RequestReceived,
    UnloadCause,
)
from contracts.ids import ModelId, NodeId, RequestId

LLAMA = ModelId("llama")


def stamp(at_s: float = 100.0) -> dict[str, Any]:
    return {"event_id": "e", "at_s": at_s, "source": "gw"}


def received(
    request: str, *, stream: bool = True, model: ModelId | None = LLAMA, at_s: float = 100.0
) -> AnyEvent:
    return RequestReceived(
        **stamp(at_s),
        request_id=RequestId(request),
        model=model,
        operation="chat",
        priority=PriorityClass.REALTIME,
        client="c",
        stream=stream,
    )


def first_token(
    request: str, ttft_s: float, *, model: ModelId | None = LLAMA, at_s: float = 100.0
) -> AnyEvent:
    return FirstTokenSent(**stamp(at_s), request_id=RequestId(request), model=model, ttft_s=ttft_s)


def dispatched(request: str) -> AnyEvent:
    return RequestDispatched(
        **stamp(),
        request_id=RequestId(request),
        model=LLAMA,
        node=NodeId("n"),
        queue_wait_s=0.0,
        cold=False,
    )


def completed(
    request: str, duration_s: float, *, status: int = 200, model: ModelId | None = LLAMA
) -> AnyEvent:
    return RequestCompleted(
        **stamp(),
        request_id=RequestId(request),
        model=model,
        status=status,
        duration_s=duration_s,
        service_s=duration_s,
        input_tokens=None,
        output_tokens=None,
    )


def failed(request: str, origin: Origin, *, model: ModelId | None = LLAMA) -> AnyEvent:
    return RequestFailed(
        **stamp(),
        request_id=RequestId(request),
        model=model,
        status=500,
        error="x",
        origin=origin,
        duration_s=1.0,
    )


def tally_of(*events: AnyEvent, **bounds: int) -> RequestTally:
    tally = RequestTally(lambda _: 2.0, **bounds)
    for event in events:
        tally.observe(event)
    return tally


def test_a_stream_is_judged_by_its_first_token_and_only_once():
    tally = tally_of(
        received("a"), first_token("a", 1.5), first_token("a", 9.0), completed("a", 60.0),
        received("b"), first_token("b", 2.5), completed("b", 2.6),
    )  # fmt: skip
    assert tally.attainment(100.0) == Attainment(met=1, judged=2)
    assert tally.attainment(100.0, LLAMA).ratio == 0.5


def test_any_other_request_is_judged_by_its_whole_duration():
    tally = tally_of(
        received("a", stream=False), dispatched("a"), first_token("a", 0.1), completed("a", 3.0),
        received("b", stream=False), dispatched("b"), completed("b", 1.0),
    )  # fmt: skip
    assert tally.attainment(100.0) == Attainment(met=1, judged=2)


def test_a_history_that_somebody_else_served_is_not_judged():
    tally = tally_of(
        received("a", stream=False), completed("a", 3.0),
        dispatched("not received here"),
    )  # fmt: skip
    assert tally.completed == 1
    assert tally.attainment(100.0).ratio is None


def test_a_failure_of_ours_misses_and_one_of_the_callers_is_not_judged():
    tally = tally_of(
        received("a"), failed("a", Origin.UPSTREAM),
        received("b"), failed("b", Origin.CLIENT),
        received("c", stream=False), dispatched("c"), completed("c", 0.1, status=404),
        received("d"), first_token("d", 0.1), failed("d", Origin.GATEWAY),
    )  # fmt: skip
    assert tally.attainment(100.0) == Attainment(met=1, judged=2)
    assert (tally.failed, tally.completed) == (3, 1)


def test_a_caller_that_left_is_counted_but_not_judged():
    tally = tally_of(
        received("a"),
        RequestCancelled(
            **stamp(),
            request_id=RequestId("a"),
            model=LLAMA,
            phase=RequestPhase.QUEUED,
            duration_s=9.0,
        ),
    )
    assert tally.cancelled == 1
    assert tally.attainment(100.0).ratio is None


def test_requests_without_a_model_and_unknown_requests_are_only_counted():
    tally = tally_of(
        received("a", model=None), first_token("a", 0.1, model=None),
        completed("a", 0.1, model=None), failed("b", Origin.GATEWAY, model=None),
        first_token("unknown", 0.1), completed("unknown", 0.1), failed("gone", Origin.UPSTREAM),
    )  # fmt: skip
    assert (tally.received, tally.completed, tally.failed) == (1, 2, 2)
    assert tally.attainment(100.0).judged == 0


def test_events_that_lose_their_model_are_not_judged():
    tally = tally_of(
        received("a", stream=False), completed("a", 0.1, model=None),
        received("b"), failed("b", Origin.GATEWAY, model=None),
        received("c"), first_token("c", 0.1, model=None),
    )  # fmt: skip
    assert tally.attainment(100.0).judged == 0


def test_cold_requests_and_the_beginning_of_the_log():
    dispatched = [
        RequestDispatched(
            **stamp(50.0 + n),
            request_id=RequestId(str(n)),
            model=LLAMA,
            node=NodeId("n"),
            queue_wait_s=0.0,
            cold=n == 1,
        )
        for n in range(3)
    ]
    tally = tally_of(*dispatched)
    assert (tally.dispatched, tally.cold, tally.since_s) == (3, 1, 50.0)


def test_events_about_models_change_nothing():
    tally = tally_of(
        ModelUnloaded(**stamp(), model=LLAMA, node=NodeId("n"), cause=UnloadCause.IDLE)
    )
    assert tally.received == 0


def test_only_the_last_hour_counts():
    tally = tally_of(received("a"), first_token("a", 0.5, at_s=100.0))
    assert tally.attainment(100.0 + 3500, LLAMA).judged == 1
    assert tally.attainment(100.0 + 3700, LLAMA).judged == 0
    tally.observe(received("b"))
    tally.observe(first_token("b", 9.0, at_s=100.0 + 3600))  # the same place in the ring
    tally.observe(received("c"))
    tally.observe(first_token("c", 0.1, at_s=100.0))  # too old for it by now
    assert tally.attainment(100.0 + 3600) == Attainment(met=0, judged=1)
    assert tally.attainment(100.0, ModelId("never")) == Attainment()


def test_open_requests_and_models_are_bounded():
    tally = tally_of(received("a"), received("b"), received("c"), max_open=2)
    tally.observe(first_token("a", 0.1))
    assert (tally.forgotten, tally.attainment(100.0).judged) == (1, 0)
    few = RequestTally(lambda _: 2.0, max_models=2)
    for name in ("x", "y", "x", "z"):
        few.observe(received(name, model=ModelId(name)))
        few.observe(first_token(name, 0.1, model=ModelId(name)))
    assert few.forgotten == 1
    assert few.attainment(100.0, ModelId("x")).judged == 2
    assert few.attainment(100.0, ModelId("y")).judged == 0
