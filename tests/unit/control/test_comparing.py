"""Which policy is better, by how much, and how sure that is, in one sentence."""

from __future__ import annotations

import math

import pytest

from api.control.board import Board
from api.control.comparing import (
    beside_sentence,
    in_use,
    is_comparison,
    known_policies,
    method_of,
    sentence,
)
from api.control.views import comparison_views, policy_views, summary_view
from contracts.policies import POLICY_SUMMARIES
from controller.policies.registry import POLICIES

USE = {"configured:headstart": 1.0, "deciding:lru": 1.0}
JUDGED = {
    "arrivals": 1000.0,
    "cold_starts": 90.0,
    "late": 60.0,
    "loads": 40.0,
    "our_late_ratio": 0.041,
    "late_ratio": 0.06,
    "difference": 0.019,
    "low": 0.008,
    "high": 0.03,
    "sure": 0.99,
    "odd": math.nan,
}


def board_of():
    return Board(default_target_s=2.0)


def said(method="shadow", **changed):
    return sentence("headstart", "gdsf", method, {**JUDGED, **changed})


def test_a_difference_that_is_sure_names_the_better_one():
    assert said() == (
        "headstart makes 4.1% of requests late, gdsf 6.0% in ghosts of the same traffic: "
        "headstart is better by 1.9 points (between 0.8 and 3.0 points, 95% sure)."
    )
    assert said(difference=-0.019, low=-0.03, high=-0.008).endswith(
        "gdsf is better by 1.9 points (between 0.8 and 3.0 points, 95% sure)."
    )


def test_a_difference_that_is_not_sure_is_said_to_be_so():
    text = said("ab", low=-0.01)
    assert "in turns; the difference may be chance (between -1.0 and 3.0 points" in text


@pytest.mark.parametrize("missing", ["low", "high"])
def test_with_few_blocks_it_is_too_early(missing):
    figures = {name: value for name, value in JUDGED.items() if name != missing}
    assert sentence("a", "b", "ab", figures).endswith("it is too early to say how sure that is.")


def test_without_any_it_says_so():
    text = "headstart and lru have not been compared on the same requests yet."
    assert sentence("headstart", "lru", "beside", {"arrivals": 3.0}) == text
    assert said(difference=math.nan).endswith("compared on the same requests yet.")


def test_real_cold_starts_are_said_beside_those_of_a_rule():
    assert beside_sentence("headstart", "localai-lru", 200.0, 10.0, 40.0) == (
        "Of 200 requests 10 met a cold model with headstart, 40 would have with localai-lru; "
        "how sure that is was not looked at."
    )
    for arrivals, ours, theirs in ((None, 1.0, 1.0), (0.0, 0.0, 0.0), (5.0, None, 1.0)):
        said = beside_sentence("a", "b", arrivals, ours, theirs)
        assert said == "a and b have not been compared on the same requests yet."


def test_names_say_how_figures_came_about():
    assert method_of("shadow:gdsf") == ("shadow", "gdsf")
    assert method_of("ab:lru") == ("ab", "lru")
    assert method_of("localai-lru") == ("beside", "localai-lru")
    assert in_use({"policies": USE}) == ("headstart", "lru")
    assert in_use({}) == (None, None)
    shown = {name: is_comparison(name, {"policies": USE}) for name in ("policies", "shadow:lru")}
    assert shown == {"policies": False, "shadow:lru": True}
    assert not is_comparison("shadow:headstart", {"policies": USE})


def test_every_policy_of_the_controller_has_its_line():
    assert set(POLICY_SUMMARIES) == set(POLICIES)
    assert set(known_policies({"shadow:newer": {}})) == {"newer", *POLICIES}


def test_views_of_a_shadow():
    board = board_of()
    board.baselines = {
        "policies": USE,
        "localai-lru": {"arrivals": 200.0, "cold_starts": 40.0},
        "shadow:headstart": {"arrivals": 1000.0, "cold_starts": 50.0, "late": 41.0},
        "shadow:gdsf": JUDGED,
        "ab:lru": {"arrivals": 10.0},
    }
    views = {view.id: view for view in comparison_views(board)}
    assert set(views) == {"localai-lru", "shadow:gdsf", "ab:lru"}
    shadow = views["shadow:gdsf"]
    assert (shadow.policy, shadow.method, shadow.our_cold_starts) == ("gdsf", "shadow", 50.0)
    assert (shadow.difference, shadow.low, shadow.sure) == (0.019, 0.008, 0.99)
    assert shadow.sentence.startswith("headstart makes 4.1%")
    assert views["ab:lru"].our_cold_starts is None
    assert views["localai-lru"].sentence.endswith("compared on the same requests yet.")
    headline = summary_view(board, 100.0, time_scale=1.0, stale_after_s=15.0).comparison
    assert headline == views["localai-lru"]


def test_views_of_policies():
    board = board_of()
    board.baselines = {"policies": USE, "shadow:gdsf": JUDGED, "shadow:lru": {"arrivals": 0.0}}
    views = {view.id: view for view in policy_views(board)}
    assert set(views) == set(POLICIES)
    assert [name for name, view in views.items() if view.configured] == ["headstart"]
    assert [name for name, view in views.items() if view.deciding] == ["lru"]
    assert (views["gdsf"].late_ratio, views["gdsf"].loads) == (0.06, 40.0)
    assert (views["lru"].late_ratio, views["headstart"].late_ratio) == (None, None)
    assert views["gdsf"].summary
