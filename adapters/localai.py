"""LocalAI's management API: implements ``contracts.ports.ModelServer`` over aiohttp.

It never writes settings: ``POST /api/settings`` can hang a LocalAI for good. What this version
has not is done in another way: ``docs/localai.md`` has the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any
from urllib.parse import quote

from adapters.localai_answers import (
    ABSENT,
    REFUSED,
    Answer,
    count,
    load_failure,
    metric,
    objects,
    positive,
    refusal,
)
from adapters.localai_calls import LocalAICalls
from adapters.localai_capabilities import probe
from adapters.localai_health import strained, used_ratio
from adapters.localai_model_uses import ModelUses
from adapters.localai_peers import read_peers
from adapters.localai_settings import fighting, model_limit, without_rights
from adapters.probes.localai_resources import reading_of
from contracts.config import NodeConfig
from contracts.errors import Busy, Permanent, Transient
from contracts.ids import ModelId
from contracts.node_facts import (
    Access,
    Call,
    Capabilities,
    NodeFacts,
    NodeHealth,
    NodeWarning,
)
from contracts.ports import Clock, NodeReport

CHECKSUM = ".sha256"
STARTED = "process_start_time_seconds"


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
        Limit of ``load`` and ``warm``. When it passes, LocalAI gives the load up.
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
        self._calls = LocalAICalls(config, clock)
        self._clock = clock
        self._clock = clock
        self._node = config.node
        self._call_timeout_s = call_timeout_s
        self._load_timeout_s = load_timeout_s
        self._unload_timeout_s = unload_timeout_s
        self._known: frozenset[str] = frozenset()
        self._pinned: frozenset[str] = frozenset()
        self._ordered: set[ModelId] = set()
        self._capabilities: Capabilities | None = None
        self._settings: Mapping[str, Any] = {}
        self._thresholds = config.thresholds
        self._health = NodeHealth()
        self._remarks: tuple[NodeWarning, ...] = ()
        self._uses = ModelUses(self._optional, self.read_profile)

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
        self._calls.readdress(config)
        self._capabilities = None
        self._thresholds = config.thresholds

    def remark(self, warnings: tuple[NodeWarning, ...], discovery_s: float) -> None:
        """What others found out about this node, and how long that took; told with its facts."""
        self._remarks = warnings
        self._health = replace(self._health, discovery_s=discovery_s)

    async def close(self) -> None:
        """Close all connections. A load that still runs on one of them is given up."""
        await self._calls.close()

    async def models(self) -> tuple[ModelId, ...]:
        """Every model that can be asked for: no aliases, none that is disabled; by name."""
        listed, aliases, hidden = await asyncio.gather(
            self._expect("GET", "/v1/models"), self.aliases(), self._not_servable()
        )
        told = {str(entry["id"]) for entry in objects(listed.get("data")) if entry.get("id")}
        # Its distributed mode lays checksums beside weights, and lists them.
        names = {name for name in told if not name.endswith(CHECKSUM)}
        self._known = frozenset(names - hidden - set(aliases))
        return tuple(ModelId(name) for name in sorted(self._known))

    async def aliases(self) -> Mapping[str, ModelId]:
        """Target by alias; empty where this LocalAI does not tell (its UI is off)."""
        answer = await self._optional_answer("/api/aliases")
        return {
            str(entry["name"]): ModelId(str(entry["target"]))
            for entry in objects(answer.body)
            if entry.get("name") and entry.get("target")
        }

    async def facts(self, *, fresh: bool = False) -> NodeFacts:
        """Version, calls, settings that fight a plan, and peers.

        What calls there are is asked once, and again where ``fresh`` says that it may be
        another LocalAI than before.
        """
        if fresh or self._capabilities is None:
            self._capabilities = await probe(self._calls, limit_s=self._call_timeout_s)
            self._uses.forget()
        has = self._capabilities.has
        self._settings = await self._optional("/api/settings") if has(Call.SETTINGS) else {}
        peers = await read_peers(self._optional_answer, self._capabilities)
        health = replace(self._health, call_p95_s=self._calls.times.p95_s)
        return NodeFacts(
            capabilities=self._capabilities,
            warnings=(
                *without_rights(self._capabilities),
                *fighting(self._settings, self._pinned),
                *strained(health, self._thresholds, peers),
                *self._remarks,
            ),
            peers=peers,
            health=health,
        )

    async def load(self, model: ModelId) -> None:
        """Return once the model is resident. Cancelling it kills the load: shield it.

        Where this version has no call for it, the smallest request of the model's kind does it.

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
        if self._has(Call.LOAD):
            answer = await self._call(
                "POST", "/backend/load", {"model": model}, timeout_s=self._load_timeout_s
            )
            if answer.status not in ABSENT | REFUSED:
                if answer.status == 500:
                    raise load_failure(answer)
                self._raise_for(answer, f"load of {model}")
                self._ordered.add(model)
                return
            access = Access.ABSENT if answer.status in ABSENT else Access.REFUSED
            self._remember(Call.LOAD, access)
        await self._load_by_request(model)
        self._ordered.add(model)

    async def warm(self, model: ModelId, *, thorough: bool = False) -> bool:
        """Have a resident model answer the smallest request of its kind, so that it is warm.

        False: there is none for its kind; an image is only made where ``thorough`` asks for it.
        Raises as ``load`` does. It loads a model that is not resident.
        """
        request = await self._uses.warm_up(model)
        if request is None or not (request.is_small or thorough):
            return False
        self._raise_for(
            await self._calls.send(request, limit_s=self._load_timeout_s), f"warm-up of {model}"
        )
        return True

    async def unload(self, model: ModelId) -> None:
        """Return once LocalAI has stopped it; a model that is not loaded is no error.

        Raises
        ------
        Busy
            It still serves requests (or still loads) after LocalAI's own patience.
        Permanent
            LocalAI lists it as loaded and yet knows nothing of that name to stop.
        """
        answer = await self._call(
            "POST",
            "/backend/shutdown",
            {"model": model},
            timeout_s=self._unload_timeout_s,
            # A second stop of a model that has stopped does nothing.
            may_repeat=True,
        )
        if answer.status == 404:
            self._ordered.discard(model)
            if model in await self._listed():
                raise Permanent(f"{self._node} lists {model} as loaded, but has nothing to stop")
            return
        message = answer.message
        if "still busy" in message or "waiting to shut down" in message:
            raise Busy(message)
        self._raise_for(answer, f"unload of {model}")
        self._ordered.discard(model)

    async def is_busy(self, model: ModelId) -> bool | None:
        """Whether it works on something. None: it is not loaded, or its process is dead.

        LocalAI answers only after a stop of this model that waits has ended, so this can
        take as long as ``unload``.
        """
        path = f"/backend/monitor?model={quote(model, safe='')}"
        answer = await self._call("GET", path, timeout_s=self._unload_timeout_s)
        message = answer.message
        if answer.status == 500 and (
            "not currently loaded" in message or "error retrieving status" in message
        ):
            return None
        self._raise_for(answer, f"monitor of {model}")
        return answer.object().get("state") == 1

    async def report(self) -> NodeReport:
        """What LocalAI says of itself: models that it lists, dead ones included, and memory."""
        began_s = self._clock.monotonic_s()
        resident, resources, settings = await asyncio.gather(
            self._listed(), self._optional("/api/resources"), self._optional("/api/settings")
        )
        aggregate = resources.get("aggregate")
        memory = aggregate if isinstance(aggregate, dict) else {}
        total_bytes = positive(memory.get("total_memory"))
        used_bytes = None if total_bytes is None else count(memory.get("used_memory"))
        self._health = replace(
            self._health,
            sync_s=(self._clock.monotonic_s() - began_s) / self._clock.scale,
            memory_used_ratio=used_ratio(used_bytes, total_bytes),
        )
        return NodeReport(
            resident=tuple(sorted(resident)),
            memory_total_bytes=total_bytes,
            memory_used_bytes=used_bytes,
            model_limit=model_limit(settings),
            reading=reading_of(resources, self._clock.now_s()) if resources else None,
        )

    async def started_at_s(self) -> float | None:
        """When this LocalAI's process began, by its own metrics; None where it does not tell."""
        if not self._has(Call.METRICS):
            return None
        answer = await self._call("GET", "/metrics")
        return None if answer.status >= 300 else metric(answer.body, STARTED)

    async def estimate_footprint_bytes(self, model: ModelId) -> int | None:
        """LocalAI's own estimate; None where it has no weights to judge by.

        Raises
        ------
        Permanent
            LocalAI has no such model.
        """
        answer = await self._call("POST", "/api/models/vram-estimate", {"model": model})
        if answer.status in ABSENT | REFUSED:
            if "configuration not found" in answer.message:
                raise Permanent(f"{self._node} has no model {model!r}")
            return None
        self._raise_for(answer, f"estimate of {model}")
        return positive(answer.object().get("vram_bytes"))

    async def read_profile(self, model: ModelId) -> str | None:
        """The model's own YAML as it lies in LocalAI's folder; None where it has none."""
        answer = await self._optional_answer(f"/api/models/edit/{quote(model, safe='')}")
        text = answer.object().get("config")
        return text if isinstance(text, str) else None

    async def _load_by_request(self, model: ModelId) -> None:
        request = await self._uses.warm_up(model)
        if request is None:
            raise Permanent(
                f"{self._node} has no call to load a model, and there is no small request for "
                f"{model}: it loads with its first use"
            )
        answer = await self._calls.send(request, limit_s=self._load_timeout_s)
        if answer.status >= 400 and model in await self._listed():
            # Its kind was guessed wrong, which its backend said once it was there.
            return
        if answer.status >= 500:
            raise load_failure(answer)
        self._raise_for(answer, f"load of {model} by {request.path}")

    async def _listed(self) -> frozenset[ModelId]:
        """Models that LocalAI calls loaded; where it does not tell us, those that we loaded."""
        answer = await self._call("GET", "/system")
        if answer.status in ABSENT | REFUSED:
            return frozenset(self._ordered)
        self._raise_for(answer, "GET /system")
        loaded = objects(answer.object().get("loaded_models"))
        return frozenset(ModelId(str(entry["id"])) for entry in loaded if "id" in entry)

    async def _not_servable(self) -> frozenset[str]:
        """Names that ``/v1/models`` lists but that cannot be loaded: disabled ones."""
        listed = await self._optional("/api/models/capabilities")
        entries = objects(listed.get("data"))
        self._pinned = _those(entries, "pinned")
        return _those(entries, "disabled")

    def _has(self, call: Call) -> bool:
        return self._capabilities is None or self._capabilities.has(call)

    def _remember(self, call: Call, access: Access) -> None:
        known = self._capabilities or Capabilities()
        self._capabilities = Capabilities(
            version=known.version, calls={**known.calls, call: access}
        )

    async def _expect(self, method: str, path: str) -> Mapping[str, Any]:
        answer = await self._call(method, path)
        self._raise_for(answer, f"{method} {path}")
        if not isinstance(answer.body, dict):
            raise Transient(f"{self._node}: {method} {path} answered with no JSON object")
        return answer.body

    async def _optional(self, path: str) -> Mapping[str, Any]:
        """An answer that not every LocalAI gives, or not to our key; empty where it does not."""
        return (await self._optional_answer(path)).object()

    async def _optional_answer(self, path: str) -> Answer:
        answer = await self._call("GET", path)
        if answer.status in ABSENT | REFUSED:
            return Answer(status=answer.status, body=None)
        self._raise_for(answer, f"GET {path}")
        return answer

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        may_repeat: bool | None = None,
    ) -> Answer:
        return await self._calls.call(
            method,
            path,
            body,
            limit_s=self._call_timeout_s if timeout_s is None else timeout_s,
            may_repeat=may_repeat,
            is_slow=timeout_s is not None,
        )

    def _raise_for(self, answer: Answer, what: str) -> None:
        if answer.status >= 300:
            message = f"{self._node}: {what}: {answer.status} {answer.message}".rstrip()
            raise refusal(answer, message)


def _those(entries: list[dict[str, Any]], switch: str) -> frozenset[str]:
    return frozenset(str(entry.get("id")) for entry in entries if entry.get(switch) is True)
