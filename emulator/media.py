"""Embeddings, speech, images, reranking and the small endpoints beside them."""

from __future__ import annotations

import base64
import struct
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from email.utils import formatdate

from emulator.context import Emulator, words
from emulator.errors import send_echo_error, send_failure, send_not_found
from emulator.failures import Failure
from emulator.http import Reply, Request
from emulator.openai import stamp_correlation
from emulator.resolve import read_inference_body, resolve_model
from emulator.serving import Failed, do
from emulator.work import Work

DIMENSIONS = 8
WAV_SAMPLES = 4000
WAV_RATE_HZ = 16_000

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
"""One pixel."""

CATEGORIES = (
    "harassment", "harassment/threatening", "hate", "hate/threatening", "illicit",
    "illicit/violent", "self-harm", "self-harm/instructions", "self-harm/intent", "sexual",
    "sexual/minors", "violence", "violence/graphic",
)  # fmt: skip
"""What LocalAI has a model judge a text by."""

MAX_IMAGES = 1000
"""Generated images that can still be fetched; the oldest go first."""

Finish = Callable[[Work], Awaitable[None]]


async def embeddings(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/embeddings``; LocalAI tells no usage here."""
    body = await read_inference_body(request, reply)
    if body is None:
        return
    given = body.get("input")
    inputs = given if isinstance(given, list) and given else [given]
    vector: object = [0.1] * DIMENSIONS
    if body.get("encoding_format") == "base64":
        vector = base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *[0.1] * DIMENSIONS)).decode()

    async def finish(work: Work) -> None:
        data = [
            {"embedding": vector, "index": index, "object": "embedding"}
            for index in range(len(inputs))
        ]
        answer = {
            "created": app.created(),
            "object": "list",
            "id": str(uuid.uuid4()),
            "model": work.asked,
            "data": data,
        }
        await reply.json(200, answer)

    await serve(
        app, request, reply, body.get("model"), "embeddings", finish,
        generates=False, correlated=True, prompt_tokens=words(given),
    )  # fmt: skip


async def speech(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/audio/speech`` and ``/tts``."""
    body = await read_inference_body(request, reply)
    if body is not None:
        await _speak(app, request, reply, body.get("model"), words(body.get("input")))


async def text_to_speech(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/text-to-speech/{voice}``, the shape of ElevenLabs."""
    body = await read_inference_body(request, reply)
    if body is not None:
        await _speak(app, request, reply, body.get("model_id"), words(body.get("text")))


async def images(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/images/generations``: urls follow ``Host`` or what a proxy says."""
    body = await read_inference_body(request, reply)
    if body is None:
        return

    async def finish(_work: Work) -> None:
        image: dict[str, object] = {"embedding": None, "index": 0}
        if body.get("response_format") == "b64_json":
            image["b64_json"] = base64.b64encode(PNG).decode()
        else:
            name = f"b64{uuid.uuid4().int % 10**12}.png"
            app.images[name] = None
            if len(app.images) > MAX_IMAGES:
                del app.images[next(iter(app.images))]
            image["url"] = f"{request.base_url}/generated-images/{name}"
        details = {"text_tokens": 0, "image_tokens": 0}
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        await reply.json(
            200,
            {
                "created": app.created(),
                "id": str(uuid.uuid4()),
                "data": [image],
                "usage": {**usage, "input_tokens_details": details},
            },
        )

    await serve(app, request, reply, body.get("model"), "image", finish, correlated=True)


async def generated_image(app: Emulator, request: Request, reply: Reply) -> None:
    """``GET /generated-images/{name}``."""
    if request.params["name"] in app.images:
        await reply.whole(200, PNG, "image/png")
    else:
        await send_not_found(reply)


async def rerank(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/rerank``."""
    body = await read_inference_body(request, reply)
    if body is None:
        return
    given = body.get("documents")
    documents = given if isinstance(given, list) else []
    tokens = words(body.get("query")) + words(documents)

    async def finish(work: Work) -> None:
        results = [
            {"index": index, "document": {"text": text}, "relevance_score": 1 / (index + 1)}
            for index, text in enumerate(documents)
        ]
        usage = {"total_tokens": tokens, "prompt_tokens": tokens}
        await reply.json(200, {"model": work.asked, "usage": usage, "results": results})

    await serve(
        app, request, reply, body.get("model"), "rerank", finish,
        generates=False, prompt_tokens=tokens,
    )  # fmt: skip


async def vad(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/vad``."""
    body = await read_inference_body(request, reply)
    if body is None:
        return

    async def finish(_work: Work) -> None:
        await reply.json(200, {"segments": [{"start": 0, "end": 0.2}]})

    await serve(app, request, reply, body.get("model"), "vad", finish, generates=False)


async def detection(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/detection``."""
    body = await read_inference_body(request, reply)
    if body is None:
        return

    async def finish(_work: Work) -> None:
        await reply.json(200, {"detections": []})

    await serve(app, request, reply, body.get("model"), "detection", finish, generates=False)


async def sound(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/sound-generation``."""
    body = await read_inference_body(request, reply)
    if body is None:
        return

    async def finish(_work: Work) -> None:
        await reply.whole(200, _wav(), "audio/wav")

    named = body.get("model_id") or body.get("model")
    await serve(app, request, reply, named, "sound_generation", finish)


async def tokenize(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/tokenize``."""
    body = await read_inference_body(request, reply)
    if body is None:
        return
    count = words(body.get("content"))

    async def finish(_work: Work) -> None:
        await reply.json(200, {"tokens": list(range(count))})

    await serve(app, request, reply, body.get("model"), "chat", finish, generates=False)


async def moderations(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/moderations``: the model is asked for JSON, and may say words instead."""
    body = await read_inference_body(request, reply)
    if body is None:
        return
    given = body.get("input")
    inputs = given if isinstance(given, list) and given else [given]

    async def finish(work: Work) -> None:
        if work.model is not None and work.model.keeps_format:
            identity = f"modr-{uuid.uuid4()}"
            results = [_harmless() for _ in inputs]
            await reply.json(200, {"id": identity, "model": work.asked, "results": results})
            return
        reason = "invalid character 'w' looking for beginning of value"
        message = f"invalid moderation result: {reason}, internal={reason}"
        await send_echo_error(reply, 500, message)

    async def fail(failure: Failure) -> None:
        # LocalAI's own text says 500 whatever the status is.
        message = f"code=500, message=moderation inference failed, internal={failure.message}"
        await send_failure(reply, replace(failure, message=message))

    await serve(app, request, reply, body.get("model"), "chat", finish, fail=fail)


def _harmless() -> dict[str, object]:
    """What a moderation says of a text that nobody minds."""
    return {
        "flagged": False,
        "categories": dict.fromkeys(CATEGORIES, False),
        "category_scores": dict.fromkeys(CATEGORIES, 0.01),
    }


async def _speak(
    app: Emulator, request: Request, reply: Reply, named: object, prompt_tokens: int
) -> None:
    async def finish(_work: Work) -> None:
        reply.add_header("Accept-Ranges", "bytes")
        reply.add_header("Content-Disposition", 'attachment; filename="tts.wav"')
        reply.add_header("Last-Modified", formatdate(app.clock.now_s(), usegmt=True))
        await reply.whole(200, _wav(), "audio/wav")

    await serve(app, request, reply, named, "tts", finish, prompt_tokens=prompt_tokens)


async def serve(
    app: Emulator,
    request: Request,
    reply: Reply,
    named: object,
    usecase: str,
    finish: Finish,
    *,
    generates: bool = True,
    correlated: bool = False,
    prompt_tokens: int = 0,
    check: Callable[[], Awaitable[bool]] | None = None,
    fail: Callable[[Failure], Awaitable[None]] | None = None,
) -> None:
    """Find the model, do its work, then let ``finish`` send the answer.

    ``check`` may refuse a request whose model exists; ``fail`` sends what went wrong where
    it has a shape of its own.
    """
    name = await resolve_model(app, request, reply, named, usecase=usecase)
    if name is None or (check is not None and not await check()):
        return
    if correlated:
        stamp_correlation(request, reply)
    work = app.work(request, name, generates=generates, prompt_tokens=prompt_tokens)
    try:
        await do(app, work)
    except Failed as failed:
        await (send_failure(reply, failed.failure) if fail is None else fail(failed.failure))
        return
    await finish(work)


def _wav() -> bytes:
    """A quarter of a second of silence."""
    data = bytes(2 * WAV_SAMPLES)
    head = struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1,
        WAV_RATE_HZ, 2 * WAV_RATE_HZ, 2, 16, b"data", len(data),
    )  # fmt: skip
    return head + data
