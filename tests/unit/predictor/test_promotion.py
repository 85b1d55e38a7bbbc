"""Who is published: the challenger only where it is better."""

from __future__ import annotations

import pytest

from contracts.insights import BOOSTED, MIXTURE, BacktestScore
from predictor.promotion import LEAST_LOOKS, decide

HORIZONS = (60.0, 300.0, 900.0, 3600.0)


def scores(boosted, mixture=0.5, floor=0.7, looks=2 * LEAST_LOOKS, horizons=HORIZONS):
    def column(method, losses):
        losses = losses if isinstance(losses, tuple) else (losses,) * len(horizons)
        return [
            BacktestScore(
                method=method,
                horizon_s=horizon_s,
                scaled_pinball=loss,
                rmsse=None,
                coverage_80=None,
                brier=None,
                reliability_max_error=None,
                looks=looks,
            )
            for horizon_s, loss in zip(horizons, losses, strict=True)
        ]

    return [
        *column(MIXTURE, mixture),
        *column(BOOSTED, boosted),
        *column("naive_last_value_bands", floor),
        *column("naive_seasonal", 1.0),
    ]


@pytest.mark.parametrize(
    ("boosted", "is_promoted", "promoted"),
    [
        (0.4, False, True),
        (0.497, False, False),
        (0.497, True, True),
        (0.501, True, False),
        ((0.3, 0.3, 0.3, 0.52), False, True),
        ((0.3, 0.3, 0.3, 0.53), False, False),
    ],
)
def test_it_takes_over_when_it_is_better_and_nowhere_clearly_worse(boosted, is_promoted, promoted):
    verdict = decide(scores(boosted), is_promoted=is_promoted)
    assert verdict.promoted is promoted
    assert verdict.champion == (BOOSTED if promoted else MIXTURE)
    assert "\n" not in verdict.reason


def test_never_below_the_floor():
    verdict = decide(scores(0.45, mixture=0.6, floor=0.44), is_promoted=True)
    assert not verdict.promoted
    assert "naive floor (0.450 to 0.440)" in verdict.reason


@pytest.mark.parametrize(
    "seen",
    [
        [],
        scores(0.1, looks=0),
        scores(0.1, looks=LEAST_LOOKS - 1),
        scores((None,) * 4),
        [score for score in scores(0.1) if score.method == MIXTURE],
    ],
)
def test_with_too_little_to_compare_all_stays(seen):
    verdict = decide(seen, is_promoted=False)
    assert not verdict.promoted
    assert "too little" in verdict.reason


def test_without_a_known_floor_the_mixture_decides():
    assert decide(scores(0.4, floor=None)[:8], is_promoted=False).promoted
