"""Policies by the names that configuration and reports use."""

from __future__ import annotations

from contracts.errors import Invalid
from controller.policies.base import Policy
from controller.policies.expected_loss import ExpectedLoss
from controller.policies.gdsf import Gdsf
from controller.policies.recency import IdleTimeout, LocalAILru, Lru
from controller.policies.weighted_score import WeightedScore

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        ExpectedLoss(),
        Lru(),
        LocalAILru(),
        IdleTimeout(),
        Gdsf(),
        WeightedScore(),
    )
}


def policy_named(name: str) -> Policy:
    """The policy of that name.

    Raises
    ------
    Invalid
        There is none; names those there are.
    """
    if name not in POLICIES:
        raise Invalid(f"unknown policy {name!r}; known are {', '.join(sorted(POLICIES))}")
    return POLICIES[name]
