"""Which instances there are behind a name, as looks tell it: who joins, who leaves, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from contracts.ids import NodeId
from contracts.instances import DiscoveryConfig, Instance, instance_id, primary_of
from contracts.plan import Outcome
from contracts.reasons import Reason
from controller.instances import FLAPS_WITHIN_S, Look, decided, looked

CONFIG = DiscoveryConfig(grace_s=30.0, most=4)
A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def ids(*addresses: str) -> set[NodeId]:
    return {instance_id(address) for address in addresses}


class Story:
    """One look after another, every one of whom answers unless it is said otherwise."""

    def __init__(self, *found: str) -> None:
        self.now_s = 0.0
        self.silent: set[NodeId] = set()
        self.known: Mapping[NodeId, Instance] = {}
        if found:
            self.look(*found)

    def look(self, *found: str, at_s: float | None = None) -> Look:
        return self._look(found, at_s)

    def fails(self, at_s: float) -> Look:
        return self._look(None, at_s)

    def _look(self, found: Collection[str] | None, at_s: float | None) -> Look:
        self.now_s = self.now_s if at_s is None else at_s
        look = looked(
            self.known,
            found,
            answering=self.known.keys() - self.silent,
            now_s=self.now_s,
            config=CONFIG,
        )
        self.known = look.instances
        return look

    def reasons(self, look: Look) -> list[tuple[str, Reason]]:
        return [(change.node.removeprefix("localai-"), change.reason) for change in look.changes]


def test_those_that_are_found_join_and_stay():
    story = Story()
    look = story.look(A, B)
    assert {one.node for one in look.joined} == ids(A, B)
    assert story.reasons(look) == [(A, Reason.INSTANCE_FOUND), (B, Reason.INSTANCE_FOUND)]
    assert story.look(B, A, at_s=5.0) == Look(instances=story.known)


def test_one_that_is_missing_gets_nothing_new_and_is_forgotten_after_the_grace_time():
    story = Story(A, B)
    look = story.look(A, at_s=5.0)
    assert story.reasons(look) == [(B, Reason.INSTANCE_MISSING)]
    assert story.known[instance_id(B)].is_leaving
    look = story.look(A, at_s=34.0)
    assert (look.changes, look.left) == ((), ())
    look = story.look(A, at_s=35.0)
    assert [one.node for one in look.left] == [instance_id(B)]
    assert story.reasons(look) == [(B, Reason.INSTANCE_GONE)]
    assert dict(look.changes[0].evidence) == {"address": B, "missing_s": 30.0}
    assert set(story.known) == ids(A)


def test_one_that_comes_back_is_as_it_was_and_keeps_its_name():
    story = Story(A, B)
    before = story.known[instance_id(B)]
    story.look(A, at_s=5.0)
    look = story.look(A, B, at_s=10.0)
    assert story.reasons(look) == [(B, Reason.INSTANCE_BACK)]
    assert story.known[instance_id(B)] == replace(before, returned_at_s=(10.0,))
    story.look(A, at_s=15.0)
    story.look(A, at_s=45.0)
    look = story.look(A, B, at_s=50.0)  # forgotten meanwhile
    assert [one.node for one in look.joined] == [instance_id(B)]


def test_a_look_that_fails_changes_nothing_and_lets_nobody_go():
    story = Story(A, B)
    story.look(A, at_s=5.0)
    known = story.known
    assert story.fails(at_s=500.0) == Look(instances=known)
    assert story.look(A, B, at_s=505.0).left == ()


def test_where_nobody_is_found_all_stay_as_they_are():
    story = Story(A, B)
    look = story.look(at_s=5.0)
    assert not any(one.is_leaving for one in story.known.values())
    assert (look.changes, look.left) == ((), ())
    assert story.look(at_s=5_000.0).left == ()
    assert set(story.known) == ids(A, B)


def test_the_last_ones_go_when_another_one_answers():
    """Scaled to none and out again: until then their models are known and can be asked for."""
    story = Story(A)
    story.look(at_s=5.0)
    look = story.look(B, at_s=100.0)
    assert [one.node for one in look.joined] == [instance_id(B)]
    assert (look.left, story.known[instance_id(A)].is_leaving) == ((), True)
    story.silent = ids(A, B)
    assert story.look(B, at_s=105.0).left == ()
    story.silent = ids(A)
    assert [one.node for one in story.look(B, at_s=110.0).left] == [instance_id(A)]


def test_who_flaps_stays_until_it_is_gone_for_good():
    story = Story(A, B)
    said = []
    for round_ in range(4):
        said += story.reasons(story.look(A, at_s=5.0 + 10.0 * round_))
        said += story.reasons(story.look(A, B, at_s=10.0 + 10.0 * round_))
    assert said == [
        (B, Reason.INSTANCE_MISSING), (B, Reason.INSTANCE_BACK),
        (B, Reason.INSTANCE_MISSING), (B, Reason.INSTANCE_BACK),
        (B, Reason.INSTANCE_MISSING), (B, Reason.INSTANCE_FLAPS),
    ]  # fmt: skip
    story.look(A, at_s=50.0)
    assert not story.known[instance_id(B)].is_leaving
    assert story.reasons(story.look(A, at_s=80.0)) == [(B, Reason.INSTANCE_GONE)]


def test_who_flapped_long_ago_is_believed_again():
    story = Story(A, B)
    for round_ in range(3):
        story.look(A, at_s=5.0 + 10.0 * round_)
        story.look(A, B, at_s=10.0 + 10.0 * round_)
    look = story.look(A, at_s=30.0 + FLAPS_WITHIN_S)
    assert story.reasons(look) == [(B, Reason.INSTANCE_MISSING)]


def test_one_that_came_back_after_nobody_was_found_is_not_told_as_back():
    story = Story(A)
    story.look(at_s=5.0)
    assert story.look(A, at_s=10.0).changes == ()


def test_those_beyond_the_bound_are_left_out_and_counted():
    many = [f"10.0.1.{number}" for number in range(6)]
    story = Story(A)
    look = story.look(A, *many)
    assert (len(look.instances), len(look.joined), look.left_out) == (4, 3, 3)
    assert {A, *many[:3]} == {one.address for one in look.instances.values()}
    look = story.look(A, *many, at_s=5.0)
    assert (look.joined, look.left_out) == ((), 3)
    story.look(A, *many[1:], at_s=10.0)
    look = story.look(A, *many[1:], at_s=40.0)
    assert [one.address for one in look.joined] == [many[3]]


def test_where_those_that_are_gone_fill_every_place_one_makes_room():
    """All are started anew, at other addresses: nobody who answers could ever join."""
    before, after = ([f"10.0.{net}.{number}" for number in range(4)] for net in (1, 2))
    story = Story(*before)
    assert story.look(*after, at_s=5.0).joined == ()
    assert story.look(*after, at_s=34.0).joined == ()
    story.silent = ids(*before, *after)
    look = story.look(*after, at_s=35.0)
    assert story.reasons(look) == [
        (before[0], Reason.INSTANCE_GONE), (after[0], Reason.INSTANCE_FOUND),
    ]  # fmt: skip
    assert ([one.address for one in look.left], look.left_out) == ([before[0]], 3)
    assert story.look(*after, at_s=40.0).left == ()
    story.silent = ids(*before)
    assert len(story.look(*after, at_s=45.0).left) == 3
    assert set(story.known) == ids(*after)


def test_the_name_itself_makes_room_where_there_is_room_for_one_alone():
    name = Instance(node=NodeId("localai"), address="", joined_at_s=0.0)
    config = replace(CONFIG, most=1)
    look = looked({name.node: name}, [A], answering=(), now_s=5.0, config=config)
    assert (set(look.instances), look.left_out) == (ids(A), 0)


def test_the_name_itself_stands_in_until_one_is_found_that_answers():
    name = Instance(node=NodeId("localai"), address="", joined_at_s=0.0)
    story = Story()
    story.known = {name.node: name}
    assert story.look(at_s=5.0).left == ()
    story.silent = {name.node, *ids(A)}
    look = story.look(A, at_s=10.0)
    assert (look.left, story.known[name.node].is_leaving) == ((), False)
    story.silent = {name.node}
    look = story.look(A, at_s=15.0)
    assert story.reasons(look) == [("localai", Reason.INSTANCE_GONE)]
    assert dict(look.changes[0].evidence)["address"] == "the name"
    assert set(story.known) == ids(A)


def test_the_primary_is_who_is_known_longest_and_stays():
    assert primary_of({}) is None
    story = Story(B)
    story.look(A, B, at_s=5.0)
    assert primary_of(story.known) == instance_id(B)
    story.look(A, at_s=10.0)
    assert primary_of(story.known) == instance_id(A)
    assert primary_of(Story(C, A).known) == instance_id(A)
    alone = replace(story.known[instance_id(B)], is_leaving=True)
    assert primary_of({alone.node: alone}) == alone.node


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [(Reason.INSTANCE_FLAPS, Outcome.HOLD), (Reason.INSTANCE_MISSING, Outcome.CHANGE)],
)
def test_every_change_is_a_decision(reason, outcome):
    story = Story(A, B)
    (change,) = story.look(A, at_s=5.0).changes
    (one,) = decided([replace(change, reason=reason)], "e7", 5.0)
    assert (one.policy, one.subject, one.outcome) == ("instances", instance_id(B), outcome)
    assert (one.decision_id, one.made_at_s, one.reason) == ("ie7-0", 5.0, reason)
