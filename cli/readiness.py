"""Whether a process that was started can serve: asked over HTTP, or in its own way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

Ready = str | Callable[[], Awaitable[bool]] | None
"""A url that answers 200, a question to ask, or None: ready as soon as it runs."""

_POLL_S = 0.05
_ANSWER_S = 2.0


async def until_ready(ready: Ready) -> None:
    """Return once it is ready; asked twenty times a second, in real time."""
    if ready is None:
        return
    while True:
        try:
            async with asyncio.timeout(_ANSWER_S):
                if await (answers_200(ready) if isinstance(ready, str) else ready()):
                    return
        except TimeoutError:
            pass
        await asyncio.sleep(_POLL_S)


async def answers_200(url: str) -> bool:
    """Whether a GET of a plain ``http://`` url is answered with 200 now."""
    place = urlsplit(url)
    try:
        reader, writer = await asyncio.open_connection(place.hostname, place.port or 80)
    except OSError:
        return False
    try:
        path = place.path or "/"
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n\r\n".encode()
        )
        status = (await reader.readline()).split()
        return len(status) > 1 and status[1] == b"200"
    except (OSError, ValueError):
        return False
    finally:
        writer.close()
