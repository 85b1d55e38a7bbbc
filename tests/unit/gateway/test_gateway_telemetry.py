from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from api.gateway.detect import ApiStyle
from api.gateway.meter import RequestMeter, Subject
from api.gateway.metrics import MAX_MODEL_LABELS, GatewayMetrics
from api.gateway.sse import AnswerObserver, Format
from api.gateway.telemetry import BATCH, Telemetry
from contracts.errors import Transient
from contracts.events import (
    FirstTokenSent,
    IntentKind,
    IntentSignal,
    Origin,
    PriorityClass,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestPhase,
    RequestReceived,
)
from contracts.ids import ModelId, NodeId, RequestId
from simulator.memory_ports import MemoryEventLog, VirtualClock


class Kit:
    def __init__(self, capacity: int = 10_000) -> None:
        self.clock = VirtualClock(start_s=50.0)
        self.log = MemoryEventLog()
        self.telemetry = Telemetry(self.log, self.clock, "g", capacity=capacity)
        self.metrics = GatewayMetrics(lambda model: model.startswith("listed"))

    def signal(self) -> None:
        self.telemetry.emit(
            IntentSignal(
                **self.telemetry.stamp(), client="c", kind=IntentKind.MODELS_LISTED, model=None
            )
        )

    async def written(self):
        return [entry.value for entry in await self.log.read_after("0", count=100_000)]

    def meter(self) -> RequestMeter:
        subject = Subject(
            request_id=RequestId("r"),
            model=ModelId("listed"),
            operation="chat",
            priority=PriorityClass.REALTIME,
            client="c",
            stream=True,
        )
        return RequestMeter(
            subject, telemetry=self.telemetry, metrics=self.metrics, clock=self.clock
        )


@pytest.fixture
async def kit():
    kit = Kit()
    job = asyncio.create_task(kit.telemetry.run())
    yield kit
    job.cancel()


async def test_events_go_out_after_fifty_milliseconds(kit):
    kit.signal()
    await kit.clock.advance(0.04)
    assert await kit.written() == []
    await kit.clock.advance(0.02)
    (event,) = await kit.written()
    assert (event.event_id, event.at_s, event.source) == ("g-0", 50.0, "g")
    assert kit.telemetry.written == 1


async def test_a_full_batch_goes_out_at_once(kit):
    for _ in range(BATCH + 1):
        kit.signal()
    await kit.clock.advance(0.0)
    assert len(await kit.written()) == BATCH
    assert kit.telemetry.pending == 1


async def test_while_the_log_is_away_the_newest_are_kept_and_the_rest_counted():
    kit = Kit(capacity=5)
    job = asyncio.create_task(kit.telemetry.run())
    kit.log.fault = Transient("away")
    with capture_logs() as lines:
        for _ in range(8):
            kit.signal()
        await kit.clock.advance(3.0)
        for _ in range(3):
            kit.signal()
        await kit.clock.advance(3.0)
        assert kit.telemetry.pending == 5
        assert kit.telemetry.dropped == 6
        kit.log.fault = None
        await kit.clock.advance(1.0)
    assert [event.event_id for event in await kit.written()] == [f"g-{n}" for n in range(6, 11)]
    assert [line["event"] for line in lines] == [
        "telemetry_not_written",
        "telemetry_not_written_ended",
    ]
    assert lines[1]["dropped"] == 6
    job.cancel()


async def test_what_is_being_written_is_not_lost_when_writing_is_cut_off(kit):
    never = asyncio.Event()

    async def hang(_events):
        await never.wait()

    kit.log.append = hang
    kit.signal()
    closing = asyncio.create_task(kit.telemetry.close())
    await asyncio.sleep(0)
    assert kit.telemetry.pending == 0
    closing.cancel()
    await asyncio.wait({closing})
    assert kit.telemetry.pending == 1


