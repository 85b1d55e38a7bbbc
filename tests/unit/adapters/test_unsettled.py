from __future__ import annotations

from adapters.unsettled import FORGOTTEN_S, MAX_UNSETTLED, UNSETTLED_S, Unsettled


def test_what_is_old_enough_when_more_is_appended_is_settled():
    unsettled = Unsettled()
    unsettled.appended([b"a"], "1-0", 100.0)
    unsettled.appended([b"b"], "2-0", 100.0 + UNSETTLED_S)
    unsettled.appended([b"c"], "3-0", 100.1 + UNSETTLED_S)
    assert unsettled.place(104.0) == "3-0"
    assert unsettled.lost() == 2
    assert unsettled.owed == [b"b", b"c"]
    assert unsettled.place(104.0) == ""


def test_time_alone_settles_nothing():
    """Who says nothing for a minute has seen nothing of the server in it."""
    unsettled = Unsettled()
    unsettled.appended([b"a"], "1-0", 100.0)
    assert unsettled.place(160.0) == "1-0"
    assert unsettled.lost() == 1


def test_what_was_written_long_ago_is_not_looked_for():
    unsettled = Unsettled()
    unsettled.appended([b"a"], "1-0", 100.0)
    assert unsettled.place(100.1 + FORGOTTEN_S) == ""


def test_what_is_lost_again_comes_before_what_is_still_owed():
    unsettled = Unsettled()
    unsettled.appended([b"a", b"b"], "1-0", 100.0)
    unsettled.lost()
    unsettled.appended([b"a"], "1-0", 101.0)
    del unsettled.owed[:1]
    assert unsettled.lost() == 2
    assert unsettled.owed == [b"a", b"b"]


def test_no_more_than_so_many_are_kept():
    unsettled = Unsettled()
    for first in range(0, MAX_UNSETTLED + 500, 500):
        batch = [b"%d" % number for number in range(first, first + 500)]
        unsettled.appended(batch, "1-0", 100.0)
    assert unsettled.lost() == MAX_UNSETTLED
    unsettled.appended([b"more"], "2-0", 100.0)
    assert unsettled.lost() == MAX_UNSETTLED
    assert unsettled.owed[-1] == b"%d" % (MAX_UNSETTLED + 499)


def test_a_batch_that_is_too_large_by_itself_is_settled():
    unsettled = Unsettled()
    unsettled.appended([b"a"] * (MAX_UNSETTLED + 1), "1-0", 100.0)
    assert unsettled.lost() == 0
