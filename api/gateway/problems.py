"""What went wrong, and how each API says so. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from api.gateway.detect import ApiStyle
from contracts.errors import HeadstartError
from contracts.events import Origin
from contracts.reasons import Reason


# Not frozen: exceptions get their traceback assigned.
@dataclass(kw_only=True, eq=False)
class Problem(HeadstartError):
    """An answer of our own instead of LocalAI's.

    Attributes
    ----------
    type : str
        The word that callers may rely on, such as ``model_loading``.
    code : str or None
        OpenAI's ``code``; None: the same as the type.
    param : str or None
        The header or field that is wrong.
    retry_after_s : float or None
        When to ask again.
    loading : mapping or None
        How far the load is, beside ``error`` in the body.
    decision : Reason or None
        The word of ``X-Headstart-Decision``.
    """

    status: int
    type: str
    message: str
    origin: Origin = Origin.GATEWAY
    code: str | None = None
    param: str | None = None
    retry_after_s: float | None = None
    loading: Mapping[str, object] | None = None
    decision: Reason | None = None
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())

    def __str__(self) -> str:
        return f"{self.status} {self.type}: {self.message}"


def bad_header(header: str, message: str) -> Problem:
    """A ``X-Headstart-*`` header with a value that it does not take."""
    return Problem(
        status=400,
        type="invalid_request_error",
        code="invalid_header",
        param=header,
        message=message,
        origin=Origin.CLIENT,
    )


def unauthorized() -> Problem:
    """No key, or a wrong one."""
    return Problem(
        status=401,
        type="invalid_request_error",
        code="invalid_api_key",
        message="A valid API key is required: send it as 'Authorization: Bearer KEY'.",
        origin=Origin.CLIENT,
        headers=((b"www-authenticate", b"Bearer"),),
    )


def permission_denied(message: str, *, code: str, param: str | None = None) -> Problem:
    """The key is a right one, and does not allow this."""
    return Problem(
        status=403,
        type="permission_denied",
        code=code,
        param=param,
        message=message,
        origin=Origin.CLIENT,
    )


def rate_limited(requests_per_min: float, retry_after_s: float) -> Problem:
    """The key has sent as many requests as it may for now."""
    limit = b"%d" % requests_per_min
    return Problem(
        status=429,
        type="rate_limited",
        message=f"This key may send {requests_per_min:g} requests in a minute. Try again later.",
        origin=Origin.CLIENT,
        retry_after_s=retry_after_s,
        headers=(
            (b"x-ratelimit-limit-requests", limit),
            (b"x-ratelimit-remaining-requests", b"0"),
            (b"x-ratelimit-reset-requests", retry_after(retry_after_s) + b"s"),
        ),
    )


def not_found(path: str) -> Problem:
    """A path of our own that there is not."""
    return Problem(
        status=404,
        type="invalid_request_error",
        code="not_found",
        message=f"The gateway has no {path[:100]}; it has /headstart/healthz, /readyz, /metrics.",
        origin=Origin.CLIENT,
    )


def unknown_model(model: str) -> Problem:
    """A name that no LocalAI lists, in LocalAI's own words."""
    return Problem(
        status=404,
        type="invalid_request_error",
        code="model_not_found",
        param="model",
        message=f'model "{model[:300]}" not found. To see available models, call GET /v1/models',
        origin=Origin.CLIENT,
        decision=Reason.UNKNOWN_MODEL,
    )


def body_too_large(limit_bytes: int) -> Problem:
    """The body is over the limit. The connection ends, since its rest is not read."""
    return Problem(
        status=413,
        type="invalid_request_error",
        code="body_too_large",
        message=f"The body is larger than the gateway takes ({limit_bytes} bytes).",
        origin=Origin.CLIENT,
        headers=((b"connection", b"close"),),
    )


def queue_full(priority: str, retry_after_s: float) -> Problem:
    """The queue of the class is full."""
    return Problem(
        status=429,
        type="queue_full",
        message=f"Too many {priority} requests are waiting. Try again later.",
        retry_after_s=retry_after_s,
        decision=Reason.QUEUE_FULL,
    )


def queue_timeout(waited_s: float, retry_after_s: float) -> Problem:
    """It waited longer than the queue's limit, or than its caller wants to."""
    return Problem(
        status=503,
        type="queue_timeout",
        message=f"The request waited {waited_s:.0f} s for its turn. Try again later.",
        retry_after_s=retry_after_s,
        decision=Reason.QUEUE_TIMEOUT,
    )


