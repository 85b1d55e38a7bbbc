"""Marks requests that repeat what was just refused, so that the two are one demand."""

from __future__ import annotations

from dataclasses import replace

from api.gateway.body import RequestBody
from api.gateway.metrics import GatewayMetrics
from api.gateway.problems import Problem
from api.gateway.recognition import Recognised
from api.gateway.retries import RetryBook, digest_of
from contracts.ports import Clock

MAX_COMPARED_BYTES = 1024**2
_ASK_AGAIN = frozenset({429, 503})


class Repeats:
    """Compares bodies, of those only that were refused something a moment ago."""

    def __init__(self, metrics: GatewayMetrics, clock: Clock) -> None:
        self._book = RetryBook()
        self._metrics = metrics
        self._clock = clock

    def marked(self, request: Recognised, body: RequestBody) -> Recognised:
        """The same, marked where its client was refused just this within the last minute."""
        subject = request.subject
        if not self._book.knows(subject.client) or not _is_comparable(body):
            return request
        now_s = self._clock.monotonic_s()
        digest = digest_of(body.view())
        if not self._book.is_retry(subject.client, subject.model, digest, now_s):
            return request
        self._metrics.retried()
        return replace(request, subject=replace(subject, is_retry=True))

    def note(self, request: Recognised, body: RequestBody, problem: Problem) -> None:
        """It was answered with ``problem``: if that says to ask again, it may come again."""
        if problem.status in _ASK_AGAIN and _is_comparable(body):
            client, model = request.subject.client, request.subject.model
            digest = digest_of(body.view())
            self._book.refused(client, model, digest, self._clock.monotonic_s())


def _is_comparable(body: RequestBody) -> bool:
    """Whether it is all here, and small enough to be compared with another."""
    return body.is_complete and body.size_bytes <= MAX_COMPARED_BYTES
