"""What each model of one LocalAI can be asked for, by whatever this version tells of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from adapters.localai_answers import objects
from adapters.localai_warming import WarmUp, usecases_by_name, usecases_of, warm_up
from contracts.errors import HeadstartError
from contracts.ids import ModelId


class ModelUses:
    """Reads them when they are needed, and keeps them until told to forget.

    Parameters
    ----------
    read : callable
        A JSON object of one path; empty where this version has it not.
    read_config : callable
        A model's own file; None where it cannot be read.
    """

    def __init__(
        self,
        read: Callable[[str], Awaitable[Mapping[str, Any]]],
        read_config: Callable[[ModelId], Awaitable[str | None]],
    ) -> None:
        self._read = read
        self._read_config = read_config
        self._uses: dict[str, tuple[str, ...]] = {}

    def forget(self) -> None:
        """It may be another LocalAI than before."""
        self._uses.clear()

    async def warm_up(self, model: ModelId) -> WarmUp | None:
        """The smallest request for it; None where there is none for its kind."""
        return warm_up(model, await self.of(model))

    async def of(self, model: ModelId) -> tuple[str, ...]:
        """Its uses in LocalAI's words: as listed, as its file says, or as its name hints."""
        if model not in self._uses:
            await self._read_lists()
        if model not in self._uses:
            self._uses[model] = await self._by_config(model) or usecases_by_name(model)
        return self._uses[model]

    async def _read_lists(self) -> None:
        for path in ("/v1/models/capabilities", "/api/models/capabilities"):
            try:
                listed = await self._read(path)
            except HeadstartError:
                continue  # not for our key: the model's file or name will do
            for entry in objects(listed.get("data")):
                told = entry.get("capabilities")
                if isinstance(told, list) and told:
                    uses = tuple(str(use) for use in told)
                    self._uses.setdefault(str(entry.get("id")), uses)

    async def _by_config(self, model: ModelId) -> tuple[str, ...]:
        try:
            text = await self._read_config(model)
            config = None if text is None else YAML(typ="safe", pure=True).load(text)
        except (HeadstartError, YAMLError):
            return ()
        return usecases_of(config) if isinstance(config, dict) else ()
