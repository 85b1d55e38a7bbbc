"""How many requests of a model may run at once, and what LocalAI's refusals teach. Pure.

A limit that was declared (``models.<name>.slots``) stands over one that LocalAI's own
configuration tells (it comes with the routing table). Below that a limit is learned: LocalAI
refuses a request when as many run as it takes, and may do so for reasons of all models
together, which nobody declares. A refusal lowers the limit of the model to one less than ran,
and for each minute without another one it grows again by one, until it reaches what was
declared, or until it has met no refusal for an hour.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from contracts.ids import ModelId

PROBE_S = 60.0
"""A refusal costs LocalAI a millisecond and nobody anything: the request keeps its place."""

FORGET_S = 3600.0
MAX_MODELS = 5_000
DEFAULT_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
_SHORTEST_RECHECK_S = 0.05

NO_SLOT_BYTES = 2_048
"""An answer that says "no slot" is shorter than this."""

_CAPACITY = re.compile(rb"capacity reached \(max_concurrent=\d+\)(?:; retry after (\d+)s)?")
_ADMISSION = re.compile(rb'"type"\s*:\s*"admission_rejected"')
_REFUSING = frozenset({429, 500, 503})


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSlot:
    """LocalAI had no slot for a request, and did nothing for it."""

    retry_after_s: float


def no_slot(status: int, head: bytes, retry_after: bytes | None) -> NoSlot | None:
    """What the beginning of an answer says about slots; None: it is about something else.

    LocalAI says it with 503 and ``Retry-After`` on most paths, with 500 on Anthropic's, and
    with 200 and an error as the first event of a stream.
    """
    if status == 200 and not head.startswith(b"data: {"):
        return None
    if status != 200 and status not in _REFUSING:
        return None
    told = _CAPACITY.search(head[:NO_SLOT_BYTES])
    if told is None and (status == 200 or _ADMISSION.search(head[:NO_SLOT_BYTES]) is None):
        return None
    if status == 200 and b'"choices"' in head[: told.start() if told else 0]:
        return None  # a model that talks about it
    seconds = retry_after if retry_after is not None and retry_after.isdigit() else None
    if seconds is None and told is not None:
        seconds = told.group(1)
    pause_s = DEFAULT_PAUSE_S if seconds is None else float(seconds)
    return NoSlot(retry_after_s=min(MAX_PAUSE_S, max(0.1, pause_s)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    limit: int
    since_s: float
    paused_until_s: float = 0.0


class SlotBook:
    """The limits of all models of one gateway.

    Parameters
    ----------
    declared : mapping
        What the configuration says; nothing learned goes above it.

    Attributes
    ----------
    copies : callable
        On how many nodes a model is resident: each has as many slots as are declared.
    share : callable
        How many of so many slots of a model this gateway may use beside others.
    """

    def __init__(self, declared: Mapping[ModelId, int]) -> None:
        self.copies: Callable[[ModelId], int] = lambda _model: 1
        self.share: Callable[[ModelId, int], int] = lambda _model, slots: slots
        self._declared = declared
        self._told: Mapping[ModelId, int] = {}
        self._learned: OrderedDict[ModelId, _Learned] = OrderedDict()

    def configure(self, declared: Mapping[ModelId, int]) -> None:
        """The configuration has changed."""
        self._declared = declared

    def tell(self, told: Mapping[ModelId, int]) -> None:
        """What LocalAI's own configuration says, for all models at once."""
        self._told = told

    def limit(self, model: ModelId, now_s: float) -> int | None:
        """How many may run, on all copies together; None: as many as come."""
        known = self._declared.get(model, self._told.get(model))
        if known is not None:
            known = self.share(model, known * self.copies(model))
        learned = self._learned.get(model)
        if learned is None:
            return known
        since_s = now_s - learned.since_s
        grown = learned.limit + int(since_s / PROBE_S)
        if since_s >= FORGET_S or (known is not None and grown >= known):
            del self._learned[model]
            return known
        return grown

    def of_a_copy(self, model: ModelId, now_s: float) -> int | None:
        """How many may run on one node; None: as many as come."""
        limit = self.limit(model, now_s)
        return None if limit is None else math.ceil(limit / self.copies(model))

    def pause_s(self, model: ModelId, now_s: float) -> float:
        """For how long nothing may be sent: LocalAI is full with what others sent it."""
        learned = self._learned.get(model)
        return 0.0 if learned is None else max(0.0, learned.paused_until_s - now_s)

    def recheck_s(self, model: ModelId, now_s: float) -> float | None:
        """When there may be one slot more by time alone; None: only when a request ends."""
        learned = self._learned.get(model)
        if learned is None:
            return None
        pause_s = self.pause_s(model, now_s)
        rest_s = pause_s or PROBE_S - (now_s - learned.since_s) % PROBE_S
        return max(_SHORTEST_RECHECK_S, rest_s)

    def refused(self, model: ModelId, *, others: int, now_s: float, retry_after_s: float) -> None:
        """LocalAI had no slot for a request beside ``others`` of its model that run."""
        limit = self.limit(model, now_s)
        allowed = others if limit is None else min(others, max(1, limit - 1))
        # Where none of ours runs, no end of ours will tell when there is a slot again.
        paused_until_s = now_s + retry_after_s if others == 0 else 0.0
        self._learned[model] = _Learned(
            limit=max(1, allowed), since_s=now_s, paused_until_s=paused_until_s
        )
        self._learned.move_to_end(model)
        if len(self._learned) > MAX_MODELS:
            self._learned.popitem(last=False)
