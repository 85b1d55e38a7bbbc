"""What this gateway has sent where: the counts and memories that routing rests on. Pure."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping

from api.gateway.router import Turns
from contracts.ids import ModelId, NodeId

MAX_CLIENTS = 10_000
MAX_TURNS = 5_000
PROMPT_CACHE_S = 600.0
"""A client's prompts count as cached where its last request went, for so long."""


class Ledger:
    """Requests in flight by node and model, each client's last node, and whose turn it is."""

    def __init__(self) -> None:
        self._in_flight: Counter[tuple[NodeId, ModelId | None]] = Counter()
        self._by_node: Counter[NodeId] = Counter()
        self._clients: OrderedDict[tuple[str, ModelId], tuple[NodeId, float]] = OrderedDict()
        self._turns: OrderedDict[ModelId, Turns] = OrderedDict()

    def begin(self, node: NodeId, model: ModelId | None) -> None:
        """A request is about to be sent there."""
        self._in_flight[node, model] += 1
        self._by_node[node] += 1

    def end(self, node: NodeId, model: ModelId | None) -> None:
        """It has ended."""
        self._in_flight[node, model] -= 1
        self._by_node[node] -= 1
        if not self._in_flight[node, model]:
            del self._in_flight[node, model]

    def forget_node(self, node: NodeId) -> None:
        """It has left; what still runs there is counted to its end."""
        if not self._by_node.get(node):
            self._by_node.pop(node, None)

    def of_model(self, node: NodeId, model: ModelId | None) -> int:
        """Requests of ``model`` on ``node``."""
        return self._in_flight.get((node, model), 0)

    def of_node(self, node: NodeId) -> int:
        """Requests on ``node``."""
        return self._by_node.get(node, 0)

    @property
    def by_node(self) -> Mapping[NodeId, int]:
        """Requests on each node that ever had any."""
        return dict(self._by_node)

    def away(self, homes: Mapping[ModelId, NodeId]) -> dict[ModelId, int]:
        """Requests that are on another node than their model's home; zero is left out."""
        counts: Counter[ModelId] = Counter()
        for (node, model), count in self._in_flight.items():
            if model is not None and homes.get(model, node) != node:
                counts[model] += count
        return dict(counts)

    def note_client(self, client: str, model: ModelId, node: NodeId, now_s: float) -> None:
        """A client's request for ``model`` went to ``node``."""
        key = (client, model)
        self._clients[key] = (node, now_s)
        self._clients.move_to_end(key)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)

    def last_node(self, client: str, model: ModelId, now_s: float) -> NodeId | None:
        """Where the client's last request for ``model`` went; None: nowhere, or too long ago."""
        node, at_s = self._clients.get((client, model), (None, now_s))
        return node if now_s - at_s <= PROMPT_CACHE_S else None

    def turns(self, model: ModelId) -> Turns:
        """Whose turn it is, for ``weighted-round-robin``."""
        return self._turns.get(model, {})

    def keep_turns(self, model: ModelId, turns: Turns) -> None:
        """As the choice left them."""
        self._turns[model] = turns
        self._turns.move_to_end(model)
        if len(self._turns) > MAX_TURNS:
            self._turns.popitem(last=False)
