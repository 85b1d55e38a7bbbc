"""LocalAI's words for what went wrong, before an endpoint puts them into its own shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

from emulator.instance import Refusal
from simulator.localai_effects import RefusalKind

DEAD_ADDRESS = "127.0.0.1:38669"


@dataclass(frozen=True, slots=True)
class Failure:
    """Status and message of a plain answer; ``retry_after`` in whole seconds where it is told.

    One with a ``kind`` is told before a stream begins.
    """

    status: int
    message: str
    retry_after: int | None = None
    kind: str = ""


def failure_of(refusal: Refusal, model: str, *, configured: bool) -> Failure:
    """What LocalAI says when a model could not serve.

    A name without a configuration is tried with every backend, which hides the cool-down's
    own status.
    """
    match refusal.kind:
        case RefusalKind.COOLDOWN:
            message = cooldown_message(model, refusal.retry_after_s or 0.0)
            if configured:
                return Failure(503, message, max(1, math.ceil(refusal.retry_after_s or 0.0)))
        case RefusalKind.LOAD_FAILED if refusal.message == "context canceled":
            message = _LOADER + "could not load model: rpc error: code = Canceled desc = "
            message += refusal.message
        case RefusalKind.LOAD_FAILED:
            message = _LOADER + f"could not load model (no success): {refusal.message}"
        case RefusalKind.DEAD:
            message = _UNAVAILABLE + (
                'connection error: desc = "transport: Error while dialing: dial tcp '
                f'{DEAD_ADDRESS}: connect: connection refused"'
            )
            return Failure(500, message)
        case RefusalKind.BROKEN:
            return Failure(500, _UNAVAILABLE + "error reading from server: EOF")
        case _:
            return Failure(500, refusal.message or refusal.kind)
    if not configured:
        message = f"could not load model - all backends returned error: [emulated]: {message}"
    return Failure(500, message)


def cooldown_message(model: str, left_s: float) -> str:
    """The text that a model in cool-down is refused with; its seconds are rounded."""
    duration = go_duration(round(left_s))
    return f'model "{model}" load is in cooldown after a recent failure; retry after {duration}'


def go_duration(seconds: int) -> str:
    """A duration as Go prints it: ``9s``, ``1m20s``, ``5m0s``."""
    if seconds < 60:
        return f"{seconds}s"
    return f"{seconds // 60}m{seconds % 60}s"


_LOADER = "failed to load model with internal loader: "
_UNAVAILABLE = "rpc error: code = Unavailable desc = "
