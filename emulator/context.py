"""What every path of the emulator works with."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from contracts.ports import Clock
from emulator.admission import Admission
from emulator.catalog import Catalog
from emulator.counts import CallTimes, Usage
from emulator.events import EventLog
from emulator.fault_script import FaultScript
from emulator.faults import FaultBoard
from emulator.http import Reply, Request
from emulator.instance import Instance
from emulator.models import EmulatedModel
from emulator.options import EmulatorOptions
from emulator.response_store import ResponseStore
from emulator.spoken import WORDS, Spoken
from emulator.trace_log import CallTraces
from emulator.work import MAX_CHUNKS_OF_REPLAY, Work, timing

SERVICE_HEADER = "x-emulator-service-s"
MAX_TOKENS = 100_000


@dataclass(slots=True, kw_only=True)
class Emulator:
    """One emulated server and everything it holds."""

    options: EmulatorOptions
    clock: Clock
    catalog: Catalog
    instance: Instance
    events: EventLog
    faults: FaultBoard
    script: FaultScript
    admission: Admission
    settings: dict[str, Any] = field(default_factory=dict)
    limit_set_at_run_time: bool = False
    usage: dict[str, Usage] = field(default_factory=dict)
    call_times: CallTimes = field(default_factory=CallTimes)
    responses: ResponseStore = field(default_factory=ResponseStore)
    images: dict[str, None] = field(default_factory=dict)
    traces: CallTraces = field(default_factory=CallTraces)

    def created(self) -> int:
        """The second that answers are stamped with."""
        return int(self.clock.now_s())

    def count(self, work: Work) -> None:
        """A request was answered."""
        usage = self.usage.setdefault(work.served, Usage())
        usage.requests += 1
        usage.prompt_tokens += work.prompt_tokens
        usage.completion_tokens += work.tokens

    def _first_touch_s(self, model: EmulatedModel | None) -> float:
        if model is None or self.instance.is_touched(model.name):
            return 0.0
        return model.first_touch_s

    def work(
        self,
        request: Request,
        name: str,
        *,
        max_tokens: object = None,
        prompt_tokens: int = 0,
        share: int = 1,
        generates: bool = True,
        spoken: Spoken = WORDS,
    ) -> Work:
        """What a request for the model of that name costs.

        ``share`` is how many such pieces of work the request consists of; one that
        generates nothing takes the time of a first token. ``spoken`` is what a model says
        that keeps to a format that it was asked for.
        """
        served = self.catalog.resolve(name)
        model = self.catalog.model(served)
        service_s = _service_s(request)
        if service_s is not None:
            service_s /= share
        tokens, limited = _length(
            model, max_tokens, generates=generates, timed=service_s is not None
        )
        slow = self.faults.peek("answer_slow", served)
        first_s, step_s, total_s = timing(
            model,
            tokens=tokens,
            service_s=service_s,
            extra_s=(0.0 if slow is None else slow.extra_s) + self._first_touch_s(model),
        )
        return Work(
            model=model,
            served=served,
            asked=name,
            request_id=request.headers.get("x-request-id") or str(uuid.uuid4()),
            tokens=tokens,
            prompt_tokens=prompt_tokens,
            limited=limited,
            first_s=first_s,
            step_s=step_s,
            total_s=total_s,
            spoken=spoken if model is not None and model.keeps_format else WORDS,
            crash=self.faults.take("backend_crash", served),
            error=self.faults.take("answer_error", served),
            disconnect=self.faults.take("disconnect", served),
        )


Handler = Callable[[Emulator, Request, Reply], Awaitable[None]]


def _service_s(request: Request) -> float | None:
    text = request.headers.get(SERVICE_HEADER)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value < 1e6 else None


def _length(
    model: EmulatedModel | None, max_tokens: object, *, generates: bool, timed: bool
) -> tuple[int, bool]:
    """Tokens of the answer, and whether ``max_tokens`` cuts it."""
    if not generates:
        return 0, False
    if isinstance(max_tokens, int) and not isinstance(max_tokens, bool) and max_tokens > 0:
        return min(max_tokens, MAX_TOKENS), True
    tokens = 1 if model is None else model.answer_tokens
    return min(tokens, MAX_CHUNKS_OF_REPLAY) if timed else tokens, False


def words(value: object) -> int:
    """Tokens of a prompt: the words of all texts in it."""
    if isinstance(value, str):
        return len(value.split())
    if isinstance(value, list):
        return sum(words(item) for item in value)
    if isinstance(value, Mapping):
        return words(value.get("content", value.get("text", "")))
    return 0
