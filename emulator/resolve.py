"""Which model a request is for, found in LocalAI's own order."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from email.message import Message
from typing import Any

from emulator.context import Emulator
from emulator.errors import send_echo_error, send_error
from emulator.failures import failure_of
from emulator.http import Reply, Request, read_json
from emulator.instance import Refusal

DEFAULT_NAME = "gpt-4o"
"""What some endpoints ask for when nothing else is there; few servers have it."""

_WORDS = frozenset({"chat", "completion", "edit", "tokenize"})
"""Who can do one of these can do all of them."""

_WITH_DEFAULT = frozenset({"completion", "edit", "embeddings"})


async def read_inference_body(request: Request, reply: Reply) -> Mapping[str, Any] | None:
    """The JSON object of an inference request; None after an error was sent."""
    if request.content_type != "application/json":
        await send_echo_error(
            reply, 400, "failed parsing request body: code=415, message=Unsupported Media Type"
        )
        return None
    body = read_json(request.body)
    if body is None:
        await send_echo_error(
            reply,
            400,
            "failed parsing request body: code=400, message=unexpected EOF, "
            "internal=unexpected EOF",
        )
    return body


async def resolve_model(
    app: Emulator,
    request: Request,
    reply: Reply,
    named: object,
    *,
    usecase: str,
) -> str | None:
    """The name that the request is for; None after an error was sent.

    It is looked for in the body (``named``), the path, the query, the bearer token; without
    any, the first model of the use case is taken.
    """
    name = named if isinstance(named, str) else ""
    name = name or request.params.get("model", "") or request.query.get("model", "")
    name = name or _bearer_model(app, request)
    if not name:
        first = app.catalog.first(usecase)
        if first is not None:
            return first.name
        if usecase not in _WITH_DEFAULT:
            await send_echo_error(reply, 400, "Bad Request")
            return None
        name = DEFAULT_NAME
    if "/" not in name and name not in app.catalog:
        message = f'model "{name}" not found. To see available models, call GET /v1/models'
        await send_error(reply, 404, message, "invalid_request_error")
        return None
    model = app.catalog.model(app.catalog.resolve(name))
    if model is not None and model.disabled:
        message = (
            f'model "{model.name}" is disabled and cannot be loaded. '
            "Enable it via the System page or API to use it."
        )
        await send_error(reply, 403, message, "model_disabled")
        return None
    if model is not None and model.strict and not _may(model.usecases, usecase):
        await _refuse_use(app, reply, model.name, usecase)
        return None
    if app.faults.take("error_500", app.catalog.resolve(name)) is not None:
        await send_error(reply, 500, "emulated failure")
        return None
    return name


def _may(usecases: tuple[str, ...], usecase: str) -> bool:
    return usecase in usecases or (usecase in _WORDS and not _WORDS.isdisjoint(usecases))


async def _refuse_use(app: Emulator, reply: Reply, model: str, usecase: str) -> None:
    """Only the backend knows that it cannot do that, so that it is loaded first."""
    message = f"rpc error: code = Unimplemented desc = {usecase} is not supported"
    try:
        async with app.instance.serving(model, str(uuid.uuid4())):
            pass
    except Refusal as refusal:
        message = failure_of(refusal, model, configured=True).message
    await send_error(reply, 500, message)


async def refuse_form(request: Request, reply: Reply) -> bool:
    """Whether a multipart body cannot be read, which is said then."""
    if request.content_type != "multipart/form-data":
        return False
    boundary = _boundary(request)
    if boundary is not None and not request.body:
        await send_echo_error(reply, 400, "Bad Request")
        return True
    if boundary is None:
        problem = "no multipart boundary param in Content-Type"
    elif b"--" + boundary + b"--" not in request.body:
        problem = "multipart: NextPart: EOF"
    else:
        return False
    message = f"failed parsing request body: code=400, message={problem}, internal={problem}"
    await send_echo_error(reply, 400, message)
    return True


def read_form(request: Request) -> dict[str, bytes]:
    """Fields of a multipart form by name, files included; the last one of a name wins."""
    boundary = _boundary(request)
    if boundary is None:
        return {}
    fields: dict[str, bytes] = {}
    for part in request.body.split(b"--" + boundary)[1:]:
        head, found, content = part.partition(b"\r\n\r\n")
        if not found:
            continue
        disposition = Message()
        for line in head.decode("latin-1").split("\r\n"):
            key, _, value = line.partition(":")
            if key.strip().lower() == "content-disposition":
                disposition["content-disposition"] = value.strip()
        name = disposition.get_param("name", header="content-disposition")
        if isinstance(name, str):
            fields[name] = content.removesuffix(b"\r\n")
    return fields


def _boundary(request: Request) -> bytes | None:
    header = Message()
    header["content-type"] = request.headers.get("content-type", "")
    boundary = header.get_param("boundary")
    return boundary.encode("latin-1") if isinstance(boundary, str) and boundary else None


def _bearer_model(app: Emulator, request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token if scheme == "Bearer" and token in app.catalog else ""
