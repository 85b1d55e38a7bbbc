"""How sure a difference is."""

from __future__ import annotations

import pytest

from controller.verdict import MIN_BLOCKS, Pair, Verdict, judge


def pair(ours_late, theirs_late, *, ours=100, theirs=100):
    return Pair(ours=ours, ours_late=ours_late, theirs=theirs, theirs_late=theirs_late)


def judged(pairs: list[Pair]) -> Verdict:
    verdict = judge(pairs)
    assert verdict is not None
    return verdict


def interval(verdict: Verdict) -> tuple[float, float]:
    assert verdict.low is not None
    assert verdict.high is not None
    return verdict.low, verdict.high


def test_a_difference_in_every_block_is_sure():
    verdict = judged([pair(10, 20)] * 8)
    assert (verdict.ours_late_ratio, verdict.theirs_late_ratio) == (0.1, 0.2)
    assert verdict.difference == pytest.approx(0.1)
    assert interval(verdict) == pytest.approx((0.1, 0.1))
    assert (verdict.sure, verdict.blocks) == (1.0, 8)


def test_blocks_that_contradict_each_other_are_not():
    verdict = judged([pair(10, 40), pair(40, 12)] * 5)
    low, high = interval(verdict)
    assert low < 0.0 < high
    assert verdict.sure is not None
    assert 0.2 < verdict.sure < 0.8


def test_what_the_hour_does_to_both_cancels_out():
    # late shares swing between 5 % and 85 %, theirs always 5 points above
    verdict = judged([pair(late, late + 5) for late in range(5, 85, 8)])
    assert interval(verdict) == pytest.approx((0.05, 0.05))


def test_a_block_counts_by_its_requests():
    verdict = judged([pair(0, 0, ours=1000, theirs=1000), pair(10, 20, ours=20, theirs=20)])
    assert verdict.difference == pytest.approx(10 / 1020)


def test_few_blocks_have_a_difference_but_no_interval():
    verdict = judged([pair(10, 20)] * (MIN_BLOCKS - 1))
    assert verdict.difference == pytest.approx(0.1)
    assert (verdict.low, verdict.high, verdict.sure) == (None, None, None)


def test_blocks_in_which_one_side_had_nothing_say_nothing():
    assert judge([]) is None
    assert judge([pair(0, 5, ours=0)]) is None
    assert judged([pair(0, 5, ours=0), pair(1, 2)]).blocks == 1


def test_the_same_counts_give_the_same_interval():
    pairs = [pair(10 + n, 14 + 2 * n) for n in range(9)]
    assert judge(pairs) == judge(pairs)