def model_loading(
    model: str, *, state: str, elapsed_s: float | None, expected_s: float | None
) -> Problem:
    """The model was still loading when the wait budget ended."""
    rest_s = None
    if expected_s is not None and elapsed_s is not None:
        rest_s = expected_s - elapsed_s
    return Problem(
        status=503,
        type="model_loading",
        message=f"The model {model} is still being loaded. Try again later.",
        retry_after_s=max(1.0, rest_s) if rest_s is not None else 5.0,
        loading={
            "model": model,
            "state": state,
            "elapsed_s": _rounded(elapsed_s),
            "expected_s": _rounded(expected_s),
        },
        decision=Reason.MODEL_LOADING,
    )


def model_cooldown(model: str, message: str, retry_after_s: float | None) -> Problem:
    """Its last load failed, and LocalAI cools down."""
    said = f": {message}" if message else "."
    return Problem(
        status=503,
        type="model_cooldown",
        message=f"The model {model} could not be loaded{said}",
        origin=Origin.UPSTREAM,
        retry_after_s=10.0 if retry_after_s is None else retry_after_s,
        decision=Reason.COOL_DOWN,
    )


def no_backend(message: str, *, retry_after_s: float | None = None, decision: Reason) -> Problem:
    """Nothing that can serve it is healthy."""
    return Problem(
        status=503,
        type="no_backend",
        message=message,
        origin=Origin.UPSTREAM,
        retry_after_s=5.0 if retry_after_s is None else retry_after_s,
        decision=decision,
    )


def preempted() -> Problem:
    """It was cancelled before its first byte, for a realtime request."""
    return Problem(
        status=503,
        type="preempted",
        message="A realtime request took its place before it was answered. Try again.",
        retry_after_s=1.0,
        decision=Reason.PREEMPTED,
    )


def shutting_down() -> Problem:
    """The gateway stops, and the time in which running requests may end is over."""
    return Problem(
        status=503,
        type="shutting_down",
        message="The gateway is being stopped. Try again.",
        retry_after_s=1.0,
        decision=Reason.SHUTTING_DOWN,
    )


def upstream_error(message: str) -> Problem:
    """LocalAI refused the connection, or broke it."""
    return Problem(
        status=502,
        type="upstream_error",
        message=message,
        origin=Origin.UPSTREAM,
        decision=Reason.UPSTREAM_ERROR,
    )


def upstream_timeout(message: str) -> Problem:
    """LocalAI did not answer in time."""
    return Problem(
        status=504,
        type="upstream_timeout",
        message=message,
        origin=Origin.UPSTREAM,
        decision=Reason.UPSTREAM_ERROR,
    )


def retry_after(seconds: float) -> bytes:
    """The header's value: whole seconds, at least 1."""
    return b"%d" % max(1, math.ceil(seconds))


def error_body(problem: Problem, style: ApiStyle) -> bytes:
    """The JSON body of an error answer in the API's own shape; always an object."""
    body: dict[str, object]
    if style is ApiStyle.ANTHROPIC:
        body = {"type": "error", "error": {"type": problem.type, "message": problem.message}}
    else:
        body = {
            "error": {
                "message": problem.message,
                "type": problem.type,
                "param": problem.param,
                "code": problem.code or problem.type,
            }
        }
    if problem.loading is not None:
        body["loading"] = dict(problem.loading)
    return msgspec.json.encode(body)


def error_event(problem: Problem, style: ApiStyle, *, is_between_events: bool) -> bytes:
    """One error event in the stream's own format, after which the stream ends.

    A half event before it is closed first, so that the two do not run into each other.
    """
    gap = b"" if is_between_events else b"\n\n"
    inner: dict[str, object] = {
        "message": problem.message,
        "type": problem.type,
        "param": None,
        "code": problem.code or problem.type,
    }
    if style is ApiStyle.OLLAMA:
        line = {"error": problem.message, "done": True, "done_reason": "error"}
        return gap[:1] + msgspec.json.encode(line) + b"\n"
    beside = {} if problem.loading is None else {"loading": problem.loading}
    if style is ApiStyle.ANTHROPIC:
        told = {"type": problem.type, "message": problem.message}
        data = msgspec.json.encode({"type": "error", "error": told, **beside})
        return gap + b"event: error\ndata: " + data + b"\n\n"
    if style is ApiStyle.RESPONSES:
        # The event's own fields, and the object that clients raise as an error.
        data = msgspec.json.encode({**inner, "type": "error", "error": inner, **beside})
        return gap + b"event: error\ndata: " + data + b"\n\n"
    data = msgspec.json.encode({"error": inner, **beside})
    end = b"data: [DONE]\n\n" if style is ApiStyle.OPENAI else b""
    return gap + b"data: " + data + b"\n\n" + end


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
