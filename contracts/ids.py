"""Names of things, as distinct types so that a node never stands where a model belongs."""

from __future__ import annotations

from typing import NewType

ModelId = NewType("ModelId", str)
"""A model's name as LocalAI lists it, with aliases already resolved."""

NodeId = NewType("NodeId", str)
"""One LocalAI instance, by the name it has in the configuration."""

RequestId = NewType("RequestId", str)
"""One request through a gateway; the caller's ``X-Request-ID`` where it sent one."""

GatewayId = NewType("GatewayId", str)
"""One running gateway process; a restart makes a new one."""
