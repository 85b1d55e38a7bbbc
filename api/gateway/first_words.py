"""The beginning of an answer, looked at before any of it goes on: had LocalAI a slot at all?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from api.gateway.headers import content_encoding, content_type
from api.gateway.slots import NoSlot, no_slot
from contracts.upstream import RawHeaders, UpstreamResponse

LOOK_REAL_S = 0.05
"""LocalAI refuses within a few milliseconds. A stream that says nothing for so long has a slot:
its head goes on, and its first words when they come."""

_REFUSING = frozenset({429, 500, 503})
_EVENT_STREAM = b"text/event-stream"


class BegunAnswer:
    """An answer of which the first piece was asked for already."""

    def __init__(self, answer: UpstreamResponse, first: asyncio.Future[bytes]) -> None:
        self._answer = answer
        self._first: asyncio.Future[bytes] | None = first

    @property
    def status(self) -> int:
        """As it came."""
        return self._answer.status

    @property
    def headers(self) -> RawHeaders:
        """As they came."""
        return self._answer.headers

    @property
    def is_complete(self) -> bool:
        """Whether all of it was read."""
        return self._first is None and self._answer.is_complete

    @property
    def said(self) -> bytes | None:
        """Its first piece, while nobody has read it; None: it has not come yet."""
        first = self._first
        if first is None or not first.done() or first.exception() is not None:
            return None
        return first.result()

    async def read(self) -> bytes:
        """The next bytes. Raises Broken."""
        if self._first is None:
            return await self._answer.read()
        data = await asyncio.shield(self._first)
        self._first = None
        return data

    def rest(self) -> bytes | None:
        """All that was not read yet, if its end has come already."""
        return self._answer.rest() if self._first is None else None

    async def pour(self, sink: Callable[[bytes], bool]) -> None:
        """Hand each piece on as soon as it comes, the first one once it was read."""
        if self._first is None:
            await self._answer.pour(sink)

    def close(self) -> None:
        """Let go of it."""
        if self._first is not None:
            self._first.cancel()
        self._answer.close()


async def listen(answer: UpstreamResponse) -> tuple[UpstreamResponse, NoSlot | None]:
    """The answer, to be relayed whole; and what it says where LocalAI had no slot.

    Only answers that could say so are looked at: refusals, and event streams, which LocalAI
    begins with 200 before it knows.
    """
    if not _may_refuse(answer):
        return answer, None
    first = asyncio.ensure_future(answer.read())
    try:
        await asyncio.wait({first}, timeout=LOOK_REAL_S)
    except asyncio.CancelledError:
        first.cancel()
        raise
    begun = BegunAnswer(answer, first)
    if not first.done() or first.exception() is not None:
        return begun, None
    return begun, no_slot(answer.status, first.result(), _retry_after(answer.headers))


def _may_refuse(answer: UpstreamResponse) -> bool:
    if answer.status == 200:
        may_refuse = content_type(answer.headers) == _EVENT_STREAM
    else:
        may_refuse = answer.status in _REFUSING
    return may_refuse and content_encoding(answer.headers) is None


def _retry_after(headers: RawHeaders) -> bytes | None:
    return next((value.strip() for name, value in headers if name.lower() == b"retry-after"), None)
