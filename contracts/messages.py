"""What processes say to each other: requests to the leading controller, and its answers.

Two mailboxes carry them (``ports.Mailbox``). To the controller: ``LoadWanted``,
``GatewayBeat``, ``GhostSeen`` and operators' wishes. To gateways: ``LoadAnswer`` and
``RoutingTable``. Both are bounded and lossy by design; each sender says what it does without
an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId, NodeId, RequestId
from contracts.reasons import Reason
from contracts.routing import RoutingTable


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadWanted:
    """A gateway holds a request for a model that is not resident.

    The controller answers within a second; without an answer the gateway loads it alone.
    ``instead_of``: the request is for this model, and ``model`` is a lower rung that would
    answer it sooner.
    """

    gateway: GatewayId
    request_id: RequestId
    model: ModelId
    at_s: float
    deadline_s: float
    priority: PriorityClass = PriorityClass.REALTIME
    instead_of: ModelId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAnswer:
    """What the controller does about a ``LoadWanted``.

    ``accepted`` with the seconds that the load is expected to take yet (None: unknown), or
    refused with a reason and when to ask again.
    """

    model: ModelId
    accepted: bool
    reason: Reason
    expected_s: float | None = None
    retry_after_s: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayBeat:
    """Sent every second, and at once when a drain is acknowledged or a drained model turns idle.

    Attributes
    ----------
    in_flight : mapping
        Requests that were forwarded and have not ended, by model; zero is left out.
    waiting : mapping
        Requests that wait for a model to be resident, by model; zero is left out.
    drains : tuple of str
        The drains that this gateway has seen: for these models it forwards nothing new.
    queued : mapping
        Requests that wait for admission, by class.
    preemptible : mapping
        Those in flight that this gateway may cancel for a realtime request, by model.
    leaving : bool
        The last beat of a gateway that stops: its requests have ended.
    in_flight_away : mapping
        Those of ``in_flight`` that are on another node than the model's home: a drain of the
        home need not wait for them. Zero is left out.
    capacity : mapping
        How many may wait for admission at this gateway, by class; empty: it does not tell.
    oldest_queued_s : mapping
        How long the one that waits longest has waited, by class; left out where none waits.
    admitted : mapping
        Requests that were let in since the gateway's start, by the name of a key that has a rate.
    """

    gateway: GatewayId
    at_s: float
    in_flight: Mapping[ModelId, int] = field(default_factory=dict)
    waiting: Mapping[ModelId, int] = field(default_factory=dict)
    drains: tuple[str, ...] = ()
    queued: Mapping[PriorityClass, int] = field(default_factory=dict)
    leaving: bool = False
    preemptible: Mapping[ModelId, int] = field(default_factory=dict)
    in_flight_away: Mapping[ModelId, int] = field(default_factory=dict)
    capacity: Mapping[PriorityClass, int] = field(default_factory=dict)
    oldest_queued_s: Mapping[PriorityClass, float] = field(default_factory=dict)
    admitted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GhostSeen:
    """LocalAI lists the model as loaded, but its process refuses connections: it is dead.

    The controller has LocalAI forget it, and loads it again for whoever waits. Without a
    controller the gateway does both itself.
    """

    gateway: GatewayId
    model: ModelId
    node: NodeId
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequested:
    """An operator wants a model resident."""

    model: ModelId
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadRequested:
    """An operator wants a model unloaded, once nothing is in flight."""

    model: ModelId
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged:
    """Pins, SLAs or the mode in the ``ControlStore`` changed; read them again."""

    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileForgotten:
    """What was measured of a model was removed; begin anew with it."""

    model: ModelId
    at_s: float


ToController = (
    LoadWanted
    | GatewayBeat
    | GhostSeen
    | LoadRequested
    | UnloadRequested
    | SettingsChanged
    | ProfileForgotten
)
ToGateways = LoadAnswer | RoutingTable
