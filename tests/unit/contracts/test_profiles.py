from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.ids import ModelId, NodeId
from contracts.memory import HOST, PlaceId
from contracts.profiles import (
    LOAD_COLD,
    LOAD_WARM,
    MAX_CONFIGS,
    WINDOW,
    MeasuredProfile,
    Measures,
    Series,
    batch_gain,
    batch_of,
    file_read_s,
    gpu_over_cpu,
    location,
)

NODE, OTHER = NodeId("gpu"), NodeId("other")
CARD, CARD_2 = PlaceId("GPU-1"), PlaceId("GPU-2")


def series(*values: float) -> Series:
    found = Series()
    for at_s, value in enumerate(values, start=1):
        found = found.plus(value, float(at_s))
    return found


def test_a_single_measurement_is_its_own_estimate():
    estimate = series(8.0).estimate()
    assert estimate is not None
    assert (estimate.value, estimate.count, estimate.spread, estimate.at_s) == (8.0, 1, 0.0, 1.0)
    assert Series().estimate() is None


def test_a_wrong_one_of_five_moves_nothing():
    estimate = series(3.00, 3.02, 7.00, 2.98, 3.01).estimate()
    assert estimate is not None
    assert estimate.value == 3.01
    assert estimate.spread == pytest.approx(1.4826 * 0.01)


def test_what_has_changed_is_followed_after_half_of_the_window():
    estimate = series(*[3.0] * 20, *[5.0] * 5).estimate()
    assert estimate is not None
    assert estimate.value == 5.0
    assert estimate.count == 25


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_what_is_no_measurement_is_none(value: float):
    assert series(1.0, value) == series(1.0)


@given(st.lists(st.floats(0.1, 1e12), min_size=1, max_size=40), st.floats(0.0, 1e15))
def test_an_estimate_is_bounded_by_what_most_measured(values: list[float], wild: float):
    """However wild the minority, the estimate stays within the majority."""
    few = [wild] * (len(values) - 1 if len(values) < WINDOW else WINDOW // 2)
    middle, spread = location([*values, *few][: 2 * len(values) - 1])
    assert min(values) <= middle <= max(values)
    assert spread >= 0.0


class TestFootprint:
    def test_by_place_over_loads(self):
        split = {CARD: 3000, HOST: 100}
        measures = Measures(node=NODE, footprints=(split, {CARD: 3010, HOST: 100}, split))
        found = measures.footprint()
        assert (found[CARD].value, found[CARD].count) == (3000.0, 3)
        assert found[HOST].value == 100.0

    def test_loads_on_another_card_are_not_mixed_in(self):
        one, two = {CARD: 3000}, {CARD_2: 3000}
        assert set(Measures(node=NODE, footprints=(one, two, one)).footprint()) == {CARD}
        assert set(Measures(node=NODE, footprints=(one, two)).footprint()) == {CARD_2}

    def test_nothing_measured(self):
        assert Measures(node=NODE).footprint() == {}


class TestProfile:
    def test_each_configuration_and_node_for_itself(self):
        first = Measures(node=NODE, revision="a", at_s=1.0)
        second = Measures(node=NODE, revision="b", at_s=2.0)
        third = Measures(node=OTHER, revision="a", at_s=3.0)
        profile = MeasuredProfile(model=ModelId("m"))
        for one in (first, second, third):
            profile = profile.with_measures(one)
        assert profile.on(NODE, "a") == first
        assert profile.on(NODE, "b") == second
        assert profile.on(OTHER, "a") == third
        assert profile.on(OTHER, "b") is None
        assert profile.at_s == 3.0
        assert MeasuredProfile(model=ModelId("m")).at_s == 0.0

    def test_only_the_last_ones_are_kept(self):
        profile = MeasuredProfile(model=ModelId("m"))
        for number in range(MAX_CONFIGS + 3):
            measures = Measures(node=NODE, revision=str(number), at_s=float(number))
            profile = profile.with_measures(measures)
        assert [one.revision for one in profile.measures] == ["3", "4", "5", "6", "7", "8"]


def test_how_many_at_once_make_a_batch():
    assert [batch_of(n) for n in (0, 1, 2, 3, 4, 7, 8, 100)] == [1, 1, 2, 2, 4, 4, 8, 8]


def test_what_a_batch_gains():
    alone = Measures(node=NODE, series={"token_s_at_1": series(0.02)})
    assert batch_gain(alone) == {}
    assert batch_gain(Measures(node=NODE, series={"token_s_at_2": series(0.02)})) == {}
    both = Measures(node=NODE, series={"token_s_at_1": series(0.02), "token_s_at_8": series(0.05)})
    assert batch_gain(both) == {8: pytest.approx(3.2)}
    at_once = Measures(
        node=NODE, series={"token_s_at_1": series(0.02), "token_s_at_8": series(0.0)}
    )
    assert batch_gain(at_once) == {}


def test_the_part_of_a_load_that_reads_files():
    def loads(**times: Series) -> Measures:
        names = {"cold": LOAD_COLD, "warm": LOAD_WARM}
        return Measures(node=NODE, series={names[key]: value for key, value in times.items()})

    assert file_read_s(loads()) is None
    assert file_read_s(loads(cold=series(12.0))) is None
    read = file_read_s(loads(cold=series(12.0, 12.0), warm=series(4.0)))
    assert read is not None
    assert (read.value, read.count, read.spread) == (8.0, 1, 0.0)
    odd = file_read_s(loads(cold=series(3.0), warm=series(4.0)))
    assert odd is not None
    assert odd.value == 0.0


def test_how_much_faster_a_gpu_is():
    def speed(token_s: float | None) -> Measures:
        known = {} if token_s is None else {"token_s_at_1": series(token_s)}
        return Measures(node=NODE, series=known)

    assert gpu_over_cpu(speed(0.02), speed(0.2)) == pytest.approx(10.0)
    assert gpu_over_cpu(speed(None), speed(0.2)) is None
    assert gpu_over_cpu(speed(0.02), speed(None)) is None
    assert gpu_over_cpu(speed(0.0), speed(0.2)) is None
