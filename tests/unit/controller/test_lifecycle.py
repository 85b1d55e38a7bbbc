from __future__ import annotations

import pytest

from contracts.world import Residency
from controller.lifecycle import Step, applies, follow

COLD, LOADING, HOT = Residency.COLD, Residency.LOADING, Residency.HOT
DRAINING, UNLOADING, FAILED = Residency.DRAINING, Residency.UNLOADING, Residency.FAILED

TABLE = {
    Step.LOAD: {COLD: LOADING, FAILED: LOADING},
    Step.LOADED: {COLD: HOT, FAILED: HOT, LOADING: HOT},
    Step.LOAD_FAILED: {COLD: FAILED, FAILED: FAILED, LOADING: FAILED},
    Step.LOAD_GIVEN_UP: {LOADING: COLD},
    Step.DRAIN: {HOT: DRAINING},
    Step.DRAIN_GIVEN_UP: {DRAINING: HOT, UNLOADING: HOT},
    Step.UNLOADED: dict.fromkeys(Residency, COLD),
    Step.SEEN_RESIDENT: {COLD: HOT, FAILED: HOT},
    Step.SEEN_ABSENT: {HOT: COLD},
}


@pytest.mark.parametrize("step", Step)
@pytest.mark.parametrize("residency", Residency)
def test_every_step_from_every_residency(residency, step):
    allowed = TABLE[step]
    assert applies(residency, step) == (residency in allowed)
    assert follow(residency, step) is allowed.get(residency, residency)


def test_a_model_being_loaded_or_unloaded_is_not_corrected_by_a_poll():
    for ordered in (LOADING, DRAINING, UNLOADING):
        assert follow(ordered, Step.SEEN_RESIDENT) is ordered
        assert follow(ordered, Step.SEEN_ABSENT) is ordered


def test_no_step_takes_a_busy_or_idle_model_out_of_memory_without_a_drain_or_a_report():
    ways_out = {step for step in Step if follow(HOT, step) not in (HOT, DRAINING)}
    assert ways_out == {Step.UNLOADED, Step.SEEN_ABSENT}
