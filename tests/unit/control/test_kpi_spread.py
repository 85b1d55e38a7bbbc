"""Spreads and rings: what they keep, how they merge, and their bounds."""

from __future__ import annotations

import math

import pytest

from api.control.kpis.rings import Ring, TwoRings, Window
from api.control.kpis.spread import Spread, merged


class TestSpread:
    def test_quantiles_are_right_to_six_percent(self):
        spread = Spread()
        for value in range(1, 1001):
            spread.add(value / 100)
        assert spread.quantile(0.5) == pytest.approx(5.0, rel=0.06)
        assert spread.quantile(0.99) == pytest.approx(9.9, rel=0.06)
        assert spread.quantile(1.0) == pytest.approx(10.0, rel=0.06)
        assert spread.mean == pytest.approx(5.005)

    def test_nothing_is_not_zero(self):
        assert (Spread().mean, Spread().quantile(0.5)) == (None, None)

    def test_no_number_and_what_is_below_nothing_are_left_out(self):
        spread = Spread()
        for value in (math.nan, math.inf, -1.0):
            spread.add(value)
        assert spread.count == 0

    def test_zero_and_what_is_huge_have_their_place(self):
        spread = Spread()
        spread.add(0.0)
        spread.add(1e9)
        assert spread.quantile(0.5) == 0.0
        assert spread.greatest == 1e9
        assert (spread.quantile(1.0) or 0) > 10_000  # the last bucket, which has no end

    def test_a_level_past_all_gives_the_greatest(self):
        spread = Spread()
        spread.add(2.0)
        assert spread.quantile(1.5) == 2.0

    def test_two_add_up(self):
        one, two = Spread(), Spread()
        one.add(1.0)
        two.add(3.0)
        two.add(1.0)
        whole = merged([one, two])
        assert (whole.count, whole.total, whole.greatest) == (3, 5.0, 3.0)


class TestRings:
    def test_a_bucket_is_made_when_it_is_needed_and_goes_when_it_is_old(self):
        ring: Ring[list[int]] = Ring(10.0, 3, list)
        for at_s in (5.0, 6.0, 25.0):
            cell = ring.at(at_s)
            assert cell is not None
            cell.append(1)
        assert sorted(map(len, ring.over(25.0, 30.0))) == [1, 2]
        assert [len(cell) for cell in ring.over(25.0, 10.0)] == [1]
        assert [(at, cell) for at, cell in ring.series(25.0, 3)] == [
            (0.0, [1, 1]), (10.0, None), (20.0, [1]),
        ]  # fmt: skip
        ring.at(35.0)
        assert ring.at(5.0) is None
        assert [at for at, cell in ring.series(35.0, 4) if cell is not None] == [20.0, 30.0]

    def test_what_is_too_old_for_the_fine_ring_counts_in_the_coarse_one(self):
        rings: TwoRings[list[int]] = TwoRings(list)
        assert len(list(rings.at(100_000.0))) == 2
        assert len(list(rings.at(80_000.0))) == 1
        assert len(list(rings.over(100_000.0, 3600.0))) == 1
        assert len(list(rings.over(100_000.0, 86_400.0))) == 2

    def test_windows_have_lengths(self):
        assert [one.length_s for one in Window] == [3600.0, 86_400.0, 604_800.0]
