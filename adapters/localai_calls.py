"""Calls to one LocalAI: their time limits, what is tried twice, and when none is made."""

from __future__ import annotations

import json
from collections.abc import Mapping

import aiohttp

from adapters.localai_answers import Answer
from adapters.localai_breaker import Breaker
from adapters.localai_health import CallTimes
from adapters.localai_warming import WarmUp
from adapters.retry_after import seconds_told
from contracts.agents import MANAGEMENT_AGENT, WARM_UP_AGENT
from contracts.config import NodeConfig
from contracts.errors import Transient
from contracts.ports import Clock

MIN_REAL_TIMEOUT_S = 2.0
"""However fast the clock runs, sockets and processes do not."""

MAX_ANSWER_BYTES = 8 * 1024**2

_REPEATABLE = frozenset({"GET", "HEAD"})


class LocalAICalls:
    """One connection pool, one key, one breaker.

    A call that may be repeated and whose connection broke is made once more on a fresh one: it
    was most likely a kept connection that the server had closed. Nothing else is repeated here.
    """

    def __init__(self, config: NodeConfig, clock: Clock) -> None:
        self.node = config.node
        self.breaker = Breaker(config.node)
        self.times = CallTimes()
        self._url, self._headers = _address(config)
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    def readdress(self, config: NodeConfig) -> None:
        """Calls from now on go to another address, or carry another key; others go on."""
        self._url, self._headers = _address(config)
        self.breaker.answered()

    async def close(self) -> None:
        """Close all connections. What still runs on one of them is given up."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | aiohttp.FormData | None = None,
        *,
        limit_s: float,
        may_repeat: bool | None = None,
        is_slow: bool = False,
        agent: str = MANAGEMENT_AGENT,
    ) -> Answer:
        """The answer, whatever it is. Raises Transient when there was no whole one in time.

        ``is_slow``: a model may keep this call from ending, which says nothing of the node.
        """
        self.breaker.check(self._clock.monotonic_s())
        limit_s = max(limit_s, MIN_REAL_TIMEOUT_S * self._clock.scale)
        repeats = method in _REPEATABLE if may_repeat is None else may_repeat
        where = f"{method} {path.partition('?')[0]}"
        began_s = self._clock.monotonic_s()
        try:
            async with self._clock.timeout(limit_s):
                try:
                    answer = await self._once(method, path, body, agent)
                except (aiohttp.ServerDisconnectedError, ConnectionResetError):
                    if not repeats:
                        raise
                    answer = await self._once(method, path, body, agent)
        except TimeoutError as error:
            why = f"{where}: no answer in {limit_s:g} s"
            if not is_slow:
                self.breaker.failed(self._clock.monotonic_s(), why)
            raise Transient(f"{self.node}: {why}") from error
        except (aiohttp.ClientError, OSError) as error:
            # The library's text names address and cause, never headers.
            why = str(error) or type(error).__name__
            self.breaker.failed(self._clock.monotonic_s(), why)
            raise Transient(f"{self.node}: {why}") from error
        self.breaker.answered()
        if not is_slow:
            # Sockets know nothing of our clock's scale.
            self.times.add((self._clock.monotonic_s() - began_s) / self._clock.scale)
        return answer

    async def send(self, request: WarmUp, *, limit_s: float) -> Answer:
        """Inference that nobody asked for."""
        body: Mapping[str, object] | aiohttp.FormData = request.body
        if request.upload is not None:
            body = aiohttp.FormData()
            for name, value in request.body.items():
                body.add_field(name, str(value))
            body.add_field("file", request.upload, filename="silence.wav")
        return await self.call(
            "POST", request.path, body, limit_s=limit_s, is_slow=True, agent=WARM_UP_AGENT
        )

    async def _once(
        self,
        method: str,
        path: str,
        body: Mapping[str, object] | aiohttp.FormData | None,
        agent: str,
    ) -> Answer:
        is_form = isinstance(body, aiohttp.FormData)
        async with self._connected().request(
            method,
            self._url + path,
            json=None if is_form else body,
            data=body if is_form else None,
            headers={**self._headers, "User-Agent": agent},
            allow_redirects=False,
        ) as response:
            return Answer(
                status=response.status,
                body=_decoded(await _read(response)),
                retry_after_s=seconds_told(response.headers.get("Retry-After")),
            )

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
            )
        return self._session


async def _read(response: aiohttp.ClientResponse) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise Transient(f"answer of {response.url.path} is over {MAX_ANSWER_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _decoded(data: bytes) -> object:
    """JSON; else the text, such as metrics are; None where it is neither."""
    try:
        return json.loads(data) if data else None
    except ValueError:
        pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _address(config: NodeConfig) -> tuple[str, dict[str, str]]:
    # It compresses its metrics twice where compression is allowed, and says so once.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    if config.api_key is not None:
        headers["Authorization"] = f"Bearer {config.api_key}"
    return config.url.rstrip("/"), headers
