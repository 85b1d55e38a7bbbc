"""LocalAI unloads by itself: what that is told as, and what is no such thing."""

from __future__ import annotations

import itertools
from dataclasses import replace

from structlog.testing import capture_logs

from contracts.events import ActionFailed, AnyEvent, ModelUnloaded, NodeObserved, UnloadCause
from contracts.ids import NodeId
from contracts.node_facts import NodeFacts, NodeWarning
from contracts.plan import Decision, Outcome
from contracts.reasons import Reason
from contracts.world import NodeStatus, Residency, WorldSnapshot
from controller.fold import FIRST_REFUSED_SPARE_S, LONGEST_SPARE_S, SPARE_S, fold
from controller.lookout import Lookout
from controller.unordered import cause_of, gone_unordered, suspects, told_as
from tests import worlds
from tests.worlds import NODE, A, B, C

OTHER = NodeId("other")
HOT, COLD = Residency.HOT, Residency.COLD


def warning(setting: str, value: str = "2") -> NodeWarning:
    return NodeWarning(setting=setting, value=value, problem="p", remedy="r")


def seen(*resident, at_s: float = 200.0, restarted: bool = False, node=NODE) -> NodeObserved:
    return NodeObserved(
        **worlds.stamp(at_s),
        node=node,
        resident=resident,
        busy=(),
        memory_total_bytes=None,
        memory_used_bytes=None,
        model_limit=None,
        restarted=restarted,
    )


def with_residents(world: WorldSnapshot, node: NodeId, *names) -> WorldSnapshot:
    status = world.nodes.get(node) or NodeStatus(node=node, alive=True)
    return replace(world, nodes={**world.nodes, node: replace(status, residents=names)})


class TestWhatIsGone:
    def test_what_was_hot_and_is_not_listed_any_more(self):
        before = worlds.world(worlds.model(A, HOT), worlds.model(B, HOT), worlds.model(C, COLD))
        event = seen(B)
        assert gone_unordered(before, fold(before, event), event) == (A,)

    def test_what_we_drain_is_ours_to_tell(self):
        before = worlds.world(worlds.model(A, Residency.DRAINING), worlds.model(B, HOT))
        event = seen(B)
        assert gone_unordered(before, fold(before, event), event) == ()

    def test_what_changed_after_the_poll_began_is_not_judged_by_it(self):
        before = worlds.world(worlds.model(A, HOT, residency_since_s=201.0))
        event = seen(at_s=200.0)
        assert gone_unordered(before, fold(before, event), event) == ()

    def test_a_copy_that_is_not_at_home_counts_too(self):
        before = with_residents(worlds.world(worlds.model(A, HOT)), OTHER, A)
        event = seen(node=OTHER)
        assert gone_unordered(before, fold(before, event), event) == (A,)

    def test_a_name_that_nobody_knows_is_nothing_to_us(self):
        before = with_residents(worlds.world(worlds.model(A, HOT)), OTHER, "strange")
        event = seen(node=OTHER)
        assert gone_unordered(before, fold(before, event), event) == ()

    def test_a_node_that_was_never_seen_has_lost_nothing(self):
        before = worlds.world(worlds.model(A, COLD))
        event = seen(node=NodeId("new"))
        assert gone_unordered(before, fold(before, event), event) == ()


class TestWhy:
    def test_all_at_once_is_a_restart(self):
        assert cause_of(seen(restarted=True)) is UnloadCause.RESTART
        assert cause_of(seen()) is UnloadCause.EXTERNAL

    def test_settings_that_unload_are_suspected_and_others_are_not(self):
        facts = NodeFacts(warnings=(warning("max_active_backends"), warning("pinned", "a")))
        assert suspects(NodeStatus(node=NODE, facts=facts)) == "max_active_backends = 2"
        assert suspects(NodeStatus(node=NODE)) == suspects(None) == ""

    def test_each_model_gets_a_record_of_its_own(self):
        facts = NodeFacts(warnings=(warning("watchdog_idle", "15m"),))
        told = told_as(seen(), (A, B), NodeStatus(node=NODE, facts=facts))
        assert [one.subject for one in told] == [A, B]
        assert len({one.decision_id for one in told}) == 2
        assert {one.reason for one in told} == {Reason.LOCALAI_UNLOADED}
        assert told[0].outcome is Outcome.CHANGE
        assert told[0].evidence == (("node", NODE), ("set_there", "watchdog_idle = 15m"))

    def test_a_restart_blames_no_setting(self):
        facts = NodeFacts(warnings=(warning("watchdog_idle", "15m"),))
        (told,) = told_as(seen(restarted=True), (A,), NodeStatus(node=NODE, facts=facts))
        assert told.reason is Reason.LOCALAI_RESTARTED
        assert told.evidence == (("node", NODE),)

    def test_where_nothing_is_known_nothing_is_blamed(self):
        (told,) = told_as(seen(), (A,), None)
        assert told.evidence == (("node", NODE),)


