"""Other machines that one LocalAI works with: workers of its distributed mode, federated peers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from adapters.localai_answers import Answer, count, objects, positive
from contracts.errors import HeadstartError
from contracts.node_facts import Call, Capabilities, Peer

MAX_PEERS = 200
"""Peers that are kept of one node."""

_HEALTHY = "healthy"
_P2P_KINDS = {
    "federated_nodes": "federated",
    "llama_cpp_nodes": "llama_cpp_worker",
    "mlx_nodes": "mlx_worker",
}


async def read_peers(
    read: Callable[[str], Awaitable[Answer]], capabilities: Capabilities
) -> tuple[Peer, ...]:
    """All that it tells of; none where it tells nothing."""
    found: list[Peer] = []
    if capabilities.has(Call.NODES):
        found.extend(_workers((await _quietly(read, "/api/nodes")).body))
    if capabilities.has(Call.P2P):
        p2p = (await _quietly(read, "/api/p2p")).object()
        if any(p2p.get(key) for key in _P2P_KINDS):
            # Only the UI's own paths say who is online.
            federated = (await _quietly(read, "/api/p2p/federation")).object()
            workers = (await _quietly(read, "/api/p2p/workers")).object()
            found.extend(_p2p(p2p, federated, workers))
    return tuple(sorted(found[:MAX_PEERS], key=lambda peer: (peer.kind, peer.name)))


async def _quietly(read: Callable[[str], Awaitable[Answer]], path: str) -> Answer:
    try:
        return await read(path)
    except HeadstartError:
        # Not for our key, or not now: no peers are known then, which is what is shown.
        return Answer(status=0, body=None)


def _workers(listed: object) -> Iterator[Peer]:
    for entry in objects(listed):
        total = positive(entry.get("total_vram")) or positive(entry.get("total_ram"))
        kind = "vram" if positive(entry.get("total_vram")) else "ram"
        free = count(entry.get(f"available_{kind}"))
        used = None if total is None or free is None else min(1.0, max(0.0, 1.0 - free / total))
        yield Peer(
            name=str(entry.get("name") or entry.get("id") or "?"),
            kind="worker",
            online=entry.get("status") == _HEALTHY,
            memory_used_ratio=used,
            models=count(entry.get("model_count")),
        )


def _p2p(
    listed: Mapping[str, Any], federated: Mapping[str, Any], workers: Mapping[str, Any]
) -> Iterator[Peer]:
    mlx = workers.get("mlx")
    told = [
        *objects(federated.get("nodes")),
        *objects(workers.get("nodes")),
        *objects(mlx.get("nodes") if isinstance(mlx, dict) else None),
    ]
    online = {str(entry.get("id")): entry.get("isOnline") is True for entry in told}
    for key, kind in _P2P_KINDS.items():
        for entry in objects(listed.get(key)):
            identity = str(_field(entry, "id") or "?")
            yield Peer(
                name=str(_field(entry, "name") or identity),
                kind=kind,
                online=online.get(identity, _field(entry, "isOnline") is True),
            )


def _field(entry: Mapping[str, Any], name: str) -> Any:
    """``/api/p2p`` spells its fields as Go does, the UI's paths as JavaScript does."""
    return next((value for key, value in entry.items() if key.lower() == name.lower()), None)
