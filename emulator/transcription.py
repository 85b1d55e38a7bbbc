"""``POST /v1/audio/transcriptions``: a form in, words in one of several formats out."""

from __future__ import annotations

from emulator.context import Emulator
from emulator.errors import send_error
from emulator.http import Reply, Request, read_json
from emulator.media import serve
from emulator.openai_stream import EVENT_STREAM, event
from emulator.resolve import read_form, refuse_form
from emulator.work import Work

TEXT = "hello world"
END_S = 0.25

_PLAIN = {
    "txt": f"\n{TEXT}",  # not OpenAI's own word for it, which is refused
    "lrc": f"[by:LocalAI]\n[re:LocalAI]\n\n[00:00:00] {TEXT}",
    "srt": f"\n\n1\n00:00:00,000 --> 00:00:00,250\n{TEXT}",
    "vtt": f"WEBVTT\n\n00:00:00.000 --> 00:00:00.250\n{TEXT}\n",
}
_PIECES = ("hello ", "world")
_SEGMENT = {"id": 0, "start": 0, "end": END_S, "text": TEXT, "tokens": None}


async def transcription(app: Emulator, request: Request, reply: Reply) -> None:
    """The model may stand anywhere in the form."""
    if await refuse_form(request, reply):
        return
    form = read_form(request)
    named: object = _text(form, "model")
    if request.content_type == "application/json":
        named = (read_json(request.body) or {}).get("model")

    async def check() -> bool:
        if "file" in form:
            return True
        multipart = request.content_type == "multipart/form-data"
        reason = "http: no such file"
        if not multipart:
            reason = "request Content-Type isn't multipart/form-data"
        await send_error(reply, 500, reason)
        return False

    async def finish(_work: Work) -> None:
        await _tell(reply, form)

    await serve(app, request, reply, named, "transcript", finish, correlated=True, check=check)


async def _tell(reply: Reply, form: dict[str, bytes]) -> None:
    """The words, as the form wants them."""
    shape = _text(form, "response_format")
    if _text(form, "stream").lower() in ("true", "1", "t"):
        await _stream(reply)
    elif shape in _PLAIN:
        await reply.whole(200, _PLAIN[shape].encode(), "text/plain; charset=UTF-8")
    elif shape == "json":
        await reply.json(200, {"text": TEXT})
    elif shape in ("", "verbose_json"):
        await reply.json(200, {"segments": [_SEGMENT], "text": TEXT})
    else:
        await send_error(reply, 500, "invalid response_format")


async def _stream(reply: Reply) -> None:
    """Pieces as events, the whole of it with its times, and an end."""
    await reply.begin_stream(EVENT_STREAM)
    for delta in _PIECES:
        await reply.chunk(event({"type": "transcript.text.delta", "delta": delta}).encode())
    segment = {key: value for key, value in _SEGMENT.items() if key != "tokens"}
    done = {"type": "transcript.text.done", "text": TEXT, "segments": [segment]}
    await reply.chunk((event(done) + "data: [DONE]\n\n").encode())
    await reply.end()


def _text(form: dict[str, bytes], name: str) -> str:
    return form.get(name, b"").decode("utf-8", "replace")
