"""Other machines: workers of the distributed mode, and peers of a swarm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contracts.errors import Invalid
from emulator.context import Emulator
from emulator.errors import send_not_found
from emulator.http import Reply, Request
from emulator.trace_log import stamp

SILENT_S = 120.0
"""A peer that is offline was seen so long ago; LocalAI calls it gone after 40 s."""

RAM_BYTES = 24 * 1024**3

_SWARM = {
    "llama_cpp_nodes": "llama_cpp_worker",
    "federated_nodes": "federated",
    "mlx_nodes": "mlx_worker",
}


KINDS = ("worker", *_SWARM.values())


def parse_peers(listed: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Machines as a file gives them; Invalid where one has no name or is of no kind."""
    for peer in listed:
        if not isinstance(peer.get("name"), str) or peer.get("kind") not in KINDS:
            raise Invalid(f"peers: {dict(peer)}: needs a name and a kind of {', '.join(KINDS)}")
    return tuple(listed)


async def nodes(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/nodes``: without a worker this is not distributed, and there is no such path."""
    workers = _of_kind(app, "worker")
    if not workers:
        await send_not_found(reply)
        return
    now = stamp(app.clock.now_s())
    await reply.json(
        200,
        [
            {
                "id": f"id-{peer['name']}",
                "name": peer["name"],
                "node_type": "backend",
                "address": "127.0.0.1:19051",
                "http_address": "127.0.0.1:19050",
                "status": "healthy" if _is_online(app, peer) else "offline",
                "total_vram": peer.get("total_vram", 0),
                "available_vram": peer.get("available_vram", 0),
                "total_ram": RAM_BYTES,
                "available_ram": peer.get("available_ram", RAM_BYTES),
                "last_heartbeat": now,
                "model_count": peer.get("model_count", 0),
                "in_flight_count": 0,
            }
            for peer in workers
        ],
    )


async def p2p(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/p2p``: its fields are spelled as Go spells them."""
    answer = {
        key: [
            {
                "Name": peer["name"],
                "ID": f"id-{peer['name']}",
                "TunnelAddress": "127.0.0.1:0",
                "ServiceID": kind,
                "LastSeen": _last_seen(app, peer),
            }
            for peer in _of_kind(app, kind)
        ]
        for key, kind in _SWARM.items()
    }
    await reply.json(200, answer)


async def workers(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/p2p/workers``, of the UI."""
    llama = [_shown(app, peer) for peer in _of_kind(app, "llama_cpp_worker")]
    mlx = [_shown(app, peer) for peer in _of_kind(app, "mlx_worker")]
    answer = {"llama_cpp": {"nodes": llama}, "mlx": {"nodes": mlx}, "nodes": llama}
    await reply.json(200, answer)


async def federation(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/p2p/federation``, of the UI."""
    await reply.json(200, {"nodes": [_shown(app, peer) for peer in _of_kind(app, "federated")]})


async def stats(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/p2p/stats``, of the UI."""

    def counted(kind: str) -> dict[str, int]:
        peers = _of_kind(app, kind)
        return {"online": sum(_is_online(app, peer) for peer in peers), "total": len(peers)}

    kinds = {"llama_cpp_workers": "llama_cpp_worker", "mlx_workers": "mlx_worker"}
    kinds["federated"] = "federated"
    await reply.json(200, {name: counted(kind) for name, kind in kinds.items()})


def _of_kind(app: Emulator, kind: str) -> list[Mapping[str, Any]]:
    return [peer for peer in app.options.peers if peer.get("kind") == kind]


def _is_online(app: Emulator, peer: Mapping[str, Any]) -> bool:
    return app.faults.peek("peer_offline", str(peer["name"])) is None


def _last_seen(app: Emulator, peer: Mapping[str, Any]) -> str:
    now_s = app.clock.now_s()
    return stamp(now_s if _is_online(app, peer) else now_s - SILENT_S)


def _shown(app: Emulator, peer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": peer["name"],
        "id": f"id-{peer['name']}",
        "tunnelAddress": "127.0.0.1:0",
        "serviceID": peer["kind"],
        "lastSeen": _last_seen(app, peer),
        "isOnline": _is_online(app, peer),
    }
