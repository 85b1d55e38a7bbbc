"""LocalAI's model files over its configuration calls: ``contracts.variants.ModelFiles``.

Files are written by ``POST /models/import`` alone. ``PATCH`` would unload a loaded model,
whatever it changes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from adapters.localai_answers import Answer, refusal
from adapters.localai_calls import LocalAICalls
from contracts.config import NodeConfig
from contracts.errors import Permanent, Transient
from contracts.ids import ModelId
from contracts.ports import Clock
from contracts.variants import MARK

CALL_S = 10.0
UNLOAD_S = 45.0
"""LocalAI itself gives up on a busy model after 30 s."""

GONE_S = 5.0
"""A removal is a job of LocalAI's, which is over within a second."""

_LOOK_S = 0.2
_NOT_FOUND, _REDIRECT = 404, 300


class LocalAIModelFiles:
    """The files of one LocalAI."""

    def __init__(self, config: NodeConfig, clock: Clock) -> None:
        self._calls = LocalAICalls(config, clock)
        self._clock = clock

    def readdress(self, config: NodeConfig) -> None:
        """Calls from now on go to another address, or carry another key."""
        self._calls.readdress(config)

    async def close(self) -> None:
        """Close all connections."""
        await self._calls.close()

    async def names(self) -> tuple[ModelId, ...]:
        """Everything that LocalAI lists, by name."""
        answer = await self._calls.call("GET", "/v1/models", limit_s=CALL_S)
        self._check(answer, "GET /v1/models")
        listed = answer.object().get("data")
        entries = listed if isinstance(listed, list) else []
        names = {str(one["id"]) for one in entries if isinstance(one, dict) and one.get("id")}
        return tuple(ModelId(name) for name in sorted(names))

    async def read(self, model: ModelId) -> Mapping[str, object] | None:
        """The file with all its keys; None where there is none, as of an alias's target."""
        path = f"/api/models/edit/{quote(model, safe='')}"
        answer = await self._calls.call("GET", path, limit_s=CALL_S)
        if answer.status == _NOT_FOUND:
            return None
        self._check(answer, f"configuration of {model}")
        text = answer.object().get("config")
        try:
            document: Any = YAML(typ="safe", pure=True).load(io.StringIO(str(text)))
        except YAMLError as error:
            raise Permanent(f"{self._calls.node}: the file of {model} is no YAML") from error
        return document if isinstance(document, dict) else None

    async def write(self, document: Mapping[str, object]) -> None:
        """Import it; usable at once, and a loaded model of that name goes on as it was."""
        answer = await self._calls.call("POST", "/models/import", document, limit_s=CALL_S)
        self._check(answer, f"import of {document.get('name')}")

    async def remove(self, model: ModelId) -> None:
        """Stop it and take the file away, never its weights; returns when it is listed no more."""
        if await self.read(model) is None:
            return
        stopped = await self._calls.call(
            "POST", "/backend/shutdown", {"model": model}, limit_s=UNLOAD_S, is_slow=True
        )
        if stopped.status != _NOT_FOUND:
            self._check(stopped, f"unload of {model}")
        # LocalAI removes the weights of a model with it, unless another model's file names them.
        await self.write({"name": model, "backend": "llama-cpp", MARK: {"made": True}})
        path = f"/models/delete/{quote(model, safe='')}"
        self._check(await self._calls.call("POST", path, limit_s=CALL_S), f"removal of {model}")
        left_s = GONE_S
        while model in await self.names():
            if left_s <= 0.0:
                raise Transient(f"{self._calls.node}: {model} is still listed after its removal")
            await self._clock.sleep(_LOOK_S)
            left_s -= _LOOK_S

    def _check(self, answer: Answer, what: str) -> None:
        if answer.status >= _REDIRECT:
            message = f"{self._calls.node}: {what}: {answer.status} {answer.message}".rstrip()
            raise refusal(answer, message)
