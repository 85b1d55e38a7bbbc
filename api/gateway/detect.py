"""Which model and class a request is for: what its path, body, query and headers say.

Pure: bytes in, values out, and no bytes make it raise. A body that is odd is forwarded
unpeeked, since LocalAI is the one to judge it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import unquote

import msgspec

from api.gateway.loose_json import Unreadable, last_said, spellings
from api.gateway.queries import first_values
from contracts.errors import Invalid
from contracts.events import PriorityClass
from contracts.ids import ModelId

MAX_MODEL_NAME_CHARS = 512
"""Longer names are no models: they are forwarded, but nothing of them is kept."""

MAX_DEADLINE_MS = 86_400_000
_MAX_FORM_BYTES = 65_536
_SLASHES = re.compile(rb"/{2,}")

Bytes = bytes | bytearray | memoryview

Headers = Iterable[tuple[bytes, bytes]]
"""As ASGI gives them: names in lower case."""


class ApiStyle(StrEnum):
    """Whose shape answers, streams and errors have."""

    OPENAI = "openai"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"
    OTHER = "other"
    """No token stream: audio, images, scores."""


class BodyKind(StrEnum):
    """How the body is looked at."""

    JSON = "json"
    MULTIPART = "multipart"
    FORM = "form"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferencePath:
    """A path whose requests are metered and admitted.

    Attributes
    ----------
    operation : str
        The word that events and metrics use, such as ``chat``.
    path_model : str or None
        The model that the path itself names.
    model_field : str
        The body's field that names the model.
    streams_by_default : bool
        Whether an absent ``stream`` means true.
    """

    operation: str
    style: ApiStyle
    path_model: str | None = None
    model_field: str = "model"
    streams_by_default: bool = False

    @property
    def takes_comments(self) -> bool:
        """Whether its streams are server-sent events, which may carry comments."""
        return self.style in (ApiStyle.OPENAI, ApiStyle.RESPONSES, ApiStyle.ANTHROPIC)


@dataclass(slots=True, kw_only=True)
class Peek:
    """What a body says. ``stream`` is None where it says nothing that can be read.

    ``is_clear`` is False where it may name a model that is not seen here: then none that is named
    elsewhere, as in the query, can be taken for it.
    """

    model: str | None = None
    stream: bool | None = None
    is_clear: bool = True


UNCLEAR = Peek(is_clear=False)
"""What a body says that cannot be read; nobody changes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the caller asks of us, in ``X-Headstart-*`` headers. None: nothing asked."""

    priority: PriorityClass | None = None
    fallback: bool | None = None
    deadline_s: float | None = None
    preempt_anytime: bool = False


_NO_WISHES = Wishes()


class BadHeader(Invalid):
    """A ``X-Headstart-*`` header with a value that it does not take."""

    def __init__(self, header: str, value: str, takes: str) -> None:
        super().__init__(f'{header}: "{value[:64]}" is not valid; it takes {takes}')
        self.header = header


_WITH_AND_WITHOUT_V1 = {
    "chat/completions": ("chat", ApiStyle.OPENAI),
    "completions": ("completions", ApiStyle.OPENAI),
    "edits": ("edits", ApiStyle.OPENAI),
    "messages": ("messages", ApiStyle.ANTHROPIC),
    "responses": ("responses", ApiStyle.RESPONSES),
    "embeddings": ("embeddings", ApiStyle.OTHER),
    "moderations": ("moderations", ApiStyle.OTHER),
    "audio/transcriptions": ("transcription", ApiStyle.OTHER),
    "audio/speech": ("speech", ApiStyle.OTHER),
    "audio/diarization": ("diarization", ApiStyle.OTHER),
    "audio/classification": ("classification", ApiStyle.OTHER),
    "images/generations": ("image", ApiStyle.OTHER),
    "images/inpainting": ("image", ApiStyle.OTHER),
    "images/upscale": ("image", ApiStyle.OTHER),
    "vad": ("vad", ApiStyle.OTHER),
    "mcp/chat/completions": ("mcp_chat", ApiStyle.OPENAI),
}
_ROUTES = {
    **{f"/{path}": found for path, found in _WITH_AND_WITHOUT_V1.items()},
    **{f"/v1/{path}": found for path, found in _WITH_AND_WITHOUT_V1.items()},
    "/mcp/v1/chat/completions": ("mcp_chat", ApiStyle.OPENAI),
    "/v1/rerank": ("rerank", ApiStyle.OTHER),
    "/v1/detection": ("detection", ApiStyle.OTHER),
    "/v1/depth": ("detection", ApiStyle.OTHER),
    "/v1/tokenize": ("tokenize", ApiStyle.OTHER),
    "/v1/detokenize": ("tokenize", ApiStyle.OTHER),
    "/v1/realtime/calls": ("realtime", ApiStyle.OTHER),
    "/audio/transform": ("transform", ApiStyle.OTHER),
    "/audio/transformations": ("transform", ApiStyle.OTHER),
    "/tts": ("tts", ApiStyle.OTHER),
    "/video": ("video", ApiStyle.OTHER),
    "/3d/generations": ("3d", ApiStyle.OTHER),
    "/3d/remesh": ("3d", ApiStyle.OTHER),
}
"""As LocalAI has them: a path that it does not serve is never worth a load."""
_FACE_AND_VOICE = frozenset({"analyze", "embed", "identify", "register", "verify"})
_OLLAMA_OPERATIONS = {
    "/api/chat": ("chat", True),
    "/api/generate": ("completions", True),
    "/api/embed": ("embeddings", False),
    "/api/embeddings": ("embeddings", False),
}
_PATHS = {
    path: InferencePath(operation=operation, style=style)
    for path, (operation, style) in _ROUTES.items()
} | {
    path: InferencePath(operation=operation, style=ApiStyle.OLLAMA, streams_by_default=streams)
    for path, (operation, streams) in _OLLAMA_OPERATIONS.items()
}
_WEBSOCKETS = {
    "/v1/realtime": ("realtime", ApiStyle.OTHER),
    "/v1/responses": ("responses", ApiStyle.RESPONSES),
    "/responses": ("responses", ApiStyle.RESPONSES),
    "/audio/transformations/stream": ("transform", ApiStyle.OTHER),
}
_LISTS = frozenset({"/v1/models", "/models", "/v1/models/capabilities", "/models/capabilities"})


def match_path(method: str, path: str) -> InferencePath | None:
    """The inference path that a request is for, or None: then it only passes through.

    ``path`` is decoded, and without query. Only POST makes an answer out of a model.
    """
    if method != "POST":
        return None
    path = path.rstrip("/")
    found = _PATHS.get(path)
    return _match_named(path) if found is None else found


def match_websocket(path: str) -> InferencePath | None:
    """The inference path of a websocket; None: it passes through, as log streams do."""
    found = _WEBSOCKETS.get(path.rstrip("/"))
    return None if found is None else InferencePath(operation=found[0], style=found[1])


def lists_models(method: str, path: str) -> bool:
    """Whether the request lists the models, as a UI does before somebody picks one."""
    return method == "GET" and path.rstrip("/") in _LISTS


def straight_path(method: str, raw_path: bytes) -> bytes | None:
    """A path without the doubled slashes that a base address with a slash at its end makes.

    None: it is to go as it came, since it has none, or would not be served without them
    either. LocalAI answers them with 404.
    """
    if b"//" not in raw_path:
        return None
    straight = _SLASHES.sub(b"/", raw_path)
    path = unquote(straight.decode("ascii", "replace"))
    is_known = match_path(method, path) is not None or lists_models(method, path)
    return straight if is_known else None


def body_kind(content_type: bytes | None) -> BodyKind:
    """How to look at a body of this type. LocalAI takes JSON where nothing else is said."""
    if content_type == b"application/json":
        return BodyKind.JSON  # as nearly all are
    bare = (content_type or b"").split(b";", 1)[0].strip().lower()
    if bare == b"multipart/form-data":
        return BodyKind.MULTIPART
    if bare == b"application/x-www-form-urlencoded":
        return BodyKind.FORM
    return BodyKind.JSON


def peek_json(body: Bytes, model_field: str = "model") -> Peek:
    """Model and stream of a JSON body, as LocalAI takes them."""
    if not memoryview(body).nbytes:
        return Peek()
    decoder, record = _RECORDS[model_field]
    try:
        said = decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _peek_loosely(body, model_field)
    # Any other spelling counts for LocalAI as well, the last of several, and null says nothing.
    if said.model is None or said != record(said.model, said.stream):
        return _peek_loosely(body, model_field)
    return _peek(said.model, said.stream)


def peek_form(body: Bytes) -> Peek:
    """The same of a small ``application/x-www-form-urlencoded`` body."""
    if memoryview(body).nbytes > _MAX_FORM_BYTES:
        return UNCLEAR
    fields = first_values(bytes(body))
    if "model" not in fields:
        named = [value for name, value in fields.items() if name.lower() == "model"]
        if len(named) > 1:
            return UNCLEAR
        fields["model"] = named[0] if named else ""
    return _peek(fields["model"], fields.get("stream") == "true" or None)


def find_model(
    *,
    peek: Peek,
    path: InferencePath,
    query: bytes,
    authorization: bytes | None,
    is_model: Callable[[str], bool],
) -> str | None:
    """The name that was asked for, in LocalAI's own order; None: LocalAI picks one.

    The body, then the path, the query, and a bearer token that ``is_model`` knows. Where one of
    them names what can be no name here, what comes after it is not asked.
    """
    if peek.model is not None or not peek.is_clear:
        return peek.model
    if path.path_model is not None:
        return path.path_model
    if said := first_values(query).get("model"):
        return _name(said)
    if authorization is not None and authorization.startswith(b"Bearer "):
        token = _name(authorization[len(b"Bearer ") :].decode("utf-8", "replace"))
        if token is not None and is_model(token):
            return token
    return None


def resolve_alias(asked: str | None, aliases: Mapping[str, ModelId]) -> ModelId | None:
    """The model behind the name that was asked for."""
    return None if asked is None else aliases.get(asked, ModelId(asked))


def read_wishes(headers: Headers) -> Wishes:
    """Read the ``X-Headstart-*`` headers; raises BadHeader on a value that one does not take."""
    found = {name: value for name, value in headers if name.startswith(b"x-headstart-")}
    if not found:
        return _NO_WISHES
    return Wishes(
        priority=_class(found.get(b"x-headstart-class")),
        fallback=_fallback(found.get(b"x-headstart-fallback")),
        deadline_s=_deadline_s(found.get(b"x-headstart-deadline-ms")),
        preempt_anytime=_preempt(found.get(b"x-headstart-preempt")),
    )


def _record(model_field: str) -> tuple[msgspec.json.Decoder[Any], type[Any]]:
    """A reader of a body's model and stream that notices the model in each other spelling."""
    plain, *others = spellings(model_field)
    record = msgspec.defstruct(
        "Body",
        [
            ("model", object, msgspec.UNSET),
            ("stream", object, msgspec.UNSET),
            *((f"other_{place}", object, msgspec.UNSET) for place in range(len(others))),
        ],
        rename={
            "model": plain,
            **{f"other_{place}": other for place, other in enumerate(others)},
        },
    )
    return msgspec.json.Decoder(record), record


