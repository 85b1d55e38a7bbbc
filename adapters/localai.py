"""LocalAI's management API: implements ``contracts.ports.ModelServer`` over aiohttp.

It never writes settings: ``POST /api/settings`` can hang a LocalAI for good.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote

import aiohttp

from contracts.config import NodeConfig
from contracts.errors import Busy, HeadstartError, Permanent, Transient
from contracts.ids import ModelId
from contracts.ports import Clock, NodeReport

FIRST_COOLDOWN_S = 10.0
"""LocalAI tries a model that failed to load no sooner than this."""

MIN_REAL_TIMEOUT_S = 2.0
"""However fast the clock runs, sockets and processes do not."""

MAX_ANSWER_BYTES = 8 * 1024**2
_COOLDOWN = re.compile(r"retry after ((?:\d+(?:\.\d+)?(?:h|ms|m|s))+)")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNIT_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_FOR_GOOD = ("backend not found", "no backends found")


class LocalAIServer:
    """One LocalAI instance, told apart from others by its configuration.

    Parameters
    ----------
    config : NodeConfig
        Address and key. The key is sent as a bearer token and appears nowhere else.
    clock : Clock
        Measures the limits below.
    call_timeout_s : float
        Limit of calls that LocalAI answers at once.
    load_timeout_s : float
        Limit of ``load``. When it passes, LocalAI gives the load up.
    unload_timeout_s : float
        Limit of ``unload``; LocalAI itself gives up on a busy model after 30 s.
    """

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        *,
        call_timeout_s: float = 10.0,
        load_timeout_s: float = 600.0,
        unload_timeout_s: float = 45.0,
    ) -> None:
        self._url, self._headers = _address(config)
        self._node = config.node
        self._clock = clock
        self._call_timeout_s = call_timeout_s
        self._load_timeout_s = load_timeout_s
        self._unload_timeout_s = unload_timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._known: frozenset[str] = frozenset()

    async def __aenter__(self) -> LocalAIServer:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.close()

    def readdress(self, config: NodeConfig) -> None:
        """Calls from now on go to another address, or carry another key; others go on."""
        self._url, self._headers = _address(config)

    async def close(self) -> None:
        """Close all connections. A load that still runs on one of them is given up."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def models(self) -> tuple[ModelId, ...]:
        """Every model that can be asked for: no aliases, none that is disabled; by name."""
        listed, aliases, hidden = await asyncio.gather(
            self._expect("GET", "/v1/models"), self.aliases(), self._not_servable()
        )
        names = {str(entry["id"]) for entry in _objects(listed.get("data")) if entry.get("id")}
        self._known = frozenset(names - hidden - set(aliases))
        return tuple(ModelId(name) for name in sorted(self._known))

    async def aliases(self) -> Mapping[str, ModelId]:
        """Target by alias; empty where this LocalAI does not tell (its UI is off)."""
        status, body = await self._call("GET", "/api/aliases")
        if status == 404:
            return {}
        self._raise_for(status, body, "GET /api/aliases")
        return {
            str(entry["name"]): ModelId(str(entry["target"]))
            for entry in _objects(body)
            if entry.get("name") and entry.get("target")
        }

    async def load(self, model: ModelId) -> None:
        """Return once the model is resident. Cancelling it kills the load: shield it.

        Raises
        ------
        Permanent
            LocalAI has no such model (it would try any name and cool that name down), or no
            backend for it.
        Transient
            The load failed or cools down; ``retry_after_s`` says how long at least.
        """
        if model not in self._known and model not in await self.models():
            raise Permanent(f"{self._node} has no model {model!r}")
        status, body = await self._call(
            "POST", "/backend/load", {"model": model}, timeout_s=self._load_timeout_s
        )
        if status == 500:
            raise _load_failure(_message(body))
        self._raise_for(status, body, f"load of {model}")

    async def unload(self, model: ModelId) -> None:
        """Return once LocalAI has stopped it; a model that is not loaded is no error.

        Raises
        ------
        Busy
            It still serves requests (or still loads) after LocalAI's own patience.
        """
        status, body = await self._call(
            "POST", "/backend/shutdown", {"model": model}, timeout_s=self._unload_timeout_s
        )
        if status == 404:
            return
        message = _message(body)
        if "still busy" in message or "waiting to shut down" in message:
            raise Busy(message)
        self._raise_for(status, body, f"unload of {model}")

    async def is_busy(self, model: ModelId) -> bool | None:
        """Whether it works on something. None: it is not loaded, or its process is dead.

        LocalAI answers only after a stop of this model that waits has ended, so this can
        take as long as ``unload``.
        """
        path = f"/backend/monitor?model={quote(model, safe='')}"
        status, body = await self._call("GET", path, timeout_s=self._unload_timeout_s)
        message = _message(body)
        if status == 500 and (
            "not currently loaded" in message or "error retrieving status" in message
        ):
            return None
        self._raise_for(status, body, f"monitor of {model}")
        return isinstance(body, dict) and body.get("state") == 1

    async def report(self) -> NodeReport:
        """What LocalAI says of itself: models that it lists, dead ones included, and memory."""
        system, resources, settings = await asyncio.gather(
            self._expect("GET", "/system"),
            self._optional("/api/resources"),
            self._optional("/api/settings"),
        )
        loaded = _objects(system.get("loaded_models"))
        aggregate = resources.get("aggregate")
        memory = aggregate if isinstance(aggregate, dict) else {}
        total_bytes = _positive(memory.get("total_memory"))
        return NodeReport(
            resident=tuple(sorted(ModelId(str(entry["id"])) for entry in loaded if "id" in entry)),
            memory_total_bytes=total_bytes,
            memory_used_bytes=None if total_bytes is None else _count(memory.get("used_memory")),
            model_limit=1
            if settings.get("single_backend") is True
            else _positive(settings.get("max_active_backends")),
        )

    async def estimate_footprint_bytes(self, model: ModelId) -> int | None:
        """LocalAI's own estimate; None where it has no weights to judge by.

        Raises
        ------
        Permanent
            LocalAI has no such model.
        """
        status, body = await self._call("POST", "/api/models/vram-estimate", {"model": model})
        if status == 404:
            if "configuration not found" in _message(body):
                raise Permanent(f"{self._node} has no model {model!r}")
            return None
        self._raise_for(status, body, f"estimate of {model}")
        return _positive(body.get("vram_bytes")) if isinstance(body, dict) else None

    async def read_profile(self, model: ModelId) -> str | None:
        """The model's own YAML as it lies in LocalAI's folder; None where it has none."""
        status, body = await self._call("GET", f"/api/models/edit/{quote(model, safe='')}")
        if status == 404:
            return None
        self._raise_for(status, body, f"configuration of {model}")
        text = body.get("config") if isinstance(body, dict) else None
        return text if isinstance(text, str) else None

    async def _not_servable(self) -> frozenset[str]:
        """Names that ``/v1/models`` lists but that cannot be loaded: disabled ones."""
        listed = await self._optional("/api/models/capabilities")
        entries = _objects(listed.get("data"))
        return frozenset(str(entry.get("id")) for entry in entries if entry.get("disabled") is True)

    async def _expect(self, method: str, path: str) -> Mapping[str, Any]:
        status, body = await self._call(method, path)
        self._raise_for(status, body, f"{method} {path}")
        if not isinstance(body, dict):
            raise Transient(f"{self._node}: {method} {path} answered with no JSON object")
        return body

    async def _optional(self, path: str) -> Mapping[str, Any]:
        """An answer that not every LocalAI gives; empty where it is missing."""
        status, body = await self._call("GET", path)
        if status == 404:
            return {}
        self._raise_for(status, body, f"GET {path}")
        return body if isinstance(body, dict) else {}

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> tuple[int, Any]:
        """Status and decoded body; Transient when there was no whole answer in time."""
        limit_s = self._call_timeout_s if timeout_s is None else timeout_s
        limit_s = max(limit_s, MIN_REAL_TIMEOUT_S * self._clock.scale)
        try:
            async with (
                self._clock.timeout(limit_s),
                self._connected().request(
                    method, self._url + path, json=body, allow_redirects=False
                ) as response,
            ):
                return response.status, _decoded(await _read(response))
        except TimeoutError as error:
            raise Transient(
                f"{self._node}: {method} {path.partition('?')[0]}: no answer in {limit_s:g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            # The library's text names address and cause, never headers.
            raise Transient(f"{self._node}: {str(error) or type(error).__name__}") from error

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
            )
        return self._session

    def _raise_for(self, status: int, body: object, what: str) -> None:
        if status < 300:
            return
        message = f"{self._node}: {what}: {status} {_message(body)}".rstrip()
        raise _refusal(status, message)


