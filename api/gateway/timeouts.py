"""How long a request may wait for what, and what the limits are learned from. Pure.

A first byte may take as long as the model takes to load and then to say something: its
measured load time and time to the first byte at the 99th percentile, and never less than is
configured. What is set for a model holds as it is set.
"""

from __future__ import annotations

from dataclasses import dataclass

from contracts.config import GatewayConfig, TimeoutConfig
from contracts.ids import ModelId

_UNSET = TimeoutConfig()


@dataclass(slots=True, kw_only=True)
class Limits:
    """Of one request; ``connect_s`` None: what the way to the node was made with."""

    connect_s: float | None
    first_byte_s: float
    between_bytes_s: float


def limits_of(
    config: GatewayConfig,
    model: ModelId | None,
    *,
    load_p99_s: float | None,
    ttft_p99_s: float | None,
) -> Limits:
    """The limits for a request to ``model``.

    >>> config = GatewayConfig(first_byte_timeout_s=600.0)
    >>> limits_of(config, ModelId("m"), load_p99_s=700.0, ttft_p99_s=20.0).first_byte_s
    720.0
    """
    own = _UNSET if model is None else config.timeouts.get(model, _UNSET)
    first_byte_s = own.first_byte_s
    if first_byte_s is None:
        measured_s = (load_p99_s or 0.0) + (ttft_p99_s or 0.0)
        first_byte_s = max(config.first_byte_timeout_s, measured_s)
    return Limits(
        connect_s=own.connect_s,
        first_byte_s=first_byte_s,
        between_bytes_s=config.between_bytes_timeout_s
        if own.between_bytes_s is None
        else own.between_bytes_s,
    )
