"""How an answer of LocalAI's ended, and what a caller is told where it cannot be relayed."""

from __future__ import annotations

from api.gateway.detect import ApiStyle
from api.gateway.meter import RequestMeter
from api.gateway.problems import Problem, upstream_error
from api.gateway.proxy import read_bounded
from api.gateway.sse import AnswerObserver, Format
from contracts.events import Origin
from contracts.reasons import Reason
from contracts.upstream import UpstreamResponse

_MAX_ERROR_BYTES = 16_384


def tell_end(meter: RequestMeter, observer: AnswerObserver, status: int) -> None:
    """The answer was relayed to its end; that does not mean that it was a good one."""
    if status >= 400:
        origin = Origin.UPSTREAM if status >= 500 else Origin.CLIENT
        meter.failed(status=status, error=f"http_{status}", origin=origin)
    elif observer.error is not None:
        meter.failed(status=status, error="stream_error", origin=Origin.UPSTREAM)
    elif observer.is_truncated:
        meter.failed(status=status, error="truncated", origin=Origin.UPSTREAM)
    else:
        meter.completed(status=status, answered_by=observer.model)


async def late_error(response: UpstreamResponse) -> Problem:
    """LocalAI's error, for a caller whose stream has begun with comments."""
    status = response.status
    if status < 400:
        response.close()
        return upstream_error("LocalAI answered with something else than a stream.")
    said = AnswerObserver(ApiStyle.OTHER, Format.DOCUMENT)
    said.feed(await read_bounded(response, _MAX_ERROR_BYTES), 0.0)
    said.end(0.0)
    return Problem(
        status=status,
        type="upstream_error",
        code=f"http_{status}",
        message=said.error or f"LocalAI answered with status {status}.",
        origin=Origin.UPSTREAM if status >= 500 else Origin.CLIENT,
        decision=Reason.UPSTREAM_ERROR,
    )
