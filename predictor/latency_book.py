"""How long requests of each model take, learned from their events."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.events import (
    AnyEvent,
    FirstTokenSent,
    ModelLoaded,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestReceived,
)
from contracts.forecasts import Forecast, Signal
from contracts.ids import ModelId
from predictor.models.latency import BY_LOAD, LatencyForecast, ModelLatency, RequestLoad
from predictor.open_requests import OpenRequests
from predictor.records import latency_forecasts, work_forecasts


class LatencyBook:
    """Latencies of the models that its owner has opened a page for."""

    def __init__(self) -> None:
        self._pages: dict[ModelId, ModelLatency | None] = {}
        self._open = OpenRequests()
        self._lost_resets = 0

    @property
    def resets(self) -> int:
        """How often a regression had to be started afresh."""
        return self._lost_resets + sum(
            page.resets for page in self._pages.values() if page is not None
        )

    def open_page(self, model: ModelId) -> None:
        """``model`` is known from here on; of others nothing is kept."""
        self._pages.setdefault(model, None)

    def drop(self, model: ModelId) -> None:
        """Forget ``model``."""
        page = self._pages.pop(model, None)
        self._lost_resets += 0 if page is None else page.resets

    def rewind(self) -> None:
        """The clock was set back: when what runs began is not known any more."""
        self._open.clear()

    def observe(self, event: AnyEvent) -> None:
        """Take in one event."""
        match event:
            case RequestReceived(model=model) if model is not None:
                self._open.begin(event.request_id, model)
            case RequestDispatched(cold=True):
                running = self._open.get(event.request_id)
                if running is not None:
                    running.cold = True
            case FirstTokenSent(model=model) if model is not None:
                self._first(model, event)
            case RequestCompleted(model=model):
                self._complete(model, event)
            case RequestFailed() | RequestCancelled():
                self._open.end(event.request_id)
            case ModelLoaded(load_s=load_s) if load_s is not None:
                self._add(event.model, Signal.LOAD_S, None, load_s)
            case _:
                pass

    def expected(
        self, model: ModelId, *, in_flight: int | None = None, input_tokens: int | None = None
    ) -> Mapping[Signal, LatencyForecast]:
        """What a warm request of ``model`` takes under a load; None: as it is just now."""
        page = self._pages.get(model)
        if page is None:
            return {}
        load = page.usual_load(self._open.in_flight(model) if in_flight is None else in_flight)
        if input_tokens is not None:
            load = RequestLoad(load.in_flight, float(input_tokens))
        forecasts = ((signal, page.forecast(signal, load)) for signal in (*BY_LOAD, Signal.LOAD_S))
        return {signal: forecast for signal, forecast in forecasts if forecast is not None}

    def cold_wait_s(self, model: ModelId) -> float | None:
        """How long a request waits for its first content if ``model`` had to be loaded."""
        page = self._pages.get(model)
        return None if page is None else page.cold_wait_s(page.usual_load(0))

    def records(self, arrivals: Forecast) -> tuple[Forecast, ...]:
        """What is published beside the arrivals of a model: its work, and its latencies."""
        page = self._pages.get(arrivals.model)
        work = () if page is None else work_forecasts(arrivals, page.per_request())
        return *work, *latency_forecasts(
            arrivals.model,
            self.expected(arrivals.model),
            made_at_s=arrivals.made_at_s,
            expires_at_s=arrivals.expires_at_s,
        )

    def _first(self, model: ModelId, event: FirstTokenSent) -> None:
        """Its tokens are told at its end, and what it says of the load is learned then."""
        running = self._open.get(event.request_id)
        if running is None:
            self._add(model, Signal.TTFT_S, None, event.ttft_s)
        else:
            running.ttft_s = event.ttft_s

    def _complete(self, model: ModelId | None, event: RequestCompleted) -> None:
        running = self._open.end(event.request_id)
        if model is None or event.status >= 400 or (running is not None and running.cold):
            return
        if event.served_by is not None:
            return  # how long another model took says nothing of this one
        load = None
        if running is not None:
            tokens = None if event.input_tokens is None else float(event.input_tokens)
            load = RequestLoad(running.in_flight, tokens)
            if running.ttft_s is not None:
                self._add(model, Signal.TTFT_S, load, running.ttft_s)
        self._add(model, Signal.DURATION_S, load, event.duration_s)
        if event.output_tokens and event.service_s > 0.0:
            speed = event.output_tokens / event.service_s
            self._add(model, Signal.TOKENS_PER_S, load, speed)
        page = self._pages.get(model)
        if page is not None:
            page.add_request(
                input_tokens=event.input_tokens,
                output_tokens=event.output_tokens,
                service_s=event.service_s,
            )

    def _add(self, model: ModelId, signal: Signal, load: RequestLoad | None, value: float) -> None:
        if model not in self._pages:
            return
        page = self._pages[model]
        if page is None:
            page = self._pages[model] = ModelLatency()
        page.add(signal, load, value)
