"""A model whose process has died while LocalAI goes on listing it: a ghost.

For up to 30 s LocalAI answers every request for it with "connection refused", and calls it
loaded when asked to load it. Told to stop it, it forgets it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from api.gateway.first_words import BegunAnswer
from api.gateway.residency import RouteBook
from contracts.errors import HeadstartError
from contracts.ids import GatewayId, ModelId, NodeId
from contracts.messages import GhostSeen, ToController
from contracts.ports import Clock, Mailbox, ModelServer
from contracts.upstream import UpstreamResponse

_log = structlog.get_logger("gateway")

_LOOK_BYTES = 4_096
_REFUSED = b"connect: connection refused"
_DIALING = b"Error while dialing"
_SEND_REAL_S = 1.0


def names_a_ghost(status: int, said: bytes | None) -> bool:
    """Whether the beginning of an answer says that LocalAI could not reach its own backend.

    It is an answer with status 500, or a stream whose first event is that error. Nothing was
    done for such a request, so it may be sent again.
    """
    if said is None:
        return False
    head = said[:_LOOK_BYTES].lstrip()
    if status != 500 and not (
        status == 200 and head.startswith((b'data: {"error"', b"event: error"))
    ):
        return False
    return _REFUSED in head and _DIALING in head


@dataclass(frozen=True, slots=True)
class Ghost:
    """A request met one, and did nothing there."""


class GhostDesk:
    """Has a ghost forgotten: by the controller, or with LocalAI where there is none."""

    def __init__(
        self,
        *,
        gateway: GatewayId,
        book: RouteBook,
        servers: Mapping[NodeId, ModelServer],
        to_controller: Mailbox[ToController] | None,
        clock: Clock,
    ) -> None:
        self._gateway = gateway
        self._book = book
        self._servers = servers
        self._to_controller = to_controller
        self._clock = clock
        self._clearing: dict[tuple[ModelId, NodeId], asyncio.Task[bool]] = {}

    async def met(
        self, model: ModelId | None, node: NodeId | None, answer: UpstreamResponse
    ) -> Ghost | None:
        """Whether the answer says so and it was seen to: then the request may go once more."""
        said = answer.said if isinstance(answer, BegunAnswer) else None
        if node is None or not names_a_ghost(answer.status, said):
            return None
        return Ghost() if await self.may_send_again(model, node) else None

    async def may_send_again(self, model: ModelId | None, node: NodeId) -> bool:
        """A request met a ghost: whether it is worth while to let it wait and send it again.

        Where the mode is ``observe`` nothing is ordered, and LocalAI finds out by itself.
        """
        table = self._book.table
        if model is None:
            return False
        if table is None:
            return await self._clear(model, node)
        if not table.mode.orders or not self._book.lists(model):
            return False
        self._book.note_ghost(model, node, now_s=self._clock.now_s())
        await self._tell(model, node)
        return True

    async def _tell(self, model: ModelId, node: NodeId) -> None:
        """Without a controller that hears it the load alone clears it."""
        if self._to_controller is None:
            return
        seen = GhostSeen(gateway=self._gateway, model=model, node=node, at_s=self._clock.now_s())
        try:
            async with self._clock.timeout(_SEND_REAL_S * self._clock.scale):
                await self._to_controller.send(seen)
        except (HeadstartError, TimeoutError) as error:
            _log.warning("ghost_not_told", model=model, error=str(error) or "not sent in time")

    async def _clear(self, model: ModelId, node: NodeId) -> bool:
        """Nobody else is there to do it. One at a time for all that met the same ghost."""
        key = (model, node)
        task = self._clearing.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(clear_ghost(self._servers, model, node))
            self._clearing[key] = task
            task.add_done_callback(lambda _: self._clearing.pop(key, None))
        return await asyncio.shield(task)


async def clear_ghost(servers: Mapping[NodeId, ModelServer], model: ModelId, node: NodeId) -> bool:
    """Have LocalAI forget a model whose process is dead; False where it is alive after all."""
    server = servers.get(node)
    if server is None:
        return False
    try:
        if await server.is_busy(model) is not None:
            return False
        await server.unload(model)
    except HeadstartError as error:
        _log.warning("ghost_not_cleared", model=model, node=node, error=str(error))
        return False
    _log.warning("ghost_cleared", model=model, node=node)
    return True
