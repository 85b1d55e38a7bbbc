"""What is known of one LocalAI beyond its models: version, calls, settings, peers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Call(StrEnum):
    """Calls that not every version has, or not for every key."""

    LOAD = "load"
    SHUTDOWN = "shutdown"
    MONITOR = "monitor"
    SYSTEM = "system"
    RESOURCES = "resources"
    SETTINGS = "settings"
    ALIASES = "aliases"
    CAPABILITIES = "capabilities"
    """What models can be asked for."""
    UI_CAPABILITIES = "ui_capabilities"
    """Which of them are disabled or pinned."""
    ESTIMATE = "estimate"
    READ_CONFIG = "read_config"
    IMPORT = "import"
    METRICS = "metrics"
    NODES = "nodes"
    """Workers of the distributed mode."""
    P2P = "p2p"
    """Peers that share models or work."""


class Access(StrEnum):
    """Whether a call can be made."""

    YES = "yes"
    ABSENT = "absent"
    """This version has it not, or it is switched off."""
    REFUSED = "refused"
    """Our key may not."""
    UNKNOWN = "unknown"
    """The node said neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What one LocalAI can be asked for. ``version`` is empty where it does not tell."""

    version: str = ""
    calls: Mapping[Call, Access] = field(default_factory=dict)

    def access(self, call: Call) -> Access:
        """Whether ``call`` can be made; unknown where nobody has looked."""
        return self.calls.get(call, Access.UNKNOWN)

    def has(self, call: Call) -> bool:
        """Whether it is worth a try."""
        return self.access(call) in (Access.YES, Access.UNKNOWN)

    def those(self, access: Access) -> tuple[Call, ...]:
        """All calls of which this holds."""
        return tuple(call for call in Call if self.access(call) is access)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWarning:
    """Something that is set on a node and works against the plan, and what to do about it.

    Attributes
    ----------
    setting : str
        Its name; together with ``value`` it tells one warning from another.
    problem, remedy : str
        One sentence each, for people.
    """

    setting: str
    value: str
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another machine that this LocalAI works with: a federated server or a worker.

    ``memory_used_ratio`` and ``models``: None where it does not tell.
    """

    name: str
    kind: str
    online: bool
    memory_used_ratio: float | None = None
    models: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeThresholds:
    """Beyond these a node is told as strained. Nothing else follows from it.

    Attributes
    ----------
    discovery_s : float
        Looking up the instances behind a name.
    sync_s : float
        One poll of the node.
    call_p95_s : float
        95th percentile of its short calls.
    memory_ratio : float
        Share of its memory, and of its peers', that is used.
    """

    discovery_s: float = 5.0
    sync_s: float = 2.0
    call_p95_s: float = 0.5
    memory_ratio: float = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """How it answered of late; None: not measured, or not told."""

    discovery_s: float | None = None
    sync_s: float | None = None
    call_p95_s: float | None = None
    memory_used_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The whole of it, as of the last look."""

    capabilities: Capabilities = field(default_factory=Capabilities)
    warnings: tuple[NodeWarning, ...] = ()
    peers: tuple[Peer, ...] = ()
    health: NodeHealth = field(default_factory=NodeHealth)
