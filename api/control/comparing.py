"""Policies beside each other: figures that the controller published, and what they say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from contracts.policies import POLICY_SUMMARIES

POLICIES_IN_USE, CONFIGURED, DECIDING = "policies", "configured:", "deciding:"
SHADOW, TRIAL = "shadow:", "ab:"
SURE = 0.95
Method = Literal["beside", "shadow", "ab"]

Baselines = Mapping[str, Mapping[str, float]]


def method_of(name: str) -> tuple[Method, str]:
    """How figures of that name came about, and the policy that they are about."""
    if name.startswith(SHADOW):
        return "shadow", name.removeprefix(SHADOW)
    if name.startswith(TRIAL):
        return "ab", name.removeprefix(TRIAL)
    return "beside", name


def in_use(baselines: Baselines) -> tuple[str | None, str | None]:
    """The policy that is configured, and the one that decides now; None: not told."""
    told = baselines.get(POLICIES_IN_USE, {})

    def named(prefix: str) -> str | None:
        names = (name.removeprefix(prefix) for name in told if name.startswith(prefix))
        return next(names, None)

    return named(CONFIGURED), named(DECIDING)


def is_comparison(name: str, baselines: Baselines) -> bool:
    """Whether these figures set another policy beside the configured one."""
    configured, _ = in_use(baselines)
    method, policy = method_of(name)
    return name != POLICIES_IN_USE and not (method == "shadow" and policy == configured)


def known_policies(baselines: Baselines) -> dict[str, str]:
    """Every policy with its line, those included that only a newer controller has."""
    shadowed = (method_of(name)[1] for name in baselines if name.startswith(SHADOW))
    return {**dict.fromkeys(shadowed, ""), **POLICY_SUMMARIES}


def figure(figures: Mapping[str, float], name: str) -> float | None:
    """A number, or None for what is not told or JSON cannot say."""
    value = figures.get(name)
    return value if value is not None and math.isfinite(value) else None


def beside_sentence(
    ours: str,
    theirs: str,
    arrivals: float | None,
    our_cold: float | None,
    their_cold: float | None,
) -> str:
    """Real cold starts beside those that a rule would have had; nothing says how sure that is."""
    if not arrivals or our_cold is None or their_cold is None:
        return f"{ours} and {theirs} have not been compared on the same requests yet."
    return (
        f"Of {arrivals:.0f} requests {our_cold:.0f} met a cold model with {ours}, "
        f"{their_cold:.0f} would have with {theirs}; how sure that is was not looked at."
    )


def sentence(ours: str, theirs: str, method: Method, figures: Mapping[str, float]) -> str:
    """Which of the two is better, by how much, and how sure that is."""
    difference = figure(figures, "difference")
    mine, other = figure(figures, "our_late_ratio"), figure(figures, "late_ratio")
    if difference is None or mine is None or other is None:
        return f"{ours} and {theirs} have not been compared on the same requests yet."
    shares = f"{ours} makes {mine:.1%} of requests late, {theirs} {other:.1%}"
    where = "in ghosts of the same traffic" if method == "shadow" else "in turns"
    low, high = figure(figures, "low"), figure(figures, "high")
    if low is None or high is None:
        return f"{shares} {where}; it is too early to say how sure that is."
    between = f"between {100 * low:.1f} and {100 * high:.1f} points"
    if low > 0.0:
        better = f"{ours} is better by {100 * difference:.1f} points"
    elif high < 0.0:
        better = f"{theirs} is better by {-100 * difference:.1f} points"
        between = f"between {-100 * high:.1f} and {-100 * low:.1f} points"
    else:
        return f"{shares} {where}; the difference may be chance ({between}, {SURE:.0%} sure)."
    return f"{shares} {where}: {better} ({between}, {SURE:.0%} sure)."
