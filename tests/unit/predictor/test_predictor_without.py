from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from contracts.config import PredictorConfig
from contracts.errors import Invalid
from contracts.events import RequestReceived
from contracts.ids import ModelId
from predictor.engine import PredictorEngine
from predictor.models.decayed_rates import DecayedRates
from predictor.models.experts import EXPERTS, NAMED, OWN_GAPS, Experts
from predictor.models.next_use import GRID_S

ROW = np.array([0])


def spoken(without: tuple[str, ...]) -> set[int]:
    """Experts that say anything of a model with habits."""
    rates = DecayedRates(2)
    experts, rng, last_s = Experts(2, rates, without), random.Random(1), 0.0
    for turn in range(200):
        at_s = 300.0 * turn + rng.uniform(0.0, 5.0)
        for row in (0, 1):
            rates.add(row, at_s + row)
            experts.arrive(row, at_s + row, None if turn == 0 else at_s - last_s)
        last_s = at_s
    experts.arrive(0, last_s + 2.0, 2.0)  # which the other tends to follow
    experts.advance(np.array([0, 1]), last_s + 2.0)
    opinions = experts.opinions(np.array([1]), np.array([2.0]), last_s + 3.0, GRID_S)
    return set(np.flatnonzero(np.abs(opinions.features[0]).sum(axis=1) > 0.0).tolist())


def test_all_are_asked_unless_said_otherwise() -> None:
    assert spoken(()) == set(range(EXPERTS))


@pytest.mark.parametrize("name", NAMED)
def test_one_that_is_left_out_has_no_opinion(name: str) -> None:
    assert spoken((name,)) == set(range(EXPERTS)) - set(NAMED[name])


def test_without_the_pool_own_gaps_are_left() -> None:
    assert spoken(("pool",)) == {OWN_GAPS}


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(Invalid, match="no expert 'oracle'; those that can be left out: hour_slots"):
        PredictorEngine(PredictorConfig(without=("oracle",)))


def test_the_engine_is_told_by_its_configuration(
    received: Callable[..., RequestReceived],
) -> None:
    def hazards(without: tuple[str, ...]) -> list[tuple[float, ...]]:
        engine = PredictorEngine(PredictorConfig(without=without), signals=False)
        for turn in range(60):
            at_s = 600.0 * turn
            engine.observe(received(ModelId("a"), at_s))
            engine.pass_time(at_s + 590.0, steps=100)
        curve = engine.next_use(ModelId("a"), 600.0 * 60 - 5.0)
        assert curve is not None
        return [curve.cumulative_hazard]

    assert hazards(("pool",)) != hazards(())
