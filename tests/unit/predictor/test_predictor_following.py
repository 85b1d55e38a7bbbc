from __future__ import annotations

import numpy as np
import pytest

from predictor.models.following import LEADERS, Following

SPEECH, CHAT, OTHER = 0, 1, 2
ALL = np.array([SPEECH, CHAT, OTHER])
RATES = np.full(3, 1e-4)


def chances(following: Following, now_s: float, delay_s: float) -> dict[int, float]:
    places, hazard = following.cumulative(ALL, now_s, np.array([delay_s]), RATES)
    return dict(zip(places.tolist(), (-np.expm1(-hazard[:, 0])).tolist(), strict=True))


def chained(times: int = 30) -> Following:
    """Five seconds after speech to text comes a chat; the third model goes its own way."""
    following = Following(3)
    for call in range(times):
        following.arrive(SPEECH, 1000.0 * call)
        following.arrive(CHAT, 1000.0 * call + 5.0)
        following.arrive(OTHER, 1000.0 * call + 500.0)
    return following


def test_a_model_is_expected_after_the_one_that_it_follows() -> None:
    following = chained()
    begun = following.arrive(SPEECH, 50_000.0)

    assert begun == (CHAT,)
    assert chances(following, 50_000.0, 10.0)[CHAT] > 0.9
    assert chances(following, 50_000.0, 1.0)[CHAT] < 0.1
    assert chances(following, 50_020.0, 10.0)[CHAT] < 0.1


def test_nothing_is_expected_once_it_has_come_or_long_after() -> None:
    following = chained()
    following.arrive(SPEECH, 50_000.0)
    following.arrive(CHAT, 50_004.0)

    assert chances(following, 50_005.0, 60.0) == {}
    following.arrive(SPEECH, 60_000.0)
    assert chances(following, 60_301.0, 60.0) == {}


def test_a_follower_that_stays_away_is_expected_less_each_time() -> None:
    following = chained(10)
    following.arrive(SPEECH, 50_000.0)
    before = chances(following, 50_000.0, 30.0)[CHAT]
    for call in range(20):
        following.arrive(SPEECH, 60_000.0 + 1000.0 * call)
    after = chances(following, 79_000.0, 30.0)[CHAT]

    assert after < 0.5 * before


def test_a_burst_of_the_leader_is_one_use() -> None:
    following = chained()
    for shot in range(5):
        following.arrive(SPEECH, 50_000.0 + shot)

    assert chances(following, 50_004.0, 5.0)[CHAT] > 0.8


def test_beyond_what_is_known_of_an_episode_the_plain_rate_holds() -> None:
    following = chained()
    following.arrive(SPEECH, 50_000.0)
    _, hazard = following.cumulative(
        np.array([CHAT]), 50_000.0, np.array([300.0, 1300.0]), np.array([1e-3])
    )

    assert hazard[0, 1] - hazard[0, 0] == pytest.approx(1.0)


def test_a_model_keeps_the_leaders_that_tell_most() -> None:
    following = Following(12)
    for call in range(60):
        following.arrive(SPEECH, 1000.0 * call)
        # Many come at once with the leader, each now and then.
        for stranger in range(2, 2 + call % 10):
            following.arrive(stranger, 1000.0 * call + 1.0)
        following.arrive(CHAT, 1000.0 * call + 5.0)

    assert CHAT in following.arrive(SPEECH, 99_000.0)
    assert sum(CHAT in following.arrive(row, 99_500.0 + row) for row in range(2, 12)) < LEADERS


def test_only_the_last_few_models_used_can_have_led() -> None:
    following = Following(40)
    for row in range(2, 40):
        following.arrive(row, 1000.0 + 0.1 * row)
    following.arrive(CHAT, 1010.0)

    assert CHAT not in following.arrive(2, 2000.0)


def test_few_are_told_at_once_however_many_follow() -> None:
    following = Following(40)
    for call in range(5):
        for row in range(1, 40):
            following.arrive(SPEECH, 10_000.0 * call + 100.0 * row)
            following.arrive(row, 10_000.0 * call + 100.0 * row + 3.0)

    assert len(following.arrive(SPEECH, 90_000.0)) == 8


def test_a_forgotten_model_neither_leads_nor_follows() -> None:
    following = chained()
    following.grow(4)
    following.clear(CHAT)
    assert following.arrive(SPEECH, 50_000.0) == ()

    following = chained()
    following.arrive(SPEECH, 50_000.0)
    following.clear(SPEECH)
    assert chances(following, 50_001.0, 60.0) == {}
    assert following.arrive(SPEECH, 51_000.0) == ()


def test_a_clock_that_is_set_back_ends_what_had_begun() -> None:
    following = chained()
    following.arrive(SPEECH, 50_000.0)
    following.rewind(40_000.0)
    assert chances(following, 40_000.0, 60.0) == {}

    following.arrive(SPEECH, 40_000.0)
    assert chances(following, 40_000.0, 60.0)[CHAT] > 0.9


def test_an_episode_that_begins_ahead_of_a_late_clock_teaches_nothing() -> None:
    following = chained()
    following.arrive(SPEECH, 50_000.0)
    following.arrive(CHAT, 49_990.0)

    assert chances(following, 50_000.0, 60.0) == {}
