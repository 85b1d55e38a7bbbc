"""Who decides in which mode, and what is published about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.ids import ModelId
from contracts.world import Mode, Sla
from controller.policies.registry import POLICIES
from controller.referee import JUDGE_S, REFRESH_S, Referee
from controller.trial import turn_at
from tests.worlds import A, B, C, completed, config, dispatched, model, received, world

CONFIG = config(policy="headstart")


def live(mode, now_s=100.0, **fields):
    found = world(model(A), model(B), model(C), mb=20, now_s=now_s, **fields)
    return replace(found, mode=mode)


def hear(referee, event, mode, **fields):
    referee.heard(event, live(mode, event.at_s, **fields), {}, CONFIG)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.SHADOW, Mode.ACTIVE])
def test_the_configured_policy_decides_unless_two_take_turns(mode):
    assert Referee().config(live(mode), CONFIG) is CONFIG


def test_two_take_turns():
    referee = Referee(against="gdsf", slice_s=600.0)
    decided = {
        referee.config(live(Mode.AB, now_s), CONFIG).policy for now_s in (0.0, 600.0, 1200.0)
    }
    assert decided == {"headstart", "gdsf"}


class TestShadow:
    def played(self, *requests):
        referee = Referee()
        for number, (name, at_s) in enumerate(requests):
            hear(referee, received(f"r{number}", name, at_s), Mode.SHADOW)
        return referee

    def test_every_policy_plays_what_comes(self):
        requests = [((A, B, C)[n % 3], 1000.0 + 200.0 * n) for n in range(30)]
        referee = self.played(*requests)
        figures = referee.figures(live(Mode.SHADOW, 10_000.0), {}, CONFIG)
        assert set(figures) == {"policies", *(f"shadow:{name}" for name in POLICIES)}
        lru, ours = figures["shadow:lru"], figures["shadow:headstart"]
        assert (lru["arrivals"], lru["cold_starts"]) == (30.0, 30.0)
        assert "difference" not in ours
        assert lru["difference"] == pytest.approx((lru["late"] - ours["late"]) / 30.0, abs=1e-9)
        assert {"low", "high", "sure", "blocks"} <= set(lru)

    def test_nothing_is_played_in_other_modes(self):
        referee = Referee()
        hear(referee, received("r", A, 100.0), Mode.ACTIVE)
        hear(referee, received("s", None, 100.0), Mode.SHADOW)
        hear(referee, dispatched("r", A, 101.0), Mode.ACTIVE)
        assert referee.figures(live(Mode.ACTIVE), {}, CONFIG) == {
            "policies": {"configured:headstart": 1.0, "deciding:headstart": 1.0}
        }

    def test_requests_serve_for_as_long_as_they_usually_do(self):
        referee = Referee()
        for number, service_s in enumerate((40.0, 60.0)):
            event = replace(completed(f"r{number}", A, 10.0), service_s=service_s)
            hear(referee, event, Mode.ACTIVE)
        assert referee._service_s == {A: pytest.approx(42.0)}
        unlisted = completed("x", ModelId("nobody"), 10.0)
        hear(referee, unlisted, Mode.ACTIVE)
        failed = replace(completed("y", B, 10.0), status=503)
        hear(referee, failed, Mode.ACTIVE)
        elsewhere = replace(completed("z", B, 10.0), served_by=C)
        hear(referee, elsewhere, Mode.ACTIVE)
        assert set(referee._service_s) == {A}

    def test_ghosts_learn_of_new_models(self):
        referee = Referee()
        small = replace(world(model(A), mb=20, now_s=100.0), mode=Mode.SHADOW)
        referee.heard(received("r1", A, 100.0), small, {}, CONFIG)
        later_s = 100.0 + 2 * REFRESH_S
        for number in range(2):
            hear(referee, received(f"s{number}", B, later_s + number), Mode.SHADOW)
        figures = referee.figures(live(Mode.SHADOW, later_s + 60.0), {}, CONFIG)
        assert figures["shadow:lru"]["arrivals"] == 3.0

    def test_verdicts_are_not_drawn_every_second(self):
        referee = self.played((A, 1000.0))
        first = dict(referee.figures(live(Mode.SHADOW, 1100.0), {}, CONFIG))
        hear(referee, received("r9", B, 1101.0), Mode.SHADOW)
        assert referee.figures(live(Mode.SHADOW, 1120.0), {}, CONFIG) == first
        later = referee.figures(live(Mode.SHADOW, 1100.0 + JUDGE_S), {}, CONFIG)
        assert later["shadow:lru"]["arrivals"] == 2.0

    def test_without_a_ghost_of_ours_the_others_are_counted_all_the_same(self):
        referee = self.played((A, 1000.0))
        figures = referee.figures(live(Mode.SHADOW, 1100.0), {}, replace(CONFIG, policy="other"))
        assert figures["shadow:lru"]["arrivals"] == 1.0
        assert "difference" not in figures["shadow:lru"]


class TestTurns:
    SLICE_S = 600.0

    def counted(self, side):
        """A moment past the carry-over of a slice of that side."""
        return next(
            self.SLICE_S * number + 500.0
            for number in range(2)
            if turn_at(self.SLICE_S * number, self.SLICE_S).side == side
        )

    def test_late_requests_are_counted_for_who_decided(self):
        referee = Referee(slice_s=self.SLICE_S)
        ours_s, theirs_s = self.counted(0), self.counted(1)
        slas = {B: Sla(model=B, target_s=30.0)}
        for name, at_s, wait_s in (
            (A, ours_s, 1.0),
            (A, theirs_s, 20.0),
            (B, theirs_s, 20.0),
        ):
            event = dispatched("r", name, at_s + wait_s, queue_wait_s=wait_s)
            hear(referee, event, Mode.AB, slas=slas)
        figures = referee.figures(live(Mode.AB, 2000.0), {}, CONFIG)
        assert figures["ab:lru"] == {
            "arrivals": 2,
            "late": 1,
            "our_arrivals": 1,
            "our_late": 0,
            "blocks": 1,
            "our_late_ratio": 0.0,
            "late_ratio": 0.5,
            "difference": 0.5,
        }

    def test_before_both_had_a_turn_nothing_is_compared(self):
        referee = Referee(slice_s=self.SLICE_S)
        referee.config(live(Mode.AB), CONFIG)
        figures = referee.figures(live(Mode.AB, 2000.0), {}, CONFIG)
        assert figures["ab:lru"] == {"arrivals": 0, "late": 0, "our_arrivals": 0, "our_late": 0}

    def test_who_decides_now_is_told(self):
        referee = Referee(slice_s=self.SLICE_S)
        told = referee.figures(live(Mode.AB, self.counted(1)), {}, CONFIG)["policies"]
        assert told == {"configured:headstart": 1.0, "deciding:lru": 1.0}

    def test_other_sides_are_another_trial(self):
        referee = Referee(slice_s=self.SLICE_S)
        event = dispatched("r", A, self.counted(0), queue_wait_s=0.0)
        hear(referee, event, Mode.AB)
        referee.config(live(Mode.AB), replace(CONFIG, policy="gdsf"))
        figures = referee.figures(live(Mode.AB, 2000.0), {}, replace(CONFIG, policy="gdsf"))
        assert figures["ab:lru"]["our_arrivals"] == 0
