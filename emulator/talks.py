"""What is said over the emulated server's websockets: realtime sessions and responses."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from emulator.context import Emulator, words
from emulator.http import Request
from emulator.serving import Failed, serving
from emulator.work import Work, tokens_of

VOICE_BYTES = 320
"""Ten milliseconds of silence, for each token that is spoken."""


class Line(Protocol):
    """An open websocket."""

    async def receive(self) -> Mapping[str, Any] | None:
        """The next message; None where it is no JSON object."""
        ...

    async def send(self, event: Mapping[str, Any]) -> None:
        """One message."""
        ...


Talk = Callable[[Emulator, Request, Line], Awaitable[None]]


async def realtime(app: Emulator, request: Request, line: Line) -> None:
    """``/v1/realtime?model=``: the handshake comes first, and errors as frames after it."""
    name = request.query.get("model", "")
    model = app.catalog.model(app.catalog.resolve(name))
    pipeline = None if model is None else model.extra.get("pipeline")
    if not isinstance(pipeline, Mapping):
        await line.send(_error("invalid_model", "Model is not a pipeline model", event_id=None))
        return
    session = _Session(app, request, line, name, pipeline)
    await session.run()


async def responses(app: Emulator, request: Request, line: Line) -> None:
    """``/v1/responses`` as a websocket: ``response.create`` in, the events of its stream out."""
    while True:
        message = await line.receive()
        if message is None:
            await line.send(_failure("invalid_request", "invalid JSON message"))
            continue
        kind = message.get("type")
        if kind != "response.create":
            await line.send(_failure("invalid_request", f"unsupported message type: {kind}"))
            continue
        await _respond(app, request, line, message)


class _Session:
    """One realtime session, which answers when it is asked to and may be told to stop."""

    def __init__(
        self,
        app: Emulator,
        request: Request,
        line: Line,
        name: str,
        pipeline: Mapping[str, Any],
    ) -> None:
        self._app = app
        self._request = request
        self._line = line
        self._items: list[Mapping[str, Any]] = []
        self._speaking: asyncio.Task[None] | None = None
        self._llm = str(pipeline.get("llm", name))
        self._state: dict[str, Any] = {
            "id": f"sess_{uuid.uuid4().hex}",
            "object": "realtime.session",
            "type": "realtime",
            "model": name,
            "instructions": "You are a helpful voice assistant.",
            "audio": {
                "input": {
                    "turn_detection": {"type": "server_vad", "create_response": True},
                    "transcription": {"model": pipeline.get("transcription", "")},
                },
                "output": {},
            },
        }

    async def run(self) -> None:
        """Until the caller leaves."""
        await self._say("session.created", session=self._state)
        try:
            while True:
                message = await self._line.receive()
                if message is None:
                    error = _error("invalid_json", "Invalid JSON format", event_id="")
                    await self._line.send(error)
                else:
                    await self._take(message)
        finally:
            if self._speaking is not None:
                self._speaking.cancel()
                await asyncio.gather(self._speaking, return_exceptions=True)

    async def _take(self, message: Mapping[str, Any]) -> None:
        kind = message.get("type")
        if kind == "session.update":
            asked = message.get("session")
            self._state |= dict(asked) if isinstance(asked, Mapping) else {}
            await self._say("session.updated", session=self._state)
        elif kind == "conversation.item.create":
            item = message.get("item")
            item = dict(item) if isinstance(item, Mapping) else {}
            item.setdefault("id", _item_id())
            self._items.append(item)
            await self._say("conversation.item.added", item=item)
        elif kind == "input_audio_buffer.clear":
            await self._say("input_audio_buffer.cleared")
        elif kind == "response.create":
            self._stop_speaking()
            self._speaking = asyncio.ensure_future(self._speak(message.get("response")))
        elif kind == "response.cancel":
            self._stop_speaking()

    def _stop_speaking(self) -> None:
        if self._speaking is not None:
            self._speaking.cancel()

    async def _speak(self, asked: object) -> None:
        """One answer, by the pipeline's language model: loaded if need be."""
        response_id, item_id = f"resp_{uuid.uuid4().hex}", _item_id()
        response = {"id": response_id, "object": "realtime.response", "status": "in_progress"}
        work = self._app.work(self._request, self._llm, prompt_tokens=words(self._items))
        options = asked if isinstance(asked, Mapping) else self._state
        as_text = options.get("output_modalities") == ["text"]
        at = {"response_id": response_id, "item_id": item_id, "output_index": 0}
        await self._say("response.created", response=response)
        status = "completed"
        try:
            await self._say_tokens(work, {**at, "content_index": 0}, as_text=as_text)
        except Failed as failed:
            status = "failed"
            await self._line.send(_error("response_error", failed.failure.message, event_id=""))
        except asyncio.CancelledError:
            status = "cancelled"
        await self._say("response.done", response={**response, "status": status})

    async def _say_tokens(self, work: Work, at: Mapping[str, Any], *, as_text: bool) -> None:
        kind = "output_text" if as_text else "output_audio_transcript"
        item = {"id": at["item_id"], "type": "message", "role": "assistant", "content": []}
        async with serving(self._app, work) as slot:
            async for number in tokens_of(work, slot, self._app.instance.crash):
                if number == 0:
                    await self._say("response.output_item.added", item=item)
                await self._say(f"response.{kind}.delta", **at, delta=work.piece(number))
                if not as_text:
                    voice = base64.b64encode(bytes(VOICE_BYTES)).decode()
                    await self._say("response.output_audio.delta", **at, delta=voice)
        await self._say(f"response.{kind}.done", **at)
        self._items.append({**item, "content": [{"type": kind, "text": work.text}]})
        await self._say("response.output_item.done", item=self._items[-1])

    async def _say(self, kind: str, **fields: Any) -> None:
        await self._line.send({"event_id": f"event_{uuid.uuid4().hex}", **fields, "type": kind})


async def _respond(app: Emulator, request: Request, line: Line, message: Mapping[str, Any]) -> None:
    name = str(message.get("model", ""))
    if name not in app.catalog:
        await line.send(_failure("model_not_found", f'model "{name}" not found'))
        return
    work = app.work(request, name, prompt_tokens=words(message.get("input")))
    response = {"id": f"resp_{uuid.uuid4()}", "object": "response", "model": name, "output": []}
    number = 0

    async def say(kind: str, **fields: Any) -> None:
        nonlocal number
        await line.send({"type": kind, "sequence_number": number, **fields})
        number += 1

    await say("response.created", response={**response, "status": "in_progress"})
    try:
        async with serving(app, work) as slot:
            async for token in tokens_of(work, slot, app.instance.crash):
                await say("response.output_text.delta", delta=work.piece(token), output_index=0)
    except Failed as failed:
        error = {"type": "model_error", "message": failed.failure.message}
        await say("response.failed", response={**response, "status": "failed", "error": error})
        return
    await say("response.completed", response={**response, "status": "completed"})


def _failure(code: str, message: str) -> dict[str, Any]:
    error = {"type": "invalid_request_error", "code": code, "message": message}
    return {"type": "error", "error": error}


def _error(code: str, message: str, *, event_id: str | None) -> dict[str, Any]:
    error = {"message": message, "type": "invalid_request_error", "code": code}
    base: dict[str, Any] = {} if event_id is None else {"event_id": event_id}
    return {**base, "error": error, "type": "error"}


def _item_id() -> str:
    return f"item_{uuid.uuid4().hex}"


TALKS: dict[str, Talk] = {
    "/v1/realtime": realtime,
    "/v1/responses": responses,
    "/responses": responses,
}
