"""How a model stands for a request: what may be done with it, and where the model is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from contracts.ids import NodeId
from contracts.reasons import Reason
from contracts.world import Residency


class Kind(StrEnum):
    """What may be done with a request now."""

    FORWARD = "forward"
    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a model stands for a request of now.

    Attributes
    ----------
    is_cold : bool
        It is known not to be resident.
    retry_after_s : float or None
        When it cools down: for how long yet.
    message : str
        What LocalAI said when its load failed.
    """

    kind: Kind
    reason: Reason
    is_cold: bool = False
    node: NodeId | None = None
    retry_after_s: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """What one node that knows a model has of it.

    ``is_resident``: it is loaded there, and nothing is about to unload it. ``is_alive``: the
    node answers, as far as the controller knows.
    """

    node: NodeId
    is_home: bool
    is_resident: bool
    is_alive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """The ``loading`` object of an answer. None: not known."""

    state: str
    elapsed_s: float | None
    expected_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What this process saw of a model itself, until a newer table says otherwise."""

    at_s: float
    residency: Residency
    node: NodeId
    cooldown_until_s: float | None = None
    message: str = ""
    is_ghost: bool = False
