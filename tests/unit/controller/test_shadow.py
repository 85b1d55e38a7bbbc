"""LocalAI's own LRU on the side, played by hand."""

from __future__ import annotations

from controller.shadow import ShadowLru
from tests.worlds import A, B, C


def played(*arrivals, limit=2, load_s=8.0):
    shadow = ShadowLru()
    for name, at_s in arrivals:
        shadow = shadow.arrived(name, at_s, load_s=load_s, limit=limit)
    return shadow


def test_the_first_request_is_cold_and_so_is_one_during_the_load():
    shadow = played((A, 0.0), (A, 7.9), (A, 8.0), (A, 9.0))
    assert shadow.figures() == {"arrivals": 4, "cold_starts": 2, "loads": 1}


def test_the_least_recently_used_one_goes():
    shadow = played((A, 0.0), (B, 10.0), (A, 20.0), (C, 30.0), (A, 40.0), (B, 50.0))
    # c takes the place of b; then b comes back cold
    assert shadow.figures() == {"arrivals": 6, "cold_starts": 4, "loads": 4}
    assert list(shadow.ready_at_s) == [A, B]


def test_a_smaller_limit_lets_several_go():
    shadow = played((A, 0.0), (B, 10.0))
    assert list(shadow.arrived(C, 20.0, load_s=8.0, limit=1).ready_at_s) == [C]


def test_a_limit_of_none_at_all_still_serves_one():
    assert list(played((A, 0.0), (B, 10.0), limit=0).ready_at_s) == [B]


def test_nothing_is_changed_in_place():
    before = played((A, 0.0))
    before.arrived(B, 10.0, load_s=8.0, limit=1)
    assert before == played((A, 0.0))