async def test_at_the_end_all_that_is_left_goes_out(kit):
    for _ in range(2 * BATCH + 1):
        kit.signal()
    await kit.telemetry.close()
    assert len(await kit.written()) == 2 * BATCH + 1
    kit.log.fault = Transient("away")
    kit.signal()
    await kit.telemetry.close()
    assert kit.telemetry.pending == 1


async def test_without_a_log_nothing_is_kept():
    telemetry = Telemetry(None, VirtualClock(), "g")
    telemetry.emit(
        IntentSignal(**telemetry.stamp(), client="c", kind=IntentKind.MODELS_LISTED, model=None)
    )
    await telemetry.close()
    assert (telemetry.pending, telemetry.dropped) == (0, 0)


def words(count: int, *more: bytes) -> AnswerObserver:
    """A chat stream of so many pieces of content, as far as it was relayed."""
    observer = AnswerObserver(ApiStyle.OPENAI, Format.EVENTS)
    for piece in (b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n',) * count + more:
        observer.feed(piece, 1.0)
    return observer


async def test_a_request_that_is_served(kit):
    meter = kit.meter()
    await kit.clock.advance(1.0)
    meter.dispatched(node=NodeId("n"), queue_wait_s=1.0, cold=True)
    assert meter.phase is RequestPhase.DISPATCHED
    await kit.clock.advance(2.0)
    meter.first_content(kit.clock.monotonic_s())
    meter.first_content(99.0)
    await kit.clock.advance(3.0)
    meter.watch(words(7, b"data: [DONE]\n\n"))
    meter.completed(status=200)
    meter.completed(status=200)
    meter.failed(status=500, error="x", origin=Origin.GATEWAY)
    meter.cancelled()
    await kit.telemetry.close()
    received, dispatched, first, completed = await kit.written()
    assert isinstance(received, RequestReceived)
    assert isinstance(dispatched, RequestDispatched)
    assert (dispatched.cold, dispatched.queue_wait_s) == (True, 1.0)
    assert isinstance(first, FirstTokenSent)
    assert first.ttft_s == 3.0
    assert isinstance(completed, RequestCompleted)
    assert (completed.duration_s, completed.service_s) == (6.0, 5.0)
    assert (completed.input_tokens, completed.output_tokens) == (None, 7)
    assert completed.tokens_counted
    text = kit.metrics.render().decode()
    assert (
        'headstart_gateway_requests_total{class="realtime",code="200",model="listed",'
        'operation="chat",outcome="completed"} 1.0'
    ) in text
    assert 'headstart_gateway_cold_requests_total{model="listed"} 1.0' in text
    assert 'tokens_total{direction="output",model="listed"} 7.0' in text


async def test_a_request_that_fails_or_is_left(kit):
    failed, left = kit.meter(), kit.meter()
    failed.failed(status=503, error="queue_timeout", origin=Origin.GATEWAY)
    left.phase = RequestPhase.LOADING
    left.cancelled()
    left.failed(status=None, error="x", origin=Origin.GATEWAY)
    early = kit.meter()
    early.completed(status=200)
    await kit.telemetry.close()
    events = await kit.written()
    ends = [event for event in events if not isinstance(event, RequestReceived)]
    assert isinstance(ends[0], RequestFailed)
    assert (ends[0].status, ends[0].error) == (503, "queue_timeout")
    assert isinstance(ends[1], RequestCancelled)
    assert ends[1].phase is RequestPhase.LOADING
    assert isinstance(ends[2], RequestCompleted)
    assert ends[2].service_s == ends[2].duration_s
    assert (ends[2].output_tokens, ends[2].tokens_counted) == (None, False)


async def test_what_was_relayed_before_an_early_end_is_told(kit):
    failed, left = kit.meter(), kit.meter()
    failed.watch(words(2))
    failed.failed(status=200, error="truncated", origin=Origin.UPSTREAM)
    usage = b'data: {"usage":{"prompt_tokens":5,"completion_tokens":9}}\n\n'
    left.watch(words(3, usage))
    left.cancelled()
    await kit.telemetry.close()
    ends = [event for event in await kit.written() if not isinstance(event, RequestReceived)]
    told = [(end.input_tokens, end.output_tokens, end.tokens_counted) for end in ends]
    assert told == [(None, 2, True), (5, 9, False)]
    assert 'tokens_total{direction="output",model="listed"} 11.0' in kit.metrics.render().decode()


def test_labels_are_bounded_whatever_callers_make_up():
    metrics = GatewayMetrics(lambda model: model.startswith("listed"))
    for number in range(MAX_MODEL_LABELS + 50):
        for name in ("junk", "listed"):
            metrics.ended(
                ModelId(f"{name}-{number}\n"),
                operation="chat",
                priority=PriorityClass.BATCH,
                outcome="failed",
                status=999,
                duration_s=1.0,
            )
    assert metrics.model_label(ModelId("listed-0\n")) == "listed-0\n"
    assert metrics.model_label(ModelId(f"listed-{MAX_MODEL_LABELS}\n")) == "other"
    assert metrics.model_label(None) == "other"
    text = metrics.render().decode()
    assert text.count("headstart_gateway_requests_total{") == MAX_MODEL_LABELS + 1
    assert 'code="other"' in text
    metrics.ended(
        None,
        operation="chat",
        priority=PriorityClass.BATCH,
        outcome="cancelled",
        status=None,
        duration_s=1.0,
    )
    assert 'code="none"' in metrics.render().decode()


class FixedReadings:
    age_s: float | None = None

    def in_flight(self):
        return {ModelId("listed"): 2, ModelId("junk"): 1, ModelId("trash"): 3}

    def waiting(self):
        return {}

    def queued(self):
        return {PriorityClass.BATCH: 4}

    def events(self):
        return {"written": 5, "dropped": 6}

    def table_age_s(self):
        return self.age_s


def test_gauges_tell_what_is_so_at_the_scrape():
    metrics = GatewayMetrics(lambda model: model.startswith("listed"))
    readings = FixedReadings()
    metrics.read_from(readings)
    text = metrics.render().decode()
    assert 'headstart_gateway_in_flight{model="listed"} 2.0' in text
    assert 'headstart_gateway_in_flight{model="other"} 4.0' in text
    assert 'headstart_gateway_queued{class="batch"} 4.0' in text
    assert 'headstart_gateway_events_total{result="dropped"} 6.0' in text
    assert "\nheadstart_gateway_routing_table_age_seconds " not in text
    readings.age_s = 1.5
    assert "headstart_gateway_routing_table_age_seconds 1.5" in metrics.render().decode()


def test_other_figures():
    metrics = GatewayMetrics(lambda _model: True)
    metrics.refused("queue_full")
    metrics.passed(204)
    metrics.lone_load("loaded")
    text = metrics.render().decode()
    assert 'refusals_total{type="queue_full"} 1.0' in text
    assert 'passed_total{code="204"} 1.0' in text
    assert 'lone_loads_total{result="loaded"} 1.0' in text


@pytest.mark.case("P136")
@pytest.mark.parametrize("steps_s", [(-3600.0, 7200.0), (7200.0, -9000.0)])
async def test_a_request_during_which_the_clock_is_set_took_as_long_as_it_took(kit, steps_s):
    meter = kit.meter()
    await kit.clock.advance(1.0)
    meter.dispatched(node=NodeId("n"), queue_wait_s=1.0, cold=False)
    for step_s in steps_s:
        kit.clock._epoch_s += step_s
        await kit.clock.advance(1.5)
    meter.completed(status=200)
    await kit.clock.advance(1.0)
    *_, dispatched, ended = await kit.written()
    assert dispatched.queue_wait_s == 1.0
    assert (ended.duration_s, ended.service_s) == (4.0, 3.0)
    shown = [
        sample.value
        for family in kit.metrics.registry.collect()
        if family.type == "histogram"
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    assert min(shown) >= 0.0
