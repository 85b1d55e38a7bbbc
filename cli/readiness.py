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
    return await answer_status(url) == 200


async def answer_status(url: str, *, api_key: str | None = None) -> int | None:
    """The status that a GET of ``url`` gets now; None: no answer within two seconds."""
    try:
        async with asyncio.timeout(_ANSWER_S):
            return await _status(url, api_key)
    except (OSError, TimeoutError, ValueError):
        return None


async def _status(url: str, api_key: str | None) -> int | None:
    place = urlsplit(url)
    secure = place.scheme == "https"
    port = place.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(place.hostname, port, ssl=secure or None)
    try:
        path = place.path or "/"
        key = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        head = f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\n{key}Connection: close\r\n\r\n"
        writer.write(head.encode())
        status = (await reader.readline()).split()
        return int(status[1]) if len(status) > 1 else None
    finally:
        writer.close()
