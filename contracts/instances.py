"""Instances of LocalAI behind one name: they come and go while everything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contracts.ids import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryConfig:
    """How instances are looked up, and when one counts as gone.

    Attributes
    ----------
    every_s : float
        Between two looks.
    grace_s : float
        One whose address was not found for so long is forgotten.
    most : int
        Instances at once; those beyond it are left out, and counted.
    """

    every_s: float = 5.0
    grace_s: float = 30.0
    most: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One of them.

    Attributes
    ----------
    address : str
        Where it is; empty: at the name itself, since nobody knew an address of it yet.
    joined_at_s : float
        Since when it is known. The one that is known longest is the primary.
    missing_since_s : float or None
        Since when its address is not found any more; None: it is found.
    is_leaving : bool
        Nothing new is sent there.
    returned_at_s : tuple of float
        When it was found again after it had been missing; the last few.
    """

    node: NodeId
    address: str
    joined_at_s: float
    missing_since_s: float | None = None
    is_leaving: bool = False
    returned_at_s: tuple[float, ...] = ()


def instance_id(address: str) -> NodeId:
    """The node at an address: whoever looks, and whenever, names it the same.

    >>> instance_id("10.0.0.5")
    'localai-10.0.0.5'
    """
    return NodeId(f"localai-{address}")


def primary_of(instances: Mapping[NodeId, Instance]) -> NodeId | None:
    """Who answers for all where only one may: of those that stay, who is known longest."""
    staying = [one for one in instances.values() if not one.is_leaving]
    first = min(
        staying or instances.values(), key=lambda one: (one.joined_at_s, one.node), default=None
    )
    return None if first is None else first.node
