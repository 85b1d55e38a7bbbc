from __future__ import annotations

import math

import pytest

from api.gateway.fallback import (
    CPU_FACTOR,
    MIN_GAIN_S,
    NEVER,
    REASONS,
    SERVICE_S,
    TURN_S,
    Prospect,
    choose,
    load_wait_s,
    queue_wait_s,
    rung_service_s,
)
from contracts.ids import ModelId
from contracts.reasons import Reason
from contracts.variants import RungKind


def prospect(model: str, wait_s: float, service_s: float = 1.0) -> Prospect:
    return Prospect(model=ModelId(model), wait_s=wait_s, service_s=service_s)


def test_who_answers_soonest_answers():
    own = prospect("llama", 8.0)
    assert choose(own, [prospect("q4", 0.0), prospect("cpu", 0.0, 6.0)]).model == "q4"
    assert choose(own, [prospect("cpu", 0.0, 8.0)]).model == "cpu"
    assert choose(own, [prospect("cpu", 0.0, 9.0)]) is own
    assert choose(own, []) is own


def test_a_lower_rung_has_to_gain_something_that_is_felt():
    own = prospect("llama", 1.0)
    assert choose(own, [prospect("q4", 1.0 - MIN_GAIN_S)]) is own
    assert choose(own, [prospect("q4", 1.0 - MIN_GAIN_S - 0.01)]).model == "q4"
    rungs = [prospect("q4", 0.2), prospect("q2", 0.1)]
    assert choose(own, rungs).model == "q4"


def test_what_never_comes_is_waited_for_only_where_nothing_else_comes_either():
    own = prospect("llama", NEVER)
    assert choose(own, [prospect("cpu", 500.0, 500.0)]).model == "cpu"
    assert choose(own, [prospect("cpu", NEVER)]) is own


@pytest.mark.parametrize(
    ("held", "expected_s", "elapsed_s", "more", "wait_s"),
    [
        (None, 8.0, None, {}, 8.0),
        (None, 8.0, None, {"cooldown_s": 5.0}, 13.0),
        (None, None, None, {}, math.inf),
        (None, 8.0, 3.0, {}, 5.0),
        (Reason.LOADING, 8.0, 8.0, {}, 2.0),
        (None, None, 40.0, {}, 10.0),
        (None, None, 1.0, {}, 1.0),
        (Reason.NEVER_FITS, 8.0, None, {}, math.inf),
        (Reason.OUT_OF_MEMORY, 8.0, None, {}, math.inf),
        (Reason.GPU_YIELDED, 8.0, None, {}, math.inf),
        (Reason.NO_ROOM, 8.0, None, {}, 8.0 + TURN_S),
        (Reason.NO_ROOM, 8.0, None, {"waited_s": 60.0}, 68.0),
        (Reason.LOAD_SLOTS_FULL, 8.0, None, {"waited_s": 60.0}, 8.0),
    ],
)
def test_how_long_a_load_is_waited_for(held, expected_s, elapsed_s, more, wait_s):
    assert load_wait_s(
        held=held, expected_s=expected_s, elapsed_s=elapsed_s, **more
    ) == pytest.approx(wait_s)


def test_how_long_a_slot_is_waited_for():
    assert queue_wait_s(ahead=9, slots=None, service_s=4.0) == 0.0
    assert queue_wait_s(ahead=1, slots=2, service_s=4.0) == 0.0
    assert queue_wait_s(ahead=2, slots=2, service_s=4.0) == 2.0
    assert queue_wait_s(ahead=5, slots=2, service_s=4.0) == 8.0


@pytest.mark.parametrize(
    ("kind", "measured_s", "own_s", "factor", "service_s"),
    [
        (RungKind.CPU, 3.0, 1.0, 9.0, 3.0),
        (RungKind.CPU, None, 1.5, 4.0, 6.0),
        (RungKind.CPU, None, None, None, SERVICE_S * CPU_FACTOR),
        (RungKind.PARTIAL, None, 1.5, 4.0, 3.0),
        (RungKind.PARTIAL, None, 1.5, 1.2, 1.5),
        (RungKind.QUANTISED, None, 1.5, 4.0, 1.5),
    ],
)
def test_a_rung_takes_what_was_measured_else_the_models_time_and_its_factor(
    kind, measured_s, own_s, factor, service_s
):
    found = rung_service_s(kind, measured_s=measured_s, own_s=own_s, cpu_factor=factor)
    assert found == pytest.approx(service_s)


def test_each_kind_has_a_word_of_its_own():
    assert set(REASONS) == set(RungKind)
    assert len(set(REASONS.values())) == len(RungKind)
