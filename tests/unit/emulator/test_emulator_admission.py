from __future__ import annotations

import pytest

from emulator.admission import Admission, NoSlot


def test_the_server_has_so_many_slots_for_all_models():
    admission = Admission(2)
    with admission.slot("a", None), admission.slot("b", None):
        with pytest.raises(NoSlot) as full, admission.slot("a", None):
            pass
        assert (full.value.failure.status, full.value.failure.retry_after) == (503, 1)
        assert "capacity reached (max_concurrent=2)" in full.value.failure.message
        assert full.value.by_server
    with admission.slot("a", None):
        pass


@pytest.mark.parametrize(
    ("limits", "retry_after"),
    [({"max_concurrent": 1, "retry_after_seconds": 7}, 7), ({"max_concurrent": 1}, 1)],
)
def test_a_model_has_those_of_its_own_configuration(limits, retry_after):
    admission = Admission(None)
    with admission.slot("a", limits):
        with pytest.raises(NoSlot) as full, admission.slot("a", limits):
            pass
        assert full.value.failure.kind == "admission_rejected"
        assert full.value.failure.retry_after == retry_after
        assert not full.value.by_server
        with admission.slot("b", limits):
            pass


@pytest.mark.parametrize("limits", [None, [1], {"max_concurrent": 0}, {"max_concurrent": "2"}])
def test_what_is_no_limit_limits_nothing(limits):
    admission = Admission(None)
    with admission.slot("a", limits), admission.slot("a", limits):
        pass
