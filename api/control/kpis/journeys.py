"""One request from its arrival to its end, put together from its events. No clock, no I/O."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import assert_never

from contracts.events import (
    AnyEvent,
    FeedbackGiven,
    FirstTokenSent,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    Origin,
    PriorityClass,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestReceived,
)
from contracts.ids import ModelId, NodeId, RequestId

KEPT_S = 86_400.0
_LOADS_KEPT = 16
_MODELS_KEPT = 1000


@dataclass(slots=True)
class Journey:
    """What is known of one request; filled as its events come in. None: not told (yet).

    Attributes
    ----------
    wait_s : float or None
        From its arrival to its dispatch; ``load_s`` is the part of it in which its model loaded.
    outcome : str
        ``open``, ``completed``, ``failed`` or ``cancelled``.
    error, origin :
        What went wrong and whose doing it was.
    phase, left_because :
        How far a cancelled one had come, and whether its caller left or it was preempted.
    met : bool or None
        Whether it met its model's target; None: it was not judged.
    """

    request_id: RequestId
    model: ModelId | None
    operation: str
    priority: PriorityClass
    stream: bool
    received_at_s: float
    is_retry: bool = False
    node: NodeId | None = None
    dispatched_at_s: float | None = None
    cold: bool | None = None
    wait_s: float | None = None
    load_s: float | None = None
    ttft_s: float | None = None
    ended_at_s: float | None = None
    outcome: str = "open"
    status: int | None = None
    error: str = ""
    origin: Origin | None = None
    phase: str = ""
    left_because: str = ""
    duration_s: float | None = None
    service_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    target_s: float | None = None
    met: bool | None = None
    score: float | None = None

    @property
    def judged_s(self) -> float | None:
        """What its target is held against: first content of a stream, else its whole time."""
        if self.stream and self.ttft_s is not None:
            return self.ttft_s
        return self.duration_s if self.outcome == "completed" and not self.stream else None


class Journeys:
    """The requests of the last day, the newest last.

    Parameters
    ----------
    target_s : callable
        The latency target of a model, as it is when a request ends.
    on_end : callable
        Told of each request that has ended.
    max_kept : int
        Requests kept; beyond it the oldest goes. One that had not ended counts as forgotten.
    """

    def __init__(
        self,
        target_s: Callable[[ModelId], float],
        *,
        on_end: Callable[[Journey], None],
        max_kept: int = 40_000,
    ) -> None:
        self._target_s = target_s
        self._on_end = on_end
        self._max_kept = max_kept
        self._kept: OrderedDict[RequestId, Journey] = OrderedDict()
        self._loads: OrderedDict[ModelId, deque[list[float | None]]] = OrderedDict()
        self.forgotten = 0

    def get(self, request_id: str) -> Journey | None:
        """The request of that id; None: not known, or longer ago than a day."""
        return self._kept.get(RequestId(request_id))

    def newest(self) -> Iterator[Journey]:
        """All that are kept, the newest arrival first."""
        yield from reversed(self._kept.values())

    def __len__(self) -> int:
        return len(self._kept)

    def observe(self, event: AnyEvent) -> None:
        """Take in one event; those that are not about requests or loads change nothing."""
        match event:
            case RequestReceived():
                self._received(event)
            case RequestDispatched():
                self._dispatched(event)
            case FirstTokenSent():
                journey = self._kept.get(event.request_id)
                if journey is not None and journey.ttft_s is None:
                    journey.ttft_s = event.ttft_s
            case RequestCompleted() | RequestFailed() | RequestCancelled():
                self._ended(event)
            case ModelLoadStarted() | ModelLoaded() | ModelLoadFailed():
                self._load(event)
            case FeedbackGiven():
                journey = self._kept.get(event.request_id)
                if journey is not None:
                    journey.score = event.score
            case _:
                pass

    def _received(self, event: RequestReceived) -> None:
        # An id that comes again, as callers may choose theirs, is about the newer request.
        self._kept.pop(event.request_id, None)
        self._kept[event.request_id] = Journey(
            request_id=event.request_id,
            model=event.model,
            operation=event.operation,
            priority=event.priority,
            stream=event.stream,
            received_at_s=event.at_s,
            is_retry=event.is_retry,
        )
        while self._is_over(next(iter(self._kept.values())), event.at_s):
            _, old = self._kept.popitem(last=False)
            self.forgotten += old.outcome == "open"

    def _is_over(self, oldest: Journey, now_s: float) -> bool:
        return len(self._kept) > self._max_kept or oldest.received_at_s < now_s - KEPT_S

    def _dispatched(self, event: RequestDispatched) -> None:
        journey = self._kept.get(event.request_id)
        if journey is None or journey.outcome != "open":
            return
        journey.node = event.node
        journey.dispatched_at_s = event.at_s
        journey.wait_s = event.queue_wait_s
        # Told again where it went to another node: it was cold if it was so once.
        journey.cold = bool(journey.cold) or event.cold
        if event.model is not None:
            begun_s = event.at_s - event.queue_wait_s
            journey.load_s = self.loading_s(event.model, begun_s, event.at_s)

    def _ended(self, event: RequestCompleted | RequestFailed | RequestCancelled) -> None:
        journey = self._kept.get(event.request_id)
        if journey is None or journey.outcome != "open":
            return
        journey.model = journey.model or event.model
        journey.ended_at_s = event.at_s
        journey.duration_s = event.duration_s
        journey.input_tokens, journey.output_tokens = event.input_tokens, event.output_tokens
        match event:
            case RequestCompleted():
                journey.outcome, journey.status = "completed", event.status
                journey.service_s = event.service_s
            case RequestFailed():
                journey.outcome, journey.status = "failed", event.status
                journey.error, journey.origin = event.error[:200], event.origin
            case RequestCancelled():
                journey.outcome, journey.phase = "cancelled", event.phase.value
                journey.left_because = event.reason[:40]
            case _:
                assert_never(event)
        self._judge(journey)
        self._on_end(journey)

    def _judge(self, journey: Journey) -> None:
        """As ``RequestTally``: what its caller spoiled or left is not judged."""
        if journey.model is None:
            return
        journey.target_s = self._target_s(journey.model)
        if journey.outcome == "failed":
            told_s = journey.judged_s
            if told_s is not None:
                journey.met = told_s <= journey.target_s
            elif journey.origin is not Origin.CLIENT:
                journey.met = False
            return
        refused = journey.status is not None and journey.status >= 400
        if journey.dispatched_at_s is None or refused:
            return
        told_s = journey.judged_s
        if told_s is not None:
            journey.met = told_s <= journey.target_s

    def _load(self, event: ModelLoadStarted | ModelLoaded | ModelLoadFailed) -> None:
        spans = self._loads.get(event.model)
        if spans is None:
            spans = self._loads[event.model] = deque(maxlen=_LOADS_KEPT)
            if len(self._loads) > _MODELS_KEPT:
                self._loads.popitem(last=False)
        else:
            self._loads.move_to_end(event.model)
        is_open = bool(spans) and spans[-1][1] is None
        if isinstance(event, ModelLoadStarted):
            if not is_open:
                spans.append([event.at_s, None])
        elif is_open:
            spans[-1][1] = event.at_s
        elif isinstance(event, ModelLoaded) and event.load_s is not None:
            spans.append([event.at_s - event.load_s, event.at_s])

    def loading_s(self, model: ModelId, from_s: float, to_s: float) -> float:
        """Seconds between two moments in which the model was loading, as far as is known."""
        total_s = 0.0
        for begun_s, ended_s in self._loads.get(model, ()):
            assert begun_s is not None
            total_s += max(
                0.0, min(to_s, to_s if ended_s is None else ended_s) - max(from_s, begun_s)
            )
        return min(total_s, max(0.0, to_s - from_s))