_RECORDS = {field: _record(field) for field in ("model", "model_id")}


def _match_named(path: str) -> InferencePath | None:
    """Paths with a name in them. A model's name may hold slashes."""
    if path.startswith("/v1/engines/"):
        model, _, operation = path.removeprefix("/v1/engines/").rpartition("/")
        if operation in ("completions", "embeddings") and (named := _name(model)) is not None:
            style = ApiStyle.OPENAI if operation == "completions" else ApiStyle.OTHER
            return InferencePath(operation=operation, style=style, path_model=named)
        return None
    voice = path.removeprefix("/v1/text-to-speech/")
    is_voice = voice != path and voice != "" and "/" not in voice
    if is_voice or path == "/v1/sound-generation":
        return InferencePath(operation="tts", style=ApiStyle.OTHER, model_field="model_id")
    for family in ("face", "voice"):
        if path.removeprefix(f"/v1/{family}/") in _FACE_AND_VOICE:
            return InferencePath(operation=family, style=ApiStyle.OTHER)
    return None


def _peek_loosely(body: Bytes, model_field: str) -> Peek:
    try:
        said = last_said(bytes(body), (model_field, "stream"))
    except Unreadable:
        return UNCLEAR
    return _peek(said.get(model_field, ""), said.get("stream"))


