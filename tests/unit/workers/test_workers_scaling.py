"""How many processes a queue gets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workers.scaling import QUIET_S, Scale, Scales, rescaled


def _counts(queued=0, started=0, scheduled=0):
    return {"queued": queued, "started": started, "scheduled": scheduled}


def test_one_process_for_each_job_up_to_the_most():
    assert rescaled(Scale(), _counts(queued=2, started=1), most=4, now_s=0.0).processes == 3
    assert rescaled(Scale(), _counts(queued=100), most=4, now_s=0.0).processes == 4
    assert rescaled(Scale(), _counts(scheduled=100), most=4, now_s=0.0).processes == 1
    assert rescaled(Scale(), {}, most=0, now_s=0.0).processes == 1


def test_fewer_only_after_a_while_and_no_fewer_than_were_needed_meanwhile():
    scale = Scale(processes=4)
    scale = rescaled(scale, _counts(queued=1), most=4, now_s=100.0)
    scale = rescaled(scale, _counts(queued=2), most=4, now_s=130.0)
    scale = rescaled(scale, _counts(), most=4, now_s=100.0 + QUIET_S - 1.0)
    assert scale.processes == 4
    scale = rescaled(scale, _counts(), most=4, now_s=100.0 + QUIET_S)
    assert scale == Scale(processes=2)


def test_a_need_that_comes_back_begins_the_while_anew():
    scale = rescaled(Scale(processes=2), _counts(), most=4, now_s=0.0)
    scale = rescaled(scale, _counts(queued=2), most=4, now_s=50.0)
    scale = rescaled(scale, _counts(), most=4, now_s=QUIET_S)
    assert scale.processes == 2


@given(needs=st.lists(st.integers(0, 50), min_size=1, max_size=40), most=st.integers(1, 8))
def test_there_are_always_enough_and_never_too_many(needs, most):
    scale, now_s = Scale(), 0.0
    for need in needs:
        scale = rescaled(scale, _counts(queued=need), most=most, now_s=now_s)
        assert min(max(1, need), most) <= scale.processes <= most
        now_s += 7.0


def test_scales_are_kept_from_look_to_look_and_an_outage_changes_nothing():
    scales = Scales({"batch": 4, "maintenance": 1})
    busy = {"batch": _counts(queued=3), "maintenance": _counts(queued=9)}
    assert scales.wanted(busy, 0.0) == {"batch": 3, "maintenance": 1}
    assert scales.wanted(None, 1000.0) == {"batch": 3, "maintenance": 1}
    assert scales.wanted({}, 1000.0) == {"batch": 3, "maintenance": 1}
    assert scales.wanted({}, 1000.0 + QUIET_S) == {"batch": 1, "maintenance": 1}
