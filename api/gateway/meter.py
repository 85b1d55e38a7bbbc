"""The events and figures of one request; it ends exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from api.gateway.metrics import GatewayMetrics
from api.gateway.sse import AnswerObserver
from api.gateway.telemetry import Telemetry
from contracts.events import (
    FirstTokenSent,
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
from contracts.ports import Clock


class Tokens(TypedDict):
    """What each kind of end says about tokens."""

    input_tokens: int | None
    output_tokens: int | None
    tokens_counted: bool


@dataclass(slots=True, kw_only=True)
class Subject:
    """What a request is, as its events say it."""

    request_id: RequestId
    model: ModelId | None
    operation: str
    priority: PriorityClass
    client: str
    stream: bool
    is_retry: bool = False
    is_deferrable: bool = False


class RequestMeter:
    """Tells telemetry and metrics how one inference request fares.

    Attributes
    ----------
    phase : RequestPhase
        How far it has come.
    has_ended : bool
        Whether its one end was told.
    """

    __slots__ = (
        "_clock",
        "_dispatched_s",
        "_is_cold",
        "_metrics",
        "_node",
        "_observer",
        "_served_by",
        "_started_s",
        "_subject",
        "_telemetry",
        "has_ended",
        "phase",
    )

    def __init__(
        self, subject: Subject, *, telemetry: Telemetry, metrics: GatewayMetrics, clock: Clock
    ) -> None:
        self._subject = subject
        self._telemetry = telemetry
        self._metrics = metrics
        self._clock = clock
        self._started_s = clock.monotonic_s()
        self._dispatched_s: float | None = None
        self._is_cold = False
        self._node: NodeId | None = None
        self._observer: AnswerObserver | None = None
        self._served_by: ModelId | None = None
        self.phase = RequestPhase.QUEUED
        self.has_ended = False
        telemetry.emit(
            RequestReceived(
                event_id=telemetry.next_id(),
                at_s=self._clock.now_s(),
                source=telemetry.source,
                request_id=subject.request_id,
                model=subject.model,
                operation=subject.operation,
                priority=subject.priority,
                client=subject.client,
                stream=subject.stream,
                is_retry=subject.is_retry,
                is_deferrable=subject.is_deferrable,
            )
        )

    @property
    def elapsed_s(self) -> float:
        """Seconds since it was received."""
        return self._clock.monotonic_s() - self._started_s

    def dispatched(
        self, *, node: NodeId, queue_wait_s: float, cold: bool, served_by: ModelId | None = None
    ) -> None:
        """It goes to a node now. Where that had no slot it goes again, and is told once.

        It is told again where it goes to another node, or after it waited for a load again.
        ``served_by``: the lower rung that it goes to instead of its model.
        """
        self._served_by = served_by
        is_first = self._dispatched_s is None
        self._dispatched_s = self._clock.monotonic_s()
        self._is_cold = cold
        self.phase = RequestPhase.DISPATCHED
        if is_first:
            self._metrics.dispatched(
                self._subject.model, self._subject.priority, wait_s=queue_wait_s, cold=cold
            )
            if served_by is not None:
                self._metrics.fell_back(self._subject.model, served_by)
        elif node == self._node:
            return
        self._node = node
        telemetry = self._telemetry
        telemetry.emit(
            RequestDispatched(
                event_id=telemetry.next_id(),
                at_s=self._clock.now_s(),
                source=telemetry.source,
                request_id=self._subject.request_id,
                model=self._subject.model,
                node=node,
                queue_wait_s=queue_wait_s,
                cold=cold,
                served_by=served_by,
            )
        )

    def waits_again(self) -> None:
        """The model was not there after all, and has to be loaded."""
        self._node = None

    def watch(self, observer: AnswerObserver) -> None:
        """Whatever the end will be, tokens are what this one saw until then."""
        self._observer = observer

    def first_content(self, at_monotonic_s: float) -> None:
        """The first content has reached the caller."""
        if self.phase is RequestPhase.STREAMING:
            return
        self.phase = RequestPhase.STREAMING
        ttft_s = at_monotonic_s - self._started_s
        self._metrics.first_content(self._subject.model, self._subject.priority, ttft_s)
        if self._dispatched_s is not None and not self._is_cold and self._served_by is None:
            self._metrics.warm_first_content(
                self._subject.model, at_monotonic_s - self._dispatched_s
            )
        telemetry = self._telemetry
        telemetry.emit(
            FirstTokenSent(
                event_id=telemetry.next_id(),
                at_s=self._clock.now_s(),
                source=telemetry.source,
                request_id=self._subject.request_id,
                model=self._subject.model,
                ttft_s=ttft_s,
            )
        )

    def completed(self, *, status: int, answered_by: str | None = None) -> None:
        """The whole answer was relayed; ``answered_by`` is the model that the answer names."""
        if self.has_ended:
            return
        model = self._subject.model
        if model is None and answered_by:
            model = ModelId(answered_by)
        tokens = self._tokens()
        duration_s = self._end("completed", status, model, tokens)
        telemetry = self._telemetry
        telemetry.emit(
            RequestCompleted(
                event_id=telemetry.next_id(),
                at_s=self._clock.now_s(),
                source=telemetry.source,
                request_id=self._subject.request_id,
                model=model,
                status=status,
                duration_s=duration_s,
                service_s=self._service_s(duration_s),
                **tokens,
                served_by=self._served_by,
            )
        )

    def failed(self, *, status: int | None, error: str, origin: Origin) -> None:
        """The caller got an error, or a stream that ended early."""
        if self.has_ended:
            return
        tokens = self._tokens()
        duration_s = self._end("failed", status, self._subject.model, tokens)
        telemetry = self._telemetry
        telemetry.emit(
            RequestFailed(
                event_id=telemetry.next_id(),
                at_s=self._clock.now_s(),
                source=telemetry.source,
                request_id=self._subject.request_id,
                model=self._subject.model,
                status=status,
                error=error,
                origin=origin,
                duration_s=duration_s,
                **tokens,
            )
        )

    def cancelled(self, reason: str = "left") -> None:
        """The caller has left, or was told to make way for another."""
        if self.has_ended:
            return
        tokens = self._tokens()
        duration_s = self._end("cancelled", None, self._subject.model, tokens)
        telemetry = self._telemetry
        telemetry.emit(
            RequestCancelled(
                event_id=telemetry.next_id(),
                at_s=self._clock.now_s(),
                source=telemetry.source,
                request_id=self._subject.request_id,
                model=self._subject.model,
                phase=self.phase,
                duration_s=duration_s,
                **tokens,
                reason=reason,
            )
        )

    def _end(
        self, outcome: str, status: int | None, model: ModelId | None, tokens: Tokens
    ) -> float:
        self.has_ended = True
        duration_s = self.elapsed_s
        self._metrics.tokens(model, tokens["input_tokens"], tokens["output_tokens"])
        self._metrics.ended(
            model,
            operation=self._subject.operation,
            priority=self._subject.priority,
            outcome=outcome,
            status=status,
            duration_s=duration_s,
        )
        return duration_s

    def _tokens(self) -> Tokens:
        seen = self._observer
        if seen is None:
            return {"input_tokens": None, "output_tokens": None, "tokens_counted": False}
        return {
            "input_tokens": seen.input_tokens,
            "output_tokens": seen.output_tokens,
            "tokens_counted": seen.tokens_counted,
        }

    def _service_s(self, duration_s: float) -> float:
        if self._dispatched_s is None:
            return duration_s
        return self._clock.monotonic_s() - self._dispatched_s
