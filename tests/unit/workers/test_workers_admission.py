"""When a background job may start."""

from __future__ import annotations

import pytest

from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId
from contracts.limits import ClassLimits
from contracts.reasons import Reason
from contracts.world import ModelStatus, QueueStatus, Residency, WorldSnapshot
from workers.admission import AdmissionConfig, Candidate, admit

CONFIG = AdmissionConfig(
    hold_s=5.0, looks_per_s=10.0, longest_hold_s=60.0, max_hold_s=120.0, world_expires_s=30.0
)
LLAMA = ModelId("llama")
NOW_S = 1000.0


def _world(residency=Residency.COLD, waiting=None, taken_at_s=NOW_S, models=(LLAMA,)):
    return WorldSnapshot(
        taken_at_s=taken_at_s,
        models={
            name: ModelStatus(model=name, node=NodeId("n"), residency=residency) for name in models
        },
        queues=tuple(
            QueueStatus(priority=priority, waiting=count, capacity=10)
            for priority, count in (waiting or {}).items()
        ),
    )


def _limits(
    slots, valid_until_s=NOW_S + 10.0, priority=PriorityClass.BACKGROUND, loadable=(LLAMA,)
):
    return ClassLimits(
        priority=priority,
        slots=slots,
        loadable=loadable,
        valid_until_s=valid_until_s,
        reason=Reason.DEMAND,
    )


def _admit(world=None, limits=None, *, waited_s=0.0, running=0, others_waiting=0):
    candidate = Candidate(
        model=LLAMA,
        priority=PriorityClass.BACKGROUND,
        waited_s=waited_s,
        others_running=running,
        others_waiting=others_waiting,
    )
    return admit(candidate, world=world, limits=limits, now_s=NOW_S, config=CONFIG)


def test_a_resident_model_is_used_without_limits():
    admission = _admit(_world(Residency.HOT))
    assert (admission.admitted, admission.reason) == (True, Reason.RESIDENT)


@pytest.mark.parametrize("residency", [r for r in Residency if r is not Residency.HOT])
def test_without_limits_no_load_is_started(residency):
    admission = _admit(_world(residency))
    assert (admission.admitted, admission.reason) == (False, Reason.NOT_RESIDENT)
    assert admission.retry_after_s == 5.0


def test_valid_limits_allow_a_load():
    assert _admit(_world(), _limits(1)).reason is Reason.DEMAND


@pytest.mark.parametrize(
    "limits",
    [
        _limits(4, valid_until_s=NOW_S),  # expired this very moment
        _limits(4, priority=PriorityClass.BATCH),  # another class's
        None,
    ],
)
def test_expired_limits_mean_one_slot(limits):
    assert _admit(_world(Residency.HOT), limits, running=0).admitted
    held = _admit(_world(Residency.HOT), limits, running=1)
    assert (held.admitted, held.reason) == (False, Reason.CLASS_SLOTS_FULL)


def test_no_slot_holds_even_the_oldest():
    assert _admit(limits=_limits(0), waited_s=1e6).reason is Reason.CLASS_SLOTS_FULL
    assert _admit(limits=_limits(3), running=2).admitted


def test_a_job_that_waited_its_longest_starts_as_soon_as_a_slot_is_free():
    busy = _world(waiting={PriorityClass.REALTIME: 3})
    assert _admit(busy, waited_s=119.9).reason is Reason.HIGHER_CLASS_WAITS
    assert _admit(busy, waited_s=120.0).reason is Reason.WAITED_LONGEST


def test_a_higher_class_that_waits_goes_first_its_own_does_not():
    hot = Residency.HOT
    assert not _admit(_world(hot, {PriorityClass.BATCH: 1})).admitted
    assert _admit(_world(hot, {PriorityClass.BACKGROUND: 9, PriorityClass.REALTIME: 0})).admitted


@pytest.mark.parametrize(
    "world", [None, _world(taken_at_s=NOW_S - 30.1), _world(models=())], ids=["no", "old", "other"]
)
def test_what_is_not_known_holds_nobody(world):
    admission = _admit(world)
    assert (admission.admitted, admission.reason) == (True, Reason.PASS_THROUGH)


def test_many_held_jobs_share_the_looks():
    assert _admit(_world(), others_waiting=300).retry_after_s == 30.0
    assert _admit(_world(), others_waiting=100_000).retry_after_s == 60.0


def test_with_limits_a_load_is_only_for_what_they_name():
    assert _admit(_world(), _limits(2)).reason is Reason.DEMAND
    held = _admit(_world(), _limits(2, loadable=()))
    assert (held.admitted, held.reason) == (False, Reason.NOT_RESIDENT)