class TestLookout:
    def setup_method(self) -> None:
        self.world = worlds.world(worlds.model(A, HOT), worlds.model(B, HOT))
        self.events: list[AnyEvent] = []
        self.decisions: list[Decision] = []
        numbers = itertools.count()
        self.lookout = Lookout(
            world=lambda: self.world,
            emit=self.emit,
            stamp=lambda: {"event_id": f"x{next(numbers)}", "at_s": 200.0, "source": "c"},
            decided=self.decisions.extend,
        )

    def emit(self, event: AnyEvent) -> None:
        self.events.append(event)
        self.world = fold(self.world, event)

    def test_an_eviction_behind_our_back_is_an_event_a_decision_and_a_line(self):
        with capture_logs() as logs:
            self.lookout.emit(seen(B))
        _, gone = self.events
        assert isinstance(gone, ModelUnloaded)
        assert (gone.model, gone.node, gone.cause) == (A, NODE, UnloadCause.EXTERNAL)
        assert [one.reason for one in self.decisions] == [Reason.LOCALAI_UNLOADED]
        (line,) = logs
        assert (line["event"], line["model"]) == ("model_unloaded_by_localai", A)
        assert line["set_there"] == "unknown"
        assert self.world.models[A].residency is COLD

    def test_a_restart_is_one_line_however_many_went(self):
        with capture_logs() as logs:
            self.lookout.emit(seen(restarted=True))
        assert [type(event).__name__ for event in self.events] == [
            "NodeObserved", "ModelUnloaded", "ModelUnloaded",
        ]  # fmt: skip
        assert [line["event"] for line in logs] == ["localai_restarted"]
        assert logs[0]["was_resident"] == [A, B]
        assert {one.reason for one in self.decisions} == {Reason.LOCALAI_RESTARTED}

    def test_where_all_is_as_believed_nothing_is_told(self):
        with capture_logs() as logs:
            self.lookout.emit(seen(A, B))
        assert (len(self.events), self.decisions, logs) == (1, [], [])

    def test_other_events_pass(self):
        failed = ActionFailed(**worlds.stamp(1.0), action_id="a", kind="k", subject=A, error="e")
        self.lookout.emit(failed)
        assert self.events == [failed]


class TestFold:
    def test_a_localai_that_began_anew_remembers_no_failed_load(self):
        cooling = worlds.model(A, Residency.FAILED, cooldown_until_s=500.0)
        later = worlds.model(B, Residency.FAILED, cooldown_until_s=500.0, residency_since_s=201.0)
        before = worlds.world(cooling, later, worlds.model(C, COLD))
        kept = fold(before, seen())
        assert kept.models[A].cooldown_until_s == 500.0
        after = fold(before, seen(restarted=True))
        assert after.models[A].cooldown_until_s is None
        assert after.models[B].cooldown_until_s == 500.0  # failed since the poll began

    def refused(self, world: WorldSnapshot, at_s: float, *, is_refused: bool) -> WorldSnapshot:
        return fold(
            world,
            ActionFailed(
                **worlds.stamp(at_s),
                action_id="a",
                kind="unload",
                subject=A,
                error="500 boom",
                is_refused=is_refused,
            ),
        )

    def test_a_stop_that_localai_refuses_is_tried_less_and_less_often(self):
        world = worlds.world(worlds.model(A, Residency.DRAINING))
        waits = []
        for at_s in (1000.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0):
            world = self.refused(world, at_s, is_refused=True)
            status = world.models[A]
            assert status.spared_until_s is not None
            waits.append(status.spared_until_s - at_s)
        assert waits == [FIRST_REFUSED_SPARE_S, 40.0, 80.0, 160.0, LONGEST_SPARE_S, LONGEST_SPARE_S]
        status = world.models[A]
        assert (status.unload_failures, status.unload_failure) == (6, "500 boom")

    def test_one_that_was_in_use_is_tried_again_soon(self):
        world = worlds.world(worlds.model(A, Residency.DRAINING))
        world = self.refused(world, 1000.0, is_refused=False)
        status = world.models[A]
        assert status.spared_until_s == 1000.0 + SPARE_S
        assert (status.unload_failures, status.unload_failure) == (0, "")

    def test_once_it_is_gone_nothing_of_that_is_left(self):
        world = worlds.world(worlds.model(A, Residency.DRAINING))
        world = self.refused(world, 1000.0, is_refused=True)
        gone = ModelUnloaded(**worlds.stamp(1001.0), model=A, node=NODE, cause=UnloadCause.EVICTED)
        status = fold(world, gone).models[A]
        assert (status.unload_failures, status.unload_failure) == (0, "")