def _refusal(status: int, message: str) -> HeadstartError:
    if status in (408, 425, 429) or status >= 500:
        return Transient(message, retry_after_s=_retry_after_s(message))
    return Permanent(message)


def _load_failure(message: str) -> HeadstartError:
    if any(words in message for words in _FOR_GOOD):
        return Permanent(message)
    retry_after_s = _retry_after_s(message)
    return Transient(
        message, retry_after_s=FIRST_COOLDOWN_S if retry_after_s is None else retry_after_s
    )


def _retry_after_s(message: str) -> float | None:
    """Seconds out of "retry after 1m20s"; LocalAI tells them only in the text."""
    found = _COOLDOWN.search(message)
    if found is None:
        return None
    parts = _DURATION_PART.findall(found.group(1))
    return sum(float(number) * _UNIT_S[unit] for number, unit in parts)


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
    try:
        return json.loads(data) if data else None
    except ValueError:
        return None


def _message(body: object) -> str:
    """The text of an error, whichever of LocalAI's shapes it has."""
    if not isinstance(body, dict):
        return ""
    error = body.get("error")
    if isinstance(error, dict):
        return str(error.get("message", ""))
    return str(error or body.get("message") or "")


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _count(value: object) -> int | None:
    """A number of bytes or models; None where the field is missing or no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value)


def _positive(value: object) -> int | None:
    count = _count(value)
    return None if count is None or count <= 0 else count


def _address(config: NodeConfig) -> tuple[str, dict[str, str]]:
    headers = {"Accept": "application/json"}
    if config.api_key is not None:
        headers["Authorization"] = f"Bearer {config.api_key}"
    return config.url.rstrip("/"), headers
