"""Whether a process that was started can serve: asked over HTTP, or in its own way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

Ready = str | Callable[[int], Awaitable[bool]] | None
"""A url that answers 200, a question about the process of that pid, or None: ready at once."""

_POLL_S = 0.05
_ANSWER_S = 2.0


async def until_ready(ready: Ready, pid: int) -> None:
    """Return once the process is ready; asked twenty times a second, in real time."""
    if ready is None:
        return
    while True:
        if await (answers_200(ready) if isinstance(ready, str) else ready(pid)):
            return
        await asyncio.sleep(_POLL_S)


async def answers_200(url: str) -> bool:
    """Whether a GET of ``url`` is answered with 200 now; waits two seconds at most."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await _answers_200(url)
    except (OSError, TimeoutError, ValueError):
        return False


async def _answers_200(url: str) -> bool:
    place = urlsplit(url)
    secure = place.scheme == "https"
    port = place.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(place.hostname, port, ssl=secure or None)
    try:
        path = place.path or "/"
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n".encode()
        )
        status = (await reader.readline()).split()
        return len(status) > 1 and status[1] == b"200"
    finally:
        writer.close()
