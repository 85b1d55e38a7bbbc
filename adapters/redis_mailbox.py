"""The two mailboxes between gateways and controller, over bounded Redis streams."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from typing import Any, Generic, TypeVar

import redis.asyncio

from adapters.codec import TO_CONTROLLER_TYPES, TO_GATEWAYS_TYPES, decode_as, encode
from adapters.redis_client import key_for, mapped_errors
from adapters.redis_streams import RedisStream
from contracts.messages import ToController, ToGateways
from contracts.redis_keys import TO_CONTROLLER, TO_GATEWAYS

MessageT = TypeVar("MessageT", ToController, ToGateways)

_MAX_BATCH = 1000
_MAX_BYTES = 16 * 1024**2


def to_controller(client: redis.asyncio.Redis) -> RedisMailbox[ToController]:
    """The mailbox that the leading controller reads."""
    return RedisMailbox(client, TO_CONTROLLER, TO_CONTROLLER_TYPES)


def to_gateways(client: redis.asyncio.Redis) -> RedisMailbox[ToGateways]:
    """The mailbox that every gateway reads."""
    return RedisMailbox(client, TO_GATEWAYS, TO_GATEWAYS_TYPES)


class RedisMailbox(Generic[MessageT]):
    """``Mailbox`` over one bounded stream. ``skipped``: messages that could not be read."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        key: str,
        message_types: tuple[type[Any], ...],
        *,
        max_entries: int = 10_000,
    ) -> None:
        # A routing table of many models is large: ten thousand of them would fill the server.
        self._stream = RedisStream(
            client, key_for(client, key), max_entries=max_entries, max_bytes=_MAX_BYTES
        )
        self._types = message_types
        self.skipped = 0

    async def send(self, message: MessageT) -> None:
        with mapped_errors("send a message"):
            await self._stream.append([encode(message)])

    async def receive(self, after: str, *, block_s: float) -> tuple[str, tuple[MessageT, ...]]:
        with mapped_errors("receive messages"):
            if after == "$":
                # A place that stays true between calls, which "$" would not.
                after = await self._stream.last_id()
            found = await self._stream.read(after, count=_MAX_BATCH, block_s=block_s)
        messages: list[MessageT] = []
        for _, data in found:
            message: MessageT | None = decode_as(data, self._types)
            if message is None:
                self.skipped += 1
            else:
                messages.append(message)
        return found[-1][0] if found else after, tuple(messages)
