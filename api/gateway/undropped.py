"""Answers that must not be cut: read to their end, though nobody wants them any more.

Some backends die when a stream is cut, and every other answer with them. For a model whose
configuration says so, a caller's leaving is not passed on: what is under way is read and
thrown away, and its slot stays taken until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from contracts.errors import HeadstartError
from contracts.ports import Clock
from contracts.upstream import RawHeaders, UpstreamResponse

_log = structlog.get_logger("gateway")

Sending = Coroutine[Any, Any, UpstreamResponse]


class Undropped:
    """One exchange whose end is waited for, whoever leaves.

    Parameters
    ----------
    between_bytes_s : float
        An upstream that is silent for longer is given up even so.
    """

    def __init__(self, clock: Clock, between_bytes_s: float) -> None:
        self._clock = clock
        self._between_bytes_s = between_bytes_s
        self._rest: asyncio.Task[None] | None = None

    async def send(self, sending: Sending) -> UpstreamResponse:
        """The answer's head. Whoever is cancelled meanwhile leaves the rest to a task."""
        task = asyncio.ensure_future(sending)
        try:
            return _Kept(await asyncio.shield(task), self)
        except asyncio.CancelledError:
            self._rest = asyncio.get_running_loop().create_task(self._read_unsent(task))
            raise

    def finish(self, answer: UpstreamResponse) -> None:
        """Nobody reads on: do so here."""
        self._rest = asyncio.get_running_loop().create_task(self._read(answer))

    def when_over(self, callback: Callable[[], None]) -> bool:
        """Call back when the rest was read; False: there is none."""
        if self._rest is None or self._rest.done():
            return False
        self._rest.add_done_callback(lambda _: callback())
        return True

    async def _read_unsent(self, sending: asyncio.Future[UpstreamResponse]) -> None:
        try:
            answer = await sending
        except HeadstartError as error:
            _log.debug("unwanted_answer_failed", error=str(error))
            return
        await self._read(answer)

    async def _read(self, answer: UpstreamResponse) -> None:
        try:
            while not answer.is_complete:
                async with self._clock.timeout(self._between_bytes_s):
                    if not await answer.read():
                        break
        except (HeadstartError, TimeoutError) as error:
            _log.debug("unwanted_answer_broke_off", error=str(error))
        finally:
            answer.close()


class _Kept:
    """An answer that is not cut when it is let go of."""

    def __init__(self, answer: UpstreamResponse, undropped: Undropped) -> None:
        self._answer = answer
        self._undropped = undropped
        self._is_over = False

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> RawHeaders:
        return self._answer.headers

    @property
    def is_complete(self) -> bool:
        return self._answer.is_complete

    async def read(self) -> bytes:
        data = await self._answer.read()
        self._is_over = self._is_over or not data
        return data

    def rest(self) -> bytes | None:
        return self._answer.rest()

    async def pour(self, sink: Callable[[bytes], bool]) -> None:
        await self._answer.pour(sink)

    def close(self) -> None:
        if self._is_over or self._answer.is_complete:
            self._answer.close()
        else:
            self._undropped.finish(self._answer)
