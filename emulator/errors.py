"""Error bodies of LocalAI's HTTP layer."""

from __future__ import annotations

from emulator.failures import Failure
from emulator.http import Reply

NOT_FOUND = "Resource not found"


async def send_error(reply: Reply, status: int, message: str, kind: str = "") -> None:
    """``{"error":{"code","message","type"}}``, the shape of most errors."""
    await reply.json(status, {"error": {"code": status, "message": message, "type": kind}})


async def send_echo_error(reply: Reply, status: int, message: str) -> None:
    """The same for errors that LocalAI's web framework raised: the code stands in the text."""
    await send_error(reply, status, f"code={status}, message={message}")


async def send_not_found(reply: Reply) -> None:
    """Whatever is missing under a path of LocalAI."""
    await send_error(reply, 404, NOT_FOUND)


async def send_text_error(reply: Reply, status: int, message: str) -> None:
    """``{"error":"text"}``, the shape of UI and Ollama paths."""
    await reply.json(status, {"error": message})


async def send_failure(reply: Reply, failure: Failure) -> None:
    """A failure in OpenAI's shape, with ``Retry-After`` where LocalAI tells it."""
    if failure.retry_after is not None:
        reply.add_header("Retry-After", str(failure.retry_after))
    await send_error(reply, failure.status, failure.message, failure.kind)
