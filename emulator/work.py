"""One inference: which model, how much work, and the tokens in their time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from emulator.faults import Fault
from emulator.instance import Refusal, Slot
from emulator.models import EmulatedModel
from emulator.spoken import WORDS, Spoken
from simulator.localai_effects import RefusalKind, Refused

CrashBackend = Callable[[str], None]
"""How a fault kills a model's process."""

MAX_CHUNKS_OF_REPLAY = 16
"""Tokens of an answer whose length only its service time gives: enough to be a stream."""


class BackendError(Exception):
    """The backend answers with an error in the middle of its work."""


class Hangup(Exception):
    """The server drops the connection without another byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a request asks of a model.

    Attributes
    ----------
    model : EmulatedModel or None
        None: nobody knows the name, and a load of it will fail.
    served, asked : str
        The model's own name, and the name that the caller used.
    limited : bool
        Whether ``max_tokens`` cut the answer.
    first_s, step_s, total_s : float
        The first token comes after ``first_s``, each next one ``step_s`` later, and the slot
        is free after ``total_s``.
    """

    model: EmulatedModel | None
    served: str
    asked: str
    request_id: str
    tokens: int
    prompt_tokens: int
    limited: bool
    first_s: float
    step_s: float
    total_s: float
    spoken: Spoken = WORDS
    crash: Fault | None = None
    error: Fault | None = None
    disconnect: Fault | None = None

    @property
    def text(self) -> str:
        """The whole answer; '' where it is a call of a tool."""
        return self.spoken.whole(self.tokens)

    def piece(self, number: int) -> str:
        """What token ``number`` of the answer says."""
        return self.spoken.piece(number, self.tokens)


def timing(
    model: EmulatedModel | None,
    *,
    tokens: int,
    service_s: float | None,
    extra_s: float,
) -> tuple[float, float, float]:
    """When the first token comes, how far apart they are, and when the work ends."""
    if model is None:
        return 0.0, 0.0, 0.0
    slow = model.slowdown
    if service_s is not None:
        first_s = min(model.first_token_s, service_s / 2) * slow
        return first_s, (service_s * slow - first_s) / max(1, tokens), service_s * slow
    first_s = model.first_token_s * slow + extra_s
    step_s = slow / model.tokens_per_s
    return first_s, step_s, first_s + tokens * step_s


async def tokens_of(work: Work, slot: Slot, crash: CrashBackend) -> AsyncIterator[int]:
    """Yield each token's number when it is there; returns when the slot may be given back.

    Raises
    ------
    Refusal
        When the backend died.
    BackendError, Hangup
        Where a fault says so.
    """
    for number in range(work.tokens):
        await slot.until(work.first_s + number * work.step_s)
        _strike(work, number, crash)
        yield number
    await slot.until(work.total_s)
    _strike(work, work.tokens, crash)


async def whole(work: Work, slot: Slot, crash: CrashBackend) -> None:
    """The same for an answer that is sent at once."""
    if work.crash is None and work.error is None and work.disconnect is None:
        await slot.until(work.total_s)
        return
    async for _ in tokens_of(work, slot, crash):
        pass


def _strike(work: Work, number: int, crash: CrashBackend) -> None:
    """Do what a fault says must happen before token ``number`` is sent."""
    if work.crash is not None and number == (work.crash.after_tokens or 0):
        crash(work.served)
        raise Refusal(Refused(caller=0, kind=RefusalKind.BROKEN))
    if work.error is not None and number == (work.error.after_tokens or 0):
        raise BackendError(work.error.message or "emulated failure in the middle")
    if work.disconnect is not None and number == (work.disconnect.after_tokens or 0):
        raise Hangup
