"""Champion or challenger: whose numbers are published after a backtest. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contracts.insights import BOOSTED, MIXTURE, BacktestScore

LEAST_LOOKS = 500
"""Fewer looks decide nothing."""
BETTER_BY = 0.01
"""A challenger takes over when it loses this much less in the mean, so that nothing flaps."""
WORSE_BY = 0.05
"""And at no horizon this much more than the champion."""
FLOORS = ("naive_last_value_bands", "naive_seasonal_bands", "naive_last_value", "naive_seasonal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Who wins, and why, in one line."""

    promoted: bool
    reason: str

    @property
    def champion(self) -> str:
        """The winner's name."""
        return BOOSTED if self.promoted else MIXTURE


def decide(scores: Sequence[BacktestScore], *, is_promoted: bool) -> Verdict:
    """Whether the challenger is published, by what both would have done over the last week.

    It has to lose less than the mixture in the mean of all horizons (by ``BETTER_BY``, unless it
    is the champion already), at no horizon clearly more, and nowhere more than the best floor.

    Parameters
    ----------
    is_promoted : bool
        Whether the challenger before it is published now.
    """
    losses = {(s.method, s.horizon_s): s.scaled_pinball for s in scores}
    horizons = sorted({s.horizon_s for s in scores if s.looks > 0})
    pairs = []
    for horizon_s in horizons:
        mixture, boosted = losses.get((MIXTURE, horizon_s)), losses.get((BOOSTED, horizon_s))
        if mixture is None or boosted is None:
            continue
        floors = [losses.get((name, horizon_s)) for name in FLOORS]
        floor = min((loss for loss in floors if loss is not None), default=None)
        if floor is not None and boosted > floor:
            return _stays(
                f"within {horizon_s:.0f} s the challenger loses to the naive floor "
                f"({boosted:.3f} to {floor:.3f})"
            )
        if boosted > (1.0 + WORSE_BY) * mixture:
            return _stays(
                f"within {horizon_s:.0f} s the challenger is worse ({boosted:.3f} to {mixture:.3f})"
            )
        pairs.append((mixture, boosted))
    looks = max((s.looks for s in scores if s.method == BOOSTED), default=0)
    if not pairs or looks < LEAST_LOOKS:
        return _stays(f"too little has been seen to compare ({looks} looks)")
    mixture, boosted = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    needed = mixture * (1.0 if is_promoted else 1.0 - BETTER_BY)
    if boosted > needed:
        return _stays(f"the challenger is not better ({boosted:.3f} to {mixture:.3f})")
    return Verdict(
        promoted=True, reason=f"better over the last week ({boosted:.3f} to {mixture:.3f})"
    )


def _stays(reason: str) -> Verdict:
    return Verdict(promoted=False, reason=reason)
