"""Comments that keep the connection of a stream alive while its request waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from api.gateway.caller import Caller
from api.gateway.headers import Header
from api.gateway.live import LiveConfig
from api.gateway.passes import Waiter
from api.gateway.proxy import EVENT_STREAM
from api.gateway.waiting_room import WaitingRoom
from contracts.ports import Clock

AnswerHeaders = Callable[[], Iterable[Header]]
"""What our answers say of themselves, of a request that waits."""


class KeepAlive:
    """Says now and then how far the load is that a stream waits for."""

    def __init__(self, config: LiveConfig, room: WaitingRoom, clock: Clock) -> None:
        self._live = config
        self._room = room
        self._clock = clock

    async def run(self, waiter: Waiter, caller: Caller, headers: AnswerHeaders) -> None:
        """Until cancelled. The first comment makes the status line 200."""
        model = waiter.ticket.model
        keepalive_s = self._live.now.keepalive_s
        waited_s = 0.0
        while True:
            await self._clock.sleep(keepalive_s)
            waited_s += keepalive_s
            if not caller.has_answer:
                await caller.begin(200, _head(headers))
            progress = self._room.progress(model, waited_s)
            expected = (
                "" if progress.expected_s is None else f" of about {progress.expected_s:.0f} s"
            )
            text = f": headstart {progress.state} {progress.elapsed_s or waited_s:.0f} s{expected}"
            await caller.give(text.encode() + b"\n\n")


def _head(headers: AnswerHeaders) -> Iterable[Header]:
    yield (b"content-type", EVENT_STREAM)
    yield (b"cache-control", b"no-cache")
    yield (b"x-accel-buffering", b"no")
    yield from headers()
