"""The gateway as background jobs call it: one request, one whole answer."""

from __future__ import annotations

import json
from collections.abc import Mapping

import aiohttp

from adapters.retry_after import seconds_told
from contracts.errors import Permanent, Transient
from contracts.ports import Exchange, StoredAnswer

ANSWER_MAX_BYTES = 32 * 1024**2
_CHUNK_BYTES = 64 * 1024
_MESSAGE_MAX = 300
_SUCCESS = range(200, 300)
# 409 and 425 never come from LocalAI; 408, 429 and all 5xx may pass.
_PASSING = frozenset({408, 429, *range(500, 600)})


class HttpGateway:
    """``contracts.ports.InferenceGateway`` over aiohttp.

    Parameters
    ----------
    url : str
        Where the gateway is, such as ``http://gateway:8080``.
    key : str or None
        A key of the gateway's, where it asks for one.
    answer_max_bytes : int
        A longer answer is refused, since it has to fit into Redis.
    """

    def __init__(
        self, url: str, *, key: str | None = None, answer_max_bytes: int = ANSWER_MAX_BYTES
    ) -> None:
        self._url = url.rstrip("/")
        self._key = key
        self._answer_max_bytes = answer_max_bytes
        self._session: aiohttp.ClientSession | None = None

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> StoredAnswer:
        """Send one request; cancelling closes the connection, and so the work behind it."""
        answer = await self.exchange(path, body, headers)
        if answer.status in _SUCCESS:
            return StoredAnswer(
                status=answer.status, content_type=answer.content_type, body=answer.body
            )
        message = f"{answer.status}: {_message(answer.body)}"
        if answer.status in _PASSING:
            raise Transient(message, retry_after_s=answer.retry_after_s)
        raise Permanent(message)

    async def exchange(self, path: str, body: bytes, headers: Mapping[str, str]) -> Exchange:
        """The answer, whatever it is; see ``contracts.ports.InferenceGateway``."""
        sent = {"Content-Type": "application/json", **headers}
        if self._key is not None:
            sent["Authorization"] = f"Bearer {self._key}"
        session = self._session or self._open_session()
        try:
            async with session.post(self._url + path, data=body, headers=sent) as response:
                answer = await self._read(response)
                return Exchange(
                    status=response.status,
                    content_type=response.headers.get("Content-Type", "application/octet-stream"),
                    body=answer,
                    error_type="" if response.status in _SUCCESS else _error_type(answer),
                    retry_after_s=seconds_told(response.headers.get("Retry-After")),
                    request_id=response.headers.get("X-Request-ID", ""),
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = str(error) or type(error).__name__
            raise Transient(f"the gateway does not answer: {said}") from error

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open_session(self) -> aiohttp.ClientSession:
        # No total limit: the gateway has its own, and a slow model may take an hour.
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, connect=10.0),
            connector=aiohttp.TCPConnector(limit=0),
        )
        return self._session

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
            body += chunk
            if len(body) > self._answer_max_bytes:
                raise Permanent(f"the answer has more than {self._answer_max_bytes} bytes")
        return bytes(body)


def _message(body: bytes) -> str:
    """What an error answer says, whichever of LocalAI's shapes it has."""
    text = body.decode("utf-8", "replace").strip()
    try:
        answer = json.loads(text)
    except ValueError:
        return text[:_MESSAGE_MAX] or "no message"
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if not isinstance(error, dict):
        return str(error)[:_MESSAGE_MAX]
    kind = error.get("type")
    said = str(error.get("message") or error)
    return (f"{kind}: {said}" if kind else said)[:_MESSAGE_MAX]


def _error_type(body: bytes) -> str:
    """The ``type`` of an error answer, "" where it has none."""
    try:
        error = json.loads(body)["error"]
        kind = error["type"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return kind if isinstance(kind, str) else ""
