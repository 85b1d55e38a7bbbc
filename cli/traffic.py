"""Sending requests at set times: what demo and replay put through a stack."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypedDict

import aiohttp

from contracts.ids import ModelId
from contracts.ports import Clock
from simulator.replay import Sent

SERVICE_HEADER = "X-Emulator-Service-S"
"""Tells the emulator how long the request occupies its slot; a real LocalAI ignores it."""


class RequestShape(TypedDict, total=False):
    """The part of ``Planned`` that a model's kind decides."""

    path: str
    body: dict[str, Any]
    upload: bool


_WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=")
"""An empty sound, for transcriptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One request to send at ``due_s``, epoch seconds of the clock; ``upload``: as a form."""

    request_id: str
    model: ModelId
    due_s: float
    service_s: float
    path: str = "/v1/chat/completions"
    body: dict[str, Any] = field(default_factory=lambda: _CHAT)
    upload: bool = False
    headers: dict[str, str] = field(default_factory=dict)


_CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}

_BY_KIND: dict[str, RequestShape] = {
    "chat": {"path": "/v1/chat/completions", "body": {**_CHAT, "stream": True}},
    "embedding": {"path": "/v1/embeddings", "body": {"input": "Hello"}},
    "speech": {"path": "/v1/audio/speech", "body": {"input": "Hello"}},
    "image": {"path": "/v1/images/generations", "body": {"prompt": "A boat"}},
    "transcription": {"path": "/v1/audio/transcriptions", "body": {}, "upload": True},
}


def streamed_request_of_kind(kind: str) -> RequestShape:
    """Path and body that suit a kind of model; chats stream, as people's clients have them."""
    return _BY_KIND[kind]


async def send_all(
    planned: Iterable[Planned],
    base_url: str,
    clock: Clock,
    *,
    on_ended: Callable[[Sent], None] = lambda _: None,
) -> list[Sent]:
    """Send each at its time, whatever became of those before; return when all have ended.

    ``planned`` may be endless and is read as its times come. A request that is due already is
    sent at once, so lateness shows in ``sent_s - due_s`` instead of being hidden.
    """
    sent: list[Sent] = []
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
        asyncio.TaskGroup() as group,
    ):
        for request in planned:
            wait_s = request.due_s - clock.now_s()
            if wait_s > 0:
                await clock.sleep(wait_s)
            task = group.create_task(_send(session, base_url, request, clock))

            def ended(task: asyncio.Task[Sent]) -> None:
                if not task.cancelled() and task.exception() is None:
                    sent.append(task.result())
                    on_ended(task.result())

            task.add_done_callback(ended)
    return sent


async def _send(
    session: aiohttp.ClientSession, base_url: str, request: Planned, clock: Clock
) -> Sent:
    headers = {
        "X-Request-ID": request.request_id,
        SERVICE_HEADER: f"{request.service_s:.3f}",
        **request.headers,
    }
    sent_s = clock.now_s()
    status: int | None
    try:
        async with session.post(
            base_url + request.path, headers=headers, data=_content(request)
        ) as answer:
            await answer.read()
            status = answer.status
    except (aiohttp.ClientError, OSError):
        status = None
    return Sent(
        request_id=request.request_id,
        model=request.model,
        due_s=request.due_s,
        sent_s=sent_s,
        ended_s=clock.now_s(),
        status=status,
    )


def _content(request: Planned) -> aiohttp.FormData | aiohttp.JsonPayload:
    if not request.upload:
        return aiohttp.JsonPayload({"model": request.model, **request.body})
    form = aiohttp.FormData({"model": request.model, **request.body})
    form.add_field("file", _WAV, filename="sound.wav", content_type="audio/wav")
    return form