def _peek(model: object, stream: object) -> Peek:
    named = _name(model)
    return Peek(
        model=named,
        stream=stream if isinstance(stream, bool) else None,
        is_clear=named is not None or model in ("", msgspec.UNSET),
    )


def _name(value: object) -> str | None:
    """A model's name is any text that is neither empty nor absurd; it is never taken apart."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_MODEL_NAME_CHARS:
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def _class(value: bytes | None) -> PriorityClass | None:
    if value is None:
        return None
    try:
        return PriorityClass(_text(value).lower())
    except ValueError:
        takes = "realtime, batch or background"
        raise BadHeader("X-Headstart-Class", _text(value), takes) from None


def _fallback(value: bytes | None) -> bool | None:
    if value is None:
        return None
    word = _text(value).lower()
    if word not in ("allow", "deny"):
        raise BadHeader("X-Headstart-Fallback", _text(value), "allow or deny")
    return word == "allow"


def _deadline_s(value: bytes | None) -> float | None:
    if value is None:
        return None
    text = _text(value)
    is_number = text.isascii() and text.isdigit() and len(text) <= 12
    if not (is_number and 1 <= int(text) <= MAX_DEADLINE_MS):
        raise BadHeader(
            "X-Headstart-Deadline-Ms", text, f"whole milliseconds from 1 to {MAX_DEADLINE_MS}"
        )
    return int(text) / 1000.0


def _preempt(value: bytes | None) -> bool:
    """It only gives leave: whoever sends it may be cancelled at any time, and puts up with it."""
    if value is None:
        return False
    if _text(value).lower() != "anytime":
        raise BadHeader("X-Headstart-Preempt", _text(value), "anytime")
    return True


def _text(value: bytes) -> str:
    return value.decode("latin-1").strip()
