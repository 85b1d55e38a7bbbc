from __future__ import annotations

import math

import numpy as np

from predictor.windows import CountWindow

FIRST, SECOND = 0, 1
BOTH = np.array([FIRST, SECOND])


def window() -> CountWindow:
    return CountWindow(width_s=10.0, buckets=6, rows=2)


def test_before_anything_is_seen_there_are_no_buckets() -> None:
    counts = window()

    assert counts.counts(FIRST) == ()
    assert np.isnan(counts.totals(BOTH, 100.0, 10.0)).all()


def test_a_bucket_without_arrivals_is_zero_and_one_before_the_first_is_missing() -> None:
    counts = window()
    counts.add(FIRST, 101.0)
    counts.add(FIRST, 109.9)
    counts.add(SECOND, 125.0)
    counts.advance(139.0, watched=True)

    assert counts.counts(FIRST) == (None, None, 2, 0, 0, 0)
    assert counts.counts(SECOND) == (None, None, None, None, 1, 0)


def test_time_that_nobody_watched_is_missing() -> None:
    counts = window()
    counts.add(FIRST, 100.0)
    counts.advance(135.0, watched=False)

    assert counts.counts(FIRST) == (None, None, 1, None, None, 0)
    assert math.isnan(counts.totals(np.array([FIRST]), 130.0, 20.0)[0])


def test_an_arrival_in_time_that_nobody_watched_is_still_counted() -> None:
    counts = window()
    counts.add(FIRST, 100.0)
    counts.advance(135.0, watched=False)
    counts.add(FIRST, 115.0)

    assert counts.counts(FIRST) == (None, None, 1, 1, None, 0)


def test_a_late_arrival_is_counted_where_it_belongs_while_that_is_kept() -> None:
    counts = window()
    counts.add(FIRST, 100.0)
    counts.add(FIRST, 145.0)
    counts.add(FIRST, 112.0)
    counts.add(FIRST, 80.0)

    assert counts.counts(FIRST) == (None, 1, 1, 0, 0, 1)
    assert counts.too_late == 1


def test_a_first_arrival_that_is_late_says_nothing_about_the_time_after_it() -> None:
    counts = window()
    counts.add(FIRST, 145.0)
    counts.add(SECOND, 140.0)
    counts.add(SECOND, 121.0)

    assert counts.counts(SECOND) == (None, None, None, 1, None, 1)


def test_what_is_older_than_the_ring_is_forgotten() -> None:
    counts = window()
    counts.add(FIRST, 100.0)
    counts.advance(1e9, watched=True)

    assert counts.counts(FIRST) == (0, 0, 0, 0, 0, 0)


def test_a_clock_that_is_set_back_undoes_what_was_counted_after() -> None:
    counts = window()
    counts.add(FIRST, 100.0)
    counts.add(FIRST, 115.0)
    counts.add(SECOND, 135.0)
    counts.rewind(112.0)

    assert counts.counts(FIRST) == (None, None, None, None, 1, 1)
    assert counts.counts(SECOND) == (None, None, None, None, None, 0)

    counts.add(FIRST, 124.0)
    assert counts.counts(FIRST) == (None, None, None, 1, 1, 1)


def test_a_clock_that_is_not_set_back_undoes_nothing() -> None:
    counts = window()
    counts.rewind(50.0)
    counts.add(FIRST, 100.0)
    counts.rewind(500.0)

    assert counts.counts(FIRST) == (None, None, None, None, None, 1)


def test_totals_are_of_whole_buckets_and_unknown_where_any_is_missing() -> None:
    counts = window()
    for at_s in (100.0, 111.0, 112.0, 128.0):
        counts.add(FIRST, at_s)
    counts.add(SECOND, 111.0)

    assert counts.totals(BOTH, 129.0, 10.0).tolist() == [2.0, 1.0]
    assert counts.totals(np.array([FIRST]), 129.0, 20.0).tolist() == [3.0]
    assert math.isnan(counts.totals(BOTH, 129.0, 20.0)[SECOND])
    assert np.isnan(counts.totals(BOTH, 129.0, 100.0)).all()
    assert np.isnan(counts.totals(BOTH, 190.0, 10.0)).all()


def test_room_is_made_and_rows_are_cleared_without_touching_others() -> None:
    counts = window()
    counts.add(FIRST, 100.0)
    counts.add(SECOND, 100.0)
    counts.grow(3)
    counts.add(2, 100.0)
    counts.clear(SECOND)

    assert counts.counts(FIRST)[-1] == 1
    assert counts.counts(SECOND)[-1] is None
    assert counts.counts(2)[-1] == 1
