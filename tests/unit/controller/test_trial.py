"""Two policies in turns."""

from __future__ import annotations

from controller import trial
from controller.trial import Trial, turn_at
from controller.verdict import Pair

SLICE_S = 90.0


def test_each_pair_of_slices_has_both_sides_once():
    for pair in range(50):
        first, second = (turn_at(2 * SLICE_S * pair + at_s, SLICE_S) for at_s in (0.0, SLICE_S))
        assert (first.pair, second.pair) == (pair, pair)
        assert {first.side, second.side} == {0, 1}


def test_neither_side_always_goes_first():
    firsts = [turn_at(2 * SLICE_S * pair, SLICE_S).side for pair in range(400)]
    assert 150 < sum(firsts) < 250


def test_the_first_third_of_a_turn_is_the_others_work():
    assert not turn_at(0.0, SLICE_S).counts
    assert not turn_at(29.9, SLICE_S).counts
    assert turn_at(30.0, SLICE_S).counts
    assert not turn_at(90.0, SLICE_S).counts


def test_requests_count_for_the_side_whose_turn_they_came_in():
    played = Trial(slice_s=SLICE_S)
    side = turn_at(0.0, SLICE_S).side
    played.arrived(10.0, late=True)  # carry-over
    played.arrived(40.0, late=True)
    played.arrived(50.0, late=False)
    played.arrived(130.0, late=False)
    (pair,) = played.pairs()
    sides = [(pair.ours, pair.ours_late), (pair.theirs, pair.theirs_late)]
    assert (sides[side], sides[1 - side]) == ((2, 1), (1, 0))
    assert played.policy_at(40.0, ("x", "y")) == ("x", "y")[side]
    assert played.policy_at(130.0, ("x", "y")) == ("x", "y")[1 - side]


def test_old_pairs_are_forgotten(monkeypatch):
    monkeypatch.setattr(trial, "MAX_PAIRS", 3)
    played = Trial(slice_s=SLICE_S)
    for pair in range(5):
        played.arrived(2 * SLICE_S * pair + 40.0, late=False)
    assert list(played.counts) == [2, 3, 4]
    assert all(isinstance(pair, Pair) for pair in played.pairs())
