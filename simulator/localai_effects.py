"""What the LocalAI state machine answers: to its callers, and to whoever keeps a log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

CallerId = int
"""One call to LocalAI, numbered by whoever makes the calls."""


class CallKind(StrEnum):
    """What a caller wants of a model."""

    INFER = "infer"
    LOAD = "load"
    MONITOR = "monitor"
    STOP = "stop"


class RefusalKind(StrEnum):
    """Why a caller got nothing."""

    COOLDOWN = "cooldown"
    LOAD_FAILED = "load_failed"
    DEAD = "dead"
    """The backend's process is gone, and LocalAI has not noticed yet."""
    BROKEN = "broken"
    """The backend's process died under the request."""
    NOT_LOADED = "not_loaded"
    BUSY = "busy"
    """A stop gave up on a model that still serves."""
    STOP_TIMEOUT = "stop_timeout"
    """A stop gave up on a model that still loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The request holds a slot. ``cold``: its model was not hot when it arrived."""

    caller: CallerId
    cold: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A load, a stop or a look ended well. ``busy`` is told to ``MONITOR`` alone."""

    caller: CallerId
    busy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The caller gets an error."""

    caller: CallerId
    kind: RefusalKind
    message: str = ""
    retry_after_s: float | None = None


class RecordKind(StrEnum):
    """What the log tells."""

    LOAD_STARTED = "load_started"
    LOAD_ENDED = "load_ended"
    LOAD_FAILED = "load_failed"
    LOAD_CANCELLED = "load_cancelled"
    UNLOADED = "unloaded"
    REQUEST_RECEIVED = "request_received"
    REQUEST_STARTED = "request_started"
    REQUEST_ENDED = "request_ended"
    CALLER_LEFT = "caller_left"


class StopCause(StrEnum):
    """Why a model left memory."""

    SHUTDOWN = "shutdown"
    LIMIT = "limit"
    IDLE = "idle"
    CRASH = "crash"
    CONFIG = "config"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One line of the log. ``caller`` is whose call it belongs to, ``cause`` why it happened."""

    kind: RecordKind
    at_s: float
    model: str
    caller: CallerId | None = None
    cold: bool | None = None
    cause: str | None = None


Answer = Started | Done | Refused
Effect = Answer | Record
