from __future__ import annotations

from adapters.unsettled import MAX_UNSETTLED, UNSETTLED_S, Unsettled


def test_what_is_old_enough_when_more_is_appended_is_settled():
    unsettled = Unsettled()
    unsettled.appended([b"a"], "1-0", 100.0)
    unsettled.appended([b"b"], "2-0", 100.0 + UNSETTLED_S)
    unsettled.appended([b"c"], "3-0", 100.1 + UNSETTLED_S)
    assert unsettled.place == "3-0"
    assert unsettled.forgotten() == 2
    assert unsettled.owed == (b"b", b"c")
    assert unsettled.place == ""


def test_time_alone_settles_nothing():
    """Who says nothing for an hour has seen nothing of the server in it."""
    unsettled = Unsettled()
    unsettled.appended([b"a"], "1-0", 100.0)
    assert unsettled.forgotten() == 1


def test_what_is_owed_stays_so_until_it_is_there_again():
    unsettled = Unsettled()
    unsettled.appended([b"a", b"b"], "1-0", 100.0)
    unsettled.forgotten()
    unsettled.appended([b"a"], "1-0", 101.0)  # half of it, and then the server died again
    assert unsettled.forgotten() == 2
    assert unsettled.owed == (b"a", b"b")
    unsettled.appended([b"a", b"b"], "1-1", 102.0)
    unsettled.paid()
    assert unsettled.owed == ()


def test_no_more_than_ten_thousand_are_kept():
    unsettled = Unsettled()
    unsettled.appended([b"%d" % number for number in range(MAX_UNSETTLED + 5)], "1-0", 100.0)
    assert unsettled.forgotten() == MAX_UNSETTLED
    assert unsettled.owed[-1] == b"%d" % (MAX_UNSETTLED + 4)
